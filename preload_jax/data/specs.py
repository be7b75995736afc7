"""What the project knows about each in-domain data set, before anything is loaded."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from preload_jax import errors
from preload_jax.data.names import did_you_mean
from preload_jax.errors import DataError

_LARGEST_OF_LENET = 96
NOISE_SETS = ("uniform", "smooth", "faraway", "faraway_rd")
_GREY_SETS = ("mnist", "fashion_mnist", "emnist", "kmnist", "cifar_gr")
_RGB_SETS = ("svhn", "lsun_classroom", "cifar10", "cifar100", "fmnist_3d")


@dataclass(frozen=True)
class Augmentation:
    """A random flip and a random crop, applied to each image with some probability.

    The crop has the size of the in-domain images and is taken after `pad` pixels were added on every side.
    """

    probability: float
    flip: bool
    pad: int
    mode: Literal["constant", "edge", "reflect"]


@dataclass(frozen=True)
class DatasetSpec:
    """An in-domain data set: its shape, its network, and the sets it is tested against.

    Attributes:
      name: what the command line calls it.
      title: what the paper's tables call it.
      image_shape: (height, width, channels).
      num_classes: K, never counting the extra class.
      backbone: the network the paper trains on it.
      ood_sets: OOD test sets in the order of the paper's tables; the last four are made, not loaded.
      augmentation: of the in-domain training images; None for none.
      outlier_augmentation: of the auxiliary OOD images; None for none.
      default_outliers: the auxiliary OOD images used when none are named.
      class_names: one a class, in the order of the labels.
      validation_size: how many images are held out for validation.
      noise_size: how many images each made OOD set has; of the user's own data not more than test images.
      note: what is done to the user's own images to give them one shape, in words; empty for nothing.
    """

    name: str
    title: str
    image_shape: tuple[int, int, int]
    num_classes: int
    backbone: str
    ood_sets: tuple[str, ...]
    augmentation: Augmentation | None
    outlier_augmentation: Augmentation | None
    default_outliers: str
    class_names: tuple[str, ...]
    validation_size: int = 1_000
    noise_size: int = 10_000
    note: str = ""


_DIGIT_NAMES = tuple("0123456789")
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# fmt: off
_CIFAR100_NAMES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair",
    "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin",
    "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp",
    "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck",
    "pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel",
    "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
)
# fmt: on

# Released code: in-domain images are augmented with probability 1/2, outliers always; outliers for a grey set are
# 32x32 colour images of which a random 28x28 crop (pad 2) is taken and turned grey.
_GREY_OUTLIERS = Augmentation(probability=1.0, flip=False, pad=2, mode="constant")


def _crop(probability: float, *, flip: bool, mode: Literal["edge", "reflect"]) -> Augmentation:
    return Augmentation(probability=probability, flip=flip, pad=4, mode=mode)


DATASETS: dict[str, DatasetSpec] = {
    spec.name: spec
    for spec in (
        DatasetSpec(
            name="digits",
            title="Digits",
            image_shape=(8, 8, 1),
            num_classes=10,
            backbone="mlp",
            ood_sets=("photo", *NOISE_SETS),
            augmentation=None,
            outlier_augmentation=None,
            default_outliers="photo",
            class_names=_DIGIT_NAMES,
            validation_size=100,
            noise_size=2_000,
        ),
        DatasetSpec(
            name="mnist",
            title="MNIST",
            image_shape=(28, 28, 1),
            num_classes=10,
            backbone="lenet",
            ood_sets=("fashion_mnist", "emnist", "kmnist", "cifar_gr", *NOISE_SETS),
            augmentation=Augmentation(probability=0.5, flip=False, pad=2, mode="constant"),
            outlier_augmentation=_GREY_OUTLIERS,
            default_outliers="random_images_300k",
            class_names=_DIGIT_NAMES,
        ),
        DatasetSpec(
            name="fashion_mnist",
            title="F-MNIST",
            image_shape=(28, 28, 1),
            num_classes=10,
            backbone="lenet",
            ood_sets=("mnist", "emnist", "kmnist", "cifar_gr", *NOISE_SETS),
            augmentation=None,
            outlier_augmentation=_GREY_OUTLIERS,
            default_outliers="random_images_300k",
            class_names=_CLOTHES,
        ),
        DatasetSpec(
            name="svhn",
            title="SVHN",
            image_shape=(32, 32, 3),
            num_classes=10,
            backbone="wide_resnet",
            ood_sets=("cifar10", "lsun_classroom", "cifar100", "fmnist_3d", *NOISE_SETS),
            augmentation=_crop(0.5, flip=False, mode="edge"),
            outlier_augmentation=_crop(1.0, flip=True, mode="edge"),
            default_outliers="random_images_300k",
            class_names=_DIGIT_NAMES,
        ),
        DatasetSpec(
            name="cifar10",
            title="CIFAR-10",
            image_shape=(32, 32, 3),
            num_classes=10,
            backbone="wide_resnet",
            ood_sets=("svhn", "lsun_classroom", "cifar100", "fmnist_3d", *NOISE_SETS),
            augmentation=_crop(0.5, flip=True, mode="reflect"),
            outlier_augmentation=_crop(1.0, flip=True, mode="reflect"),
            default_outliers="random_images_300k",
            class_names=_CIFAR10_NAMES,
        ),
        DatasetSpec(
            name="cifar100",
            title="CIFAR-100",
            image_shape=(32, 32, 3),
            num_classes=100,
            backbone="wide_resnet",
            ood_sets=("svhn", "lsun_classroom", "cifar10", "fmnist_3d", *NOISE_SETS),
            augmentation=_crop(0.5, flip=True, mode="reflect"),
            outlier_augmentation=_crop(1.0, flip=True, mode="reflect"),
            default_outliers="random_images_300k",
            class_names=_CIFAR100_NAMES,
        ),
    )
}


def own_backbone(image_shape: tuple[int, int, int]) -> tuple[str, str]:
    """The network for the user's own images (h, w, c), one that a CPU trains in minutes, and why it is that one.

    The paper's own network for colour images, a WideResNet, takes seconds a step on a CPU.
    """
    height, width, channels = image_shape
    if min(height, width) < 16:
        return "mlp", "the images are small"
    # It halves the image twice, and its dense layer would be enormous for large ones.
    if channels == 1 and height % 4 == 0 and width % 4 == 0 and max(height, width) <= _LARGEST_OF_LENET:
        return "lenet", "the images are grey"
    return "conv_net", "a CPU trains it in minutes"


def own_spec(
    name: str, *, image_shape: tuple[int, int, int], class_names: tuple[str, ...], note: str = ""
) -> DatasetSpec:
    """A spec for the user's own images, with the network of `own_backbone`."""
    height, _, channels = image_shape
    backbone, _ = own_backbone(image_shape)
    pad = max(1, height // 8)
    return DatasetSpec(
        name=name,
        title=name,
        image_shape=image_shape,
        num_classes=len(class_names),
        backbone=backbone,
        ood_sets=(*(_RGB_SETS if channels == 3 else _GREY_SETS), *NOISE_SETS),
        augmentation=Augmentation(probability=0.5, flip=channels == 3, pad=pad, mode="reflect"),
        outlier_augmentation=Augmentation(probability=1.0, flip=True, pad=pad, mode="reflect"),
        default_outliers="smooth",
        class_names=class_names,
        note=note,
    )


def from_dict(values: dict[str, Any]) -> DatasetSpec:
    """The spec that `dataclasses.asdict` and JSON made these values of.

    Raises:
        KeyError, TypeError: when a field is missing or unknown.
    """
    policies = {
        name: None if values[name] is None else Augmentation(**values[name])
        for name in ("augmentation", "outlier_augmentation")
    }
    lists = {name: tuple(values[name]) for name in ("image_shape", "ood_sets", "class_names")}
    return DatasetSpec(**{**values, **policies, **lists})


def unknown(what: str, name: str, expected: Iterable[object]) -> DataError:
    """The error for a name that is in no table, with a guess at what was meant."""
    return DataError(errors.unknown(what, name, sorted(map(str, expected)), hint=did_you_mean(name)))
