"""Sets that are kept as the NumPy files they are published as."""

import pickle
import zipfile

import numpy as np
import pytest

from preload_jax.data.catalogue import PUBLISHED
from preload_jax.data.preparing.prepare import prepare
from preload_jax.data.preparing.prepared import prepared_splits
from preload_jax.data.readers import array_sets
from preload_jax.errors import DataError, NotPreparedError

RANDOM_IMAGES, IMAGENET32 = PUBLISHED["random_images_300k"], PUBLISHED["imagenet32"]


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def test_random_images_are_memory_mapped(make, source, data_dir):
    images = make.random_images(5, (32, 32, 3))
    np.save(source / "300K_random_images.npy", images)
    assert prepare("random_images_300k", data_dir=data_dir, source=source, check_sizes=False) == {"train": 5}
    read = array_sets.open_array(RANDOM_IMAGES, "train", data_dir=data_dir)
    assert isinstance(read, np.memmap)
    np.testing.assert_array_equal(read, images)


BAD_ARRAYS = {
    "floats": (np.zeros((5, 32, 32, 3), np.float32), r"float32 \[5, 32, 32, 3\]; expected uint8 \[300000, 32, 32, 3\]"),
    "shape": (np.zeros((5, 3, 32, 32), np.uint8), r"uint8 \[5, 3, 32, 32\]; expected"),
    "size": (np.zeros((5, 32, 32, 3), np.uint8), r"uint8 \[5, 32, 32, 3\]; expected uint8 \[300000,"),
    "objects": (np.array([None, 1]), "not a readable .npy file"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_wrong_array(source, data_dir, case):
    array, message = BAD_ARRAYS[case]
    path = source / "300K_random_images.npy"
    np.save(path, array, allow_pickle=True)
    with pytest.raises(DataError, match=message) as error:
        prepare("random_images_300k", data_dir=data_dir, source=source)
    assert str(path) in str(error.value)
    assert list(data_dir.iterdir()) == []


@pytest.mark.parametrize("length", [0, 50, 1_000])
def test_truncated_array(make, source, data_dir, length):
    path = source / "300K_random_images.npy"
    np.save(path, make.random_images(5, (32, 32, 3)))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=r"not a readable .npy file"):
        prepare("random_images_300k", data_dir=data_dir, source=source, check_sizes=False)


def planar(images):
    return images.transpose(0, 3, 1, 2).reshape(len(images), 3072)


@pytest.mark.parametrize("form", ["npz", "zip", "pickle"])
def test_imagenet32_batches_are_joined(make, source, data_dir, form):
    batches = [make.random_images(3 + i, (32, 32, 3), i) for i in range(10)]
    folder = source if form != "zip" else source / "loose"
    folder.mkdir(exist_ok=True)
    for i, images in enumerate(batches, 1):
        content = {"data": planar(images), "labels": np.arange(len(images))}
        if form == "pickle":
            (folder / f"train_data_batch_{i}").write_bytes(pickle.dumps(content))
        else:
            np.savez(folder / f"train_data_batch_{i}.npz", **content)
    if form == "zip":
        with zipfile.ZipFile(source / "Imagenet32_train_npz.zip", "w") as archive:
            for path in folder.iterdir():
                archive.write(path, path.name)
    splits = prepare("imagenet32", data_dir=data_dir, source=source, check_sizes=False)
    assert splits == {"train": sum(map(len, batches))} == prepared_splits(IMAGENET32, data_dir=data_dir)
    read = array_sets.open_array(IMAGENET32, "train", data_dir=data_dir)
    np.testing.assert_array_equal(read, np.concatenate(batches))


def test_imagenet32_with_a_damaged_batch(make, source, data_dir):
    for i in range(1, 11):
        np.savez(source / f"train_data_batch_{i}.npz", data=planar(make.random_images(2, (32, 32, 3))))
    (source / "train_data_batch_7.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"train_data_batch_7.npz"):
        prepare("imagenet32", data_dir=data_dir, source=source, check_sizes=False)
    np.savez(source / "train_data_batch_7.npz", data=np.zeros((2, 10), np.uint8))
    with pytest.raises(DataError, match=r"'data' is uint8 \[2, 10\]; expected uint8 \[n, 3072\]"):
        prepare("imagenet32", data_dir=data_dir, source=source, check_sizes=False)
    assert list(data_dir.iterdir()) == []


def test_cifar10_c_files_must_fit_together(make, source, data_dir):
    make.cifar10_c(source / "CIFAR-10-C")
    np.save(source / "CIFAR-10-C" / "fog.npy", make.random_images(9, (32, 32, 3)))
    with pytest.raises(DataError, match=r"fog.npy: 9 entries, but other files of cifar10_c have 10"):
        prepare("cifar10_c", data_dir=data_dir, source=source, check_sizes=False)
    (source / "CIFAR-10-C" / "fog.npy").unlink()
    with pytest.raises(DataError, match=r"fog.npy of cifar10_c is missing"):
        prepare("cifar10_c", data_dir=data_dir, source=source, check_sizes=False)


@pytest.mark.parametrize(
    ("labels", "message"), [(np.full(10, 10), "outside the classes 0 to 9"), (np.zeros((10, 1)), "expected integers")]
)
def test_cifar10_c_labels(make, source, data_dir, labels, message):
    make.cifar10_c(source)
    np.save(source / "labels.npy", labels)
    with pytest.raises(DataError, match=message):
        prepare("cifar10_c", data_dir=data_dir, source=source, check_sizes=False)


def test_not_prepared(data_dir):
    with pytest.raises(NotPreparedError):
        array_sets.open_array(RANDOM_IMAGES, "train", data_dir=data_dir)
