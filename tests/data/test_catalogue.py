"""The table of published sets against the installed TFDS, and the look at what is prepared."""

import json

import pytest

from preload_jax.data.catalogue import DERIVED, PUBLISHED
from preload_jax.data.preparing.prepared import is_prepared, prepared_splits, require
from preload_jax.data.specs import DATASETS, NOISE_SETS, Augmentation, own_spec
from preload_jax.errors import NotPreparedError

# The version of TFDS's builder that has the checksums of sets which are kept as NumPy files.
TFDS_NAMES = {"cifar10_c": "cifar10_corrupted", "imagenet32": "imagenet_resized"}


@pytest.mark.parametrize("name", [name for name, item in PUBLISHED.items() if item.remote[0].sha256])
def test_checksums_are_those_of_tfds(name):
    import tensorflow_datasets as tfds

    item = PUBLISHED[name]
    known = tfds.builder_cls((item.tfds_name or TFDS_NAMES[name]).partition("/")[0]).url_infos
    for file in item.remote:
        assert (int(known[file.url].size), known[file.url].checksum) == (file.size, file.sha256)


def test_every_ood_set_can_be_had():
    for spec in DATASETS.values():
        assert spec.ood_sets[-4:] == NOISE_SETS
        assert set(spec.ood_sets) <= {*PUBLISHED, *DERIVED, *NOISE_SETS, "photo"}
        assert spec.name not in spec.ood_sets
        assert len(spec.class_names) == spec.num_classes


# As the paper's tables and its released code have them: OOD sets, augmentation of images and of outliers.
PAPER = {
    "mnist": ("fashion_mnist emnist kmnist cifar_gr", (0.5, False, 2, "constant"), (1.0, False, 2, "constant")),
    "fashion_mnist": ("mnist emnist kmnist cifar_gr", None, (1.0, False, 2, "constant")),
    "svhn": ("cifar10 lsun_classroom cifar100 fmnist_3d", (0.5, False, 4, "edge"), (1.0, True, 4, "edge")),
    "cifar10": ("svhn lsun_classroom cifar100 fmnist_3d", (0.5, True, 4, "reflect"), (1.0, True, 4, "reflect")),
    "cifar100": ("svhn lsun_classroom cifar10 fmnist_3d", (0.5, True, 4, "reflect"), (1.0, True, 4, "reflect")),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_data_sets(name):
    spec, (ood, augmentation, outliers) = DATASETS[name], PAPER[name]
    assert spec.ood_sets == (*ood.split(), "uniform", "smooth", "faraway", "faraway_rd")
    assert spec.augmentation == (augmentation and Augmentation(*augmentation))
    assert spec.outlier_augmentation == Augmentation(*outliers)
    assert (spec.validation_size, spec.noise_size, spec.default_outliers) == (1_000, 10_000, "random_images_300k")


def test_class_names_are_in_the_order_of_the_labels():
    import tensorflow_datasets as tfds

    for name in ("mnist", "fashion_mnist", "svhn"):
        names = tfds.builder(PUBLISHED[name].tfds_name).info.features["label"].names
        assert DATASETS[name].class_names == tuple(names)
    for name in ("cifar10", "cifar100"):  # published in the alphabet's order
        assert list(DATASETS[name].class_names) == sorted(set(DATASETS[name].class_names))


@pytest.mark.parametrize(
    ("shape", "backbone", "pad"),
    [
        ((8, 32, 1), "mlp", 1),
        ((28, 28, 1), "lenet", 3),
        ((28, 30, 1), "conv_net", 3),
        ((30, 28, 1), "conv_net", 3),
        ((4, 4, 1), "mlp", 1),
        ((32, 32, 3), "conv_net", 4),
    ],
)
def test_ones_own_images_get_a_network_that_fits(shape, backbone, pad):
    spec = own_spec("mine.npz", image_shape=shape, class_names=("a", "b"))
    assert (spec.backbone, spec.num_classes, spec.default_outliers) == (backbone, 2, "smooth")
    assert ("cifar10" in spec.ood_sets, "mnist" in spec.ood_sets) == (shape[2] == 3, shape[2] == 1)
    # Digits and letters are not mirrored.
    assert spec.augmentation == Augmentation(0.5, flip=shape[2] == 3, pad=pad, mode="reflect")


@pytest.mark.parametrize("name", ["mnist", "random_images_300k"])
def test_not_prepared(tmp_path, name):
    assert not is_prepared(name, data_dir=tmp_path)
    with pytest.raises(NotPreparedError, match=f"prepare_data --dataset={name}"):
        require(PUBLISHED[name], "test", data_dir=tmp_path)


def test_an_incomplete_folder_is_not_prepared(tmp_path):
    folder = tmp_path / "mnist" / "incomplete.ABCDEF_3.0.1"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text(json.dumps({"splits": [{"name": "test", "shardLengths": ["1"]}]}))
    assert prepared_splits(PUBLISHED["mnist"], data_dir=tmp_path) == {}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"splits": [{}]}', '{"splits": 3}'])
def test_a_damaged_description_is_not_prepared(tmp_path, content):
    folder = tmp_path / "mnist" / "3.0.1"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text(content)
    assert prepared_splits(PUBLISHED["mnist"], data_dir=tmp_path) == {}
