"""The published data sets: what they are, in which files they come, and from where.

Only names and numbers, so that listing the sets is fast. URLs, sizes and checksums are TFDS's own (a test compares
them with the installed TFDS); TFDS has none for the 300K random images.
"""

from preload_jax.data.published_set import Layout, PublishedSet, RemoteFile


def _idx_layouts(prefix: str, test: str, archives: tuple[str, ...] = ()) -> tuple[Layout, ...]:
    """The four idx files, with the publisher's names and with the dotted ones that some mirrors use."""

    def files(separator: str) -> dict[str, tuple[str, ...]]:
        stems = {"train": f"{prefix}train", "test": f"{prefix}{test}"}
        return {
            split: (f"{stem}-images{separator}idx3-ubyte", f"{stem}-labels{separator}idx1-ubyte")
            for split, stem in stems.items()
        }

    common = not prefix
    return Layout("idx", files("-"), archives, common), Layout("idx", files("."), (), common)


def _mnist_like(
    name: str,
    title: str,
    *,
    purpose: str,
    base_url: str,
    checksums: tuple[tuple[int, str], ...],
    folders: tuple[str, ...],
    fingerprint: str | None = None,
) -> PublishedSet:
    """A set in MNIST's form; `checksums` are (size, sha256) of train images and labels, then test images and labels."""
    layouts = _idx_layouts("", "t10k")
    names = [file for group in layouts[0].files.values() for file in group]
    return PublishedSet(
        name=name,
        title=title,
        purpose=purpose,
        image_shape=(28, 28, 1),
        num_classes=10,
        sizes={"train": 60_000, "test": 10_000},
        layouts=layouts,
        remote=tuple(RemoteFile(f"{base_url}{file}.gz", *check) for file, check in zip(names, checksums, strict=True)),
        tfds_name=name,
        folders=folders,
        fingerprint=fingerprint,
    )


def _cifar(name: str, title: str, *, num_classes: int, dashed: str, sha256: str, size: int) -> PublishedSet:
    ten = num_classes == 10
    train = tuple(f"data_batch_{i}" for i in range(1, 6)) if ten else ("train",)
    test = ("test_batch",) if ten else ("test",)
    python = Layout("cifar_python", {"train": train, "test": test}, (f"{dashed}-python.tar.gz",), common_names=not ten)
    binary = Layout(
        "cifar_binary",
        {"train": tuple(f"{file}.bin" for file in train), "test": tuple(f"{file}.bin" for file in test)},
        (f"{dashed}-binary.tar.gz",),
        common_names=not ten,
    )
    parts = "batches-py", "batches-bin"
    return PublishedSet(
        name=name,
        title=title,
        purpose="in-domain, OOD test",
        image_shape=(32, 32, 3),
        num_classes=num_classes,
        sizes={"train": 50_000, "test": 10_000},
        layouts=(binary, python),
        remote=(RemoteFile(f"https://www.cs.toronto.edu/~kriz/{dashed}-binary.tar.gz", size, sha256),),
        tfds_name=name,
        folders=(*(f"{dashed}-{part}" for part in parts), f"{dashed}-python", f"{dashed}-binary", name),
    )


CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
    "speckle_noise",
    "gaussian_blur",
    "spatter",
    "saturate",
)

_MNIST = _mnist_like(
    "mnist",
    "MNIST",
    purpose="in-domain, OOD test",
    base_url="https://storage.googleapis.com/cvdf-datasets/mnist/",
    checksums=(
        (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    folders=("mnist", "MNIST/raw", "MNIST"),
    fingerprint="ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
)
_FASHION_MNIST = _mnist_like(
    "fashion_mnist",
    "F-MNIST",
    purpose="in-domain, OOD test",
    base_url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    checksums=(
        (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    folders=("fashion_mnist", "fashion-mnist", "FashionMNIST/raw", "FashionMNIST"),
    fingerprint="3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
)
_KMNIST = _mnist_like(
    "kmnist",
    "K-MNIST",
    purpose="OOD test",
    base_url="http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
    checksums=(
        (18_165_135, "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4"),
        (29_497, "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17"),
        (3_041_136, "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5"),
        (5_120, "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c"),
    ),
    folders=("kmnist", "KMNIST/raw", "KMNIST"),
)
# TFDS 4.9 cuts emnist/letters at 88,800 and 14,800 images; the published files have 124,800 and 20,800.
_EMNIST = PublishedSet(
    name="emnist",
    title="E-MNIST",
    purpose="OOD test",
    image_shape=(28, 28, 1),
    num_classes=27,  # Letters are 1 to 26; there is no label 0.
    sizes={"train": 124_800, "test": 20_800},
    layouts=_idx_layouts("emnist-letters-", "test", ("gzip.zip", "emnist-gzip.zip")),
    remote=(
        RemoteFile(
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
            561_753_746,
            "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
        ),
    ),
    tfds_name="emnist/letters",
    folders=("emnist", "EMNIST/raw", "EMNIST", "gzip"),
    transposed=True,
)
_SVHN = PublishedSet(
    name="svhn",
    title="SVHN",
    purpose="in-domain, OOD test",
    image_shape=(32, 32, 3),
    num_classes=10,
    sizes={"train": 73_257, "test": 26_032},
    layouts=(Layout("svhn", {"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)}),),
    remote=(
        RemoteFile(
            "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
            182_040_794,
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        RemoteFile(
            "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            64_275_384,
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
    tfds_name="svhn_cropped",
    folders=("svhn", "SVHN", "svhn_cropped"),
)
_LSUN = PublishedSet(
    name="lsun_classroom",
    title="LSUN-CR",
    purpose="OOD test",
    image_shape=(32, 32, 3),
    num_classes=1,
    sizes={"test": 300},
    layouts=(
        Layout("lsun", {"test": ("data.mdb",)}, ("classroom_val_lmdb.zip",), common_names=True),
        Layout("lsun", {"test": ("*",)}, common_names=True),  # A folder of images.
    ),
    remote=(
        RemoteFile(
            "http://dl.yf.io/lsun/scenes/classroom_val_lmdb.zip",
            5_880_261,
            "5e0e9a375d94091dfe1fa3be87d4a92f41c03f1c0b8e376acc7e05651de512d7",
        ),
    ),
    tfds_name="lsun/classroom",
    folders=("classroom_val_lmdb", "lsun_classroom", "classroom_val", "classroom"),
    tfds_splits={"test": "validation"},
)
_CIFAR10_C = PublishedSet(
    name="cifar10_c",
    title="CIFAR-10-C",
    purpose="shift",
    image_shape=(32, 32, 3),
    num_classes=10,
    sizes={"test": 50_000},  # 10,000 a severity, in each of the 19 files.
    layouts=(
        Layout("cifar10_c", {"test": ("labels.npy", *(f"{name}.npy" for name in CORRUPTIONS))}, ("CIFAR-10-C.tar",)),
    ),
    remote=(
        RemoteFile(
            "https://zenodo.org/record/2535967/files/CIFAR-10-C.tar",
            2_918_471_680,
            "c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
        ),
    ),
    tfds_name=None,
    folders=("CIFAR-10-C", "cifar10_c"),
)
_RANDOM_IMAGES = PublishedSet(
    name="random_images_300k",
    title="300K random images",
    purpose="auxiliary",
    image_shape=(32, 32, 3),
    num_classes=1,
    sizes={"train": 300_000},
    layouts=(Layout("images_npy", {"train": ("300K_random_images.npy",)}),),
    remote=(RemoteFile("https://people.eecs.berkeley.edu/~hendrycks/300K_random_images.npy", 921_600_128, None),),
    tfds_name=None,
    folders=("random_images_300k",),
)
_IMAGENET_BATCHES = tuple(f"train_data_batch_{i}" for i in range(1, 11))
_IMAGENET32 = PublishedSet(
    name="imagenet32",
    title="ImageNet 32x32",
    purpose="auxiliary",
    image_shape=(32, 32, 3),
    num_classes=1,
    sizes={"train": 1_281_167},
    layouts=(
        Layout(
            "imagenet_batches",
            {"train": tuple(f"{name}.npz" for name in _IMAGENET_BATCHES)},
            ("Imagenet32_train_npz.zip",),
        ),
        Layout("imagenet_batches", {"train": _IMAGENET_BATCHES}, ("Imagenet32_train.zip",)),
    ),
    remote=(
        RemoteFile(
            "http://www.image-net.org/data/downsample//Imagenet32_train_npz.zip",
            3_580_435_279,
            "94226337ecc1b0309d9fcd0167127aaadc931587035fbcb53925235edbaec4fc",
        ),
    ),
    tfds_name=None,
    folders=("Imagenet32_train_npz", "Imagenet32_train", "imagenet32"),
)

PUBLISHED: dict[str, PublishedSet] = {
    item.name: item
    for item in (
        _MNIST,
        _FASHION_MNIST,
        _SVHN,
        _cifar(
            "cifar10",
            "CIFAR-10",
            num_classes=10,
            dashed="cifar-10",
            size=170_052_171,
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
        _cifar(
            "cifar100",
            "CIFAR-100",
            num_classes=100,
            dashed="cifar-100",
            size=168_513_733,
            sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
        _EMNIST,
        _KMNIST,
        _LSUN,
        _RANDOM_IMAGES,
        _IMAGENET32,
        _CIFAR10_C,
    )
}

# OOD test sets that are made of another set's test images.
DERIVED = {"cifar_gr": "cifar10", "fmnist_3d": "fashion_mnist"}
