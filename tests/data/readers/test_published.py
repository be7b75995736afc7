"""Readers of the publishers' files: what is in them comes out, and anything else is one DataError."""

import gzip
import pickle
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preload_jax.data.catalogue import PUBLISHED
from preload_jax.data.readers import published
from preload_jax.data.readers.published import RawSplit
from preload_jax.errors import DataError

MNIST, CIFAR10, CIFAR100, SVHN = (PUBLISHED[name] for name in ("mnist", "cifar10", "cifar100", "svhn"))


@pytest.mark.parametrize("zipped", [True, False])
def test_idx(make, tmp_path, zipped):
    array = make.random_images(3, (4, 5))
    path = make.write_idx(tmp_path / "x", array, zipped=zipped)
    np.testing.assert_array_equal(published.read_idx(path, limit=10**6), array)


def test_idx_header_is_the_published_one():
    # The first 16 bytes of MNIST's train-images-idx3-ubyte.
    header = bytes.fromhex("000008030000ea600000001c0000001c")
    assert struct.unpack(">BBBBIII", header) == (0, 0, 8, 3, 60_000, 28, 28)


BAD_IDX = {
    "empty": (b"", "not an idx file"),
    "wrong magic": (b"PK\x03\x04" + bytes(20), "not an idx file"),
    "floats": (struct.pack(">BBBBI", 0, 0, 0x0D, 1, 1) + bytes(4), "not an idx file"),
    "short header": (struct.pack(">BBBBI", 0, 0, 8, 3, 10), "shorter than its own header"),
    "too short": (struct.pack(">BBBBI", 0, 0, 8, 1, 10) + bytes(9), "17 bytes, but its header says"),
    "too long": (struct.pack(">BBBBI", 0, 0, 8, 1, 10) + bytes(11), "19 bytes, but its header says"),
    "absurd size": (struct.pack(">BBBBIII", 0, 0, 8, 3, *[2**32 - 1] * 3) + bytes(9), "but its header says"),
    "truncated gzip": (gzip.compress(bytes(1000))[:-12], "truncated gzip"),
    "damaged gzip": (b"\x1f\x8b\x08\x00" + bytes(range(50)), "truncated gzip"),
    "wrong checksum in gzip": (gzip.compress(bytes(100))[:-8] + bytes(8), "truncated gzip"),
}


@pytest.mark.parametrize("case", BAD_IDX)
def test_damaged_idx(tmp_path, case):
    content, message = BAD_IDX[case]
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        published.read_idx(path, limit=10**6)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_idx_pair_of_another_size(make, tmp_path):
    images = make.write_idx(tmp_path / "i", make.random_images(3, (32, 32)))
    labels = make.write_idx(tmp_path / "l", np.arange(3))
    with pytest.raises(DataError, match=r"images of shape \[3, 32, 32\]; expected \[n, 28, 28\]"):
        published.idx([images, labels], MNIST)
    with pytest.raises(DataError, match=r"images of shape \[3\]"):
        published.idx([labels, images], MNIST)


@pytest.mark.parametrize("num_classes", [10, 100])
@pytest.mark.parametrize("form", ["python", "binary"])
def test_cifar(make, tmp_path, form, num_classes):
    parts = getattr(make, f"cifar_{form}")(tmp_path, num_classes)
    names = [name for name in parts if "test" not in name]
    suffix = ".bin" if form == "binary" else ""
    reader = published.READERS[f"cifar_{form}"]
    split = reader([tmp_path / f"{name}{suffix}" for name in names], CIFAR10 if num_classes == 10 else CIFAR100)
    np.testing.assert_array_equal(split.images, np.concatenate([parts[name][0] for name in names]))
    np.testing.assert_array_equal(split.labels, np.concatenate([parts[name][1] for name in names]))
    if num_classes == 100:
        np.testing.assert_array_equal(split.extra["coarse_label"], parts["train"][2])


def test_cifar_binary_of_a_wrong_size(make, tmp_path):
    make.cifar_binary(tmp_path)
    path = tmp_path / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="multiple of 3073"):
        published.cifar_binary([path], CIFAR10)


BAD_BATCHES = {
    "no labels": ({"data": np.zeros((2, 3072), np.uint8)}, "has no 'labels'"),
    "no data": ({"labels": [1]}, "'data' is NoneType"),
    "floats": ({"data": np.zeros((2, 3072)), "labels": [1, 2]}, r"'data' is float64 \[2, 3072\]; expected uint8"),
    "wrong width": ({"data": np.zeros((2, 784), np.uint8), "labels": [1, 2]}, r"uint8 \[2, 784\]"),
    "labels are words": ({"data": np.zeros((2, 3072), np.uint8), "labels": ["a", "b"]}, "not a list of integers"),
    "ragged labels": ({"data": np.zeros((2, 3072), np.uint8), "labels": [[1], [2, 3]]}, "not a list of integers"),
    "not a dictionary": ([1, 2], "expected a dictionary"),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_damaged_cifar_pickle(tmp_path, case):
    content, message = BAD_BATCHES[case]
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match=message):
        published.cifar_python([path], CIFAR10)


def test_svhn(make, tmp_path):
    content = make.svhn(tmp_path)
    split = published.svhn([tmp_path / "train_32x32.mat"], SVHN)
    np.testing.assert_array_equal(split.images, content["train"][0])
    np.testing.assert_array_equal(split.labels, content["train"][1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "has no 'X' and 'y'"),
        ({"X": np.zeros((2, 32, 32, 3), np.uint8), "y": np.ones((2, 1))}, r"X is uint8 \[2, 32, 32, 3\]"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1), np.uint8)}, "X is float64"),
        ({"X": np.zeros((32, 32, 3, 1), np.uint8), "y": np.array([[0]], np.uint8)}, "integers from 1 to 10"),
        ({"X": np.zeros((32, 32, 3, 1), np.uint8), "y": np.array([[11]], np.uint8)}, "integers from 1 to 10"),
    ],
)
def test_damaged_svhn(tmp_path, content, message):
    from scipy.io import savemat

    # SciPy drops a last dimension of one, MATLAB's arrays have at least two.
    content = {key: np.concatenate([value, value], axis=-1) if value.shape[-1:] == (1,) and key == "X" else value
               for key, value in content.items()}  # fmt: skip
    savemat(tmp_path / "x.mat", content)
    with pytest.raises(DataError, match=message):
        published.svhn([tmp_path / "x.mat"], SVHN)


def test_truncated_svhn(make, tmp_path):
    make.svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:5_000])
    with pytest.raises(DataError, match="not a readable MATLAB file"):
        published.svhn([path], SVHN)


def raw(n_images=3, labels=(0, 1, 2)):
    return RawSplit(images=np.zeros((n_images, 28, 28, 1), np.uint8), labels=np.array(labels, np.int64))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (raw(4), "mnist test: 4 images but 3 labels"),
        (raw(0, ()), "no images"),
        (raw(labels=(0, 10, 2)), "label 10 is outside the classes 0 to 9"),
        (raw(labels=(0, -1, 2)), "label -1 is outside"),
        (raw(), "3 images; expected 10,000"),
    ],
)
def test_check(split, message):
    with pytest.raises(DataError, match=message):
        published.check(split, item=MNIST, name="test", expected_size=10_000)


FUZZED = {
    "idx": lambda paths: published.idx(paths * 2, MNIST),
    "cifar_python": lambda paths: published.cifar_python(paths, CIFAR10),
    "cifar_binary": lambda paths: published.cifar_binary(paths, CIFAR10),
    "svhn": lambda paths: published.svhn(paths, SVHN),
}


@pytest.fixture(scope="module")
def good_files(make, tmp_path_factory):
    """A sound file in each format, to be damaged."""
    folder = tmp_path_factory.mktemp("good")
    make.cifar_python(folder)
    make.cifar_binary(folder)
    make.svhn(folder, n=2)
    return {
        "idx": make.idx_bytes(make.random_images(2, (28, 28))),
        "cifar_python": (folder / "test_batch").read_bytes(),
        "cifar_binary": (folder / "test_batch.bin").read_bytes(),
        "svhn": (folder / "test_32x32.mat").read_bytes(),
    }


@pytest.mark.parametrize("form", FUZZED)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_only_data_errors_escape(make, good_files, tmp_path, form, data):
    content = bytearray(good_files[form])
    kind = data.draw(st.sampled_from(["noise", "flip", "cut", "gzipped cut"]))
    if kind == "noise":
        content = data.draw(st.binary(max_size=300))
    elif kind == "flip":
        # Headers are where damage hurts.
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.one_of(st.integers(0, min(400, len(content) - 1)), st.integers(0, len(content) - 1)))
            content[place] = data.draw(st.integers(0, 255))
    else:
        content = content[: data.draw(st.integers(0, len(content) - 1))]
        if kind == "gzipped cut":
            content = gzip.compress(bytes(content))
            content = content[: data.draw(st.integers(0, len(content)))]
    path = tmp_path / "file"
    path.write_bytes(bytes(content))
    assert "\n" not in make.error_of(lambda: FUZZED[form]([path]))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        np.array,
        lambda x: np.array(x, ">i2"),
        lambda x: np.array(x, "u1"),
        lambda x: [np.int64(i) for i in x],
    ],
)
def test_labels_of_cifar_of_any_kind_of_integer(tmp_path, protocol, kind):
    images, labels = np.arange(3 * 3072, dtype=np.uint8).reshape(3, 3072), [7, 0, 9]
    path = tmp_path / "test_batch"
    path.write_bytes(pickle.dumps({b"data": images, b"labels": kind(labels)}, protocol=protocol))
    read = published.cifar_python([path], CIFAR10)
    assert read.labels.tolist() == labels
    np.testing.assert_array_equal(read.images, images.reshape(3, 3, 32, 32).transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    "labels", [[1.0, 2.0], ["1", "2"], [True, False], [1, None], [[1], [2]], 3, [1, 2**80], [-1, 0]]
)
def test_labels_of_cifar_that_are_none(tmp_path, labels):
    path = tmp_path / "test_batch"
    path.write_bytes(pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": labels}))
    with pytest.raises(DataError, match="'labels' is not a list of integers"):
        published.cifar_python([path], CIFAR10)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_file_may_hold_what_the_published_one_holds(name):
    """The limits leave room for the largest file of each set, and are of its size."""
    item = PUBLISHED[name]
    largest = {
        "mnist": 47_040_016,
        "fashion_mnist": 47_040_016,
        "kmnist": 47_040_016,
        "emnist": 97_843_216,
        "cifar10": 44_425_418,  # a batch that Python 3 wrote in protocol 2
        "cifar100": 222_101_747,  # train, written so
        "svhn": 182_040_794,
        "lsun_classroom": 6_500_000,
        "random_images_300k": 921_600_128,
        "imagenet32": 590_000_000,
        "cifar10_c": 153_600_128,
    }[name]
    assert largest < item.file_limit < 2 * largest + 2**27


def test_a_full_batch_that_python_3_wrote_for_python_2(tmp_path):
    """Each byte from 128 on becomes two; a whole batch must still fit into what a batch may hold."""
    images = np.random.default_rng(0).integers(0, 256, (10_000, 3072), np.uint8)
    path = tmp_path / "data_batch_1"
    batch = {
        b"data": images,
        b"labels": [1] * 10_000,
        b"filenames": [f"a_photo_{i:06d}.png".encode() for i in range(10_000)],
    }
    path.write_bytes(pickle.dumps(batch, protocol=2))
    assert path.stat().st_size > 45_000_000
    assert published.cifar_python([path], CIFAR10).images.shape == (10_000, 32, 32, 3)
