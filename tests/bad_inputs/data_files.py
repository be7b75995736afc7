"""Folders and files of images that are missing, damaged or something else."""

import gzip
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests import published_files
from tests.bad_inputs import command

_IMAGES = np.random.default_rng(0).integers(0, 256, (20, 8, 8), np.uint8)
_LABELS = np.arange(20) % 2


def npz(**changed: object) -> Callable[[Path], None]:
    """HERE/own.npz with some of its arrays replaced, or left out (None)."""
    arrays = {
        name: value for name, value in {"images": _IMAGES, "labels": _LABELS, **changed}.items() if value is not None
    }
    return lambda folder: np.savez(folder / "own.npz", **arrays)


def truncated_npz(folder: Path) -> None:
    npz()(folder)
    path = folder / "own.npz"
    path.write_bytes(path.read_bytes()[:500])


def one_class(folder: Path) -> None:
    published_files.image_folder(folder / "photos", classes=("cats",))


def loose_image(folder: Path) -> None:
    published_files.image_folder(folder / "photos")
    (folder / "photos" / "cat.png").write_bytes((folder / "photos" / "a" / "00.png").read_bytes())


def no_images(folder: Path) -> None:
    (folder / "photos").mkdir()


def empty_class(folder: Path) -> None:
    published_files.image_folder(folder / "photos")
    (folder / "photos" / "cats").mkdir()


def unreadable_images(folder: Path) -> None:
    for name in ("cats", "dogs"):
        (folder / "photos" / name).mkdir(parents=True)
        (folder / "photos" / name / "1.png").write_bytes(b"no image")


def splits(*names: str) -> Callable[[Path], None]:
    """HERE/photos/NAME/CLASS/IMAGE."""

    def write(folder: Path) -> None:
        for name in names:
            published_files.image_folder(folder / "photos" / name)

    return write


def bare(folder: Path) -> None:
    published_files.image_folder(folder / "photos")


def loop(folder: Path) -> None:
    published_files.image_folder(folder / "photos")
    (folder / "photos" / "a" / "again").symlink_to(folder / "photos")


def twice(folder: Path) -> None:
    published_files.image_folder(folder / "photos", classes=("cats",))
    (folder / "photos" / "dogs").symlink_to("cats")


def wide_integers(folder: Path) -> None:
    for name in ("cats", "dogs"):
        (folder / "photos" / name).mkdir(parents=True)
        Image.fromarray(np.arange(64, dtype=np.int32).reshape(8, 8)).save(folder / "photos" / name / "1.tif")


def photo_of_a_wall(folder: Path) -> None:
    """A small file that says it has 177 million pixels."""
    header = struct.pack(">IIBBBBB", 13_300, 13_300, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    (folder / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + bytes(4))


def npy(array: np.ndarray, *, length: int | None = None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        np.save(folder / "ood.npy", array)
        path = folder / "ood.npy"
        path.write_bytes(path.read_bytes()[:length])

    return write


def mnist(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """MNIST's files with one of them changed."""

    def write(folder: Path) -> None:
        published_files.mnist(folder / "files")
        change(folder / "files" / "train-images-idx3-ubyte.gz")

    return write


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def not_idx(path: Path) -> None:
    path.write_bytes(gzip.compress(b"<html>not found</html>"))


def of_zeros(path: Path) -> None:
    path.write_bytes(gzip.compress(bytes(2**26)))


def cifar_with_nested_keys(folder: Path) -> None:
    published_files.cifar_python(folder / "files")
    key: tuple[object, ...] = ()
    for _ in range(3):
        key = (key, key)
    (folder / "files" / "data_batch_1").write_bytes(pickle.dumps({key: 1}, protocol=2))


def mat_7_3(folder: Path) -> None:
    published_files.svhn(folder / "files")
    (folder / "files" / "train_32x32.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n")


def cifar_with_code(folder: Path) -> None:
    published_files.cifar_python(folder / "files")
    (folder / "files" / "data_batch_1").write_bytes(pickle.dumps({b"data": print}, protocol=2))


def truncated_mat(folder: Path) -> None:
    published_files.svhn(folder / "files")
    cut(folder / "files" / "train_32x32.mat")


_NPZ, _FOLDER, _PHOTOS = "--dataset=HERE/own.npz", "--dataset=folder:HERE/photos", "HERE/photos"
_OWN, _NPY = "HERE/own.npz: ", "--outliers=HERE/ood.npy"
_MNIST = "prepare_data --dataset=mnist --source=HERE/files"

ROWS = [
    command("--dataset=folder:HERE/none", "HERE/none: no such folder; expected a folder of images"),
    command(
        _FOLDER, f"{_PHOTOS}: no images; expected files that end in …", did="A folder without images", prepare=no_images
    ),
    command(
        _FOLDER,
        f"{_PHOTOS}: only one class, 'cats'; expected at least two sub-folders, one a class",
        did="A folder of one class",
        prepare=one_class,
    ),
    command(
        _FOLDER,
        f"{_PHOTOS}/cat.png: not in a class sub-folder; expected {_PHOTOS}/CLASS/IMAGE",
        did="An image beside the class folders",
        prepare=loose_image,
    ),
    command(
        _FOLDER,
        f"{_PHOTOS}: none of 2 images is readable",
        did="A folder whose images are all damaged",
        prepare=unreadable_images,
    ),
    command(
        _FOLDER,
        f"{_PHOTOS}/cats: a folder without images; remove it, or add files that end in …",
        did="A class folder without images",
        prepare=empty_class,
    ),
    command(
        _FOLDER,
        f"{_PHOTOS}: are 'images_test' and 'images_train' splits? Both have the same sub-folders (a, b); if they "
        "are splits, name them train, validation and test; if they are classes, give their sub-folders other names, or "
        "move the images up",
        did="Folders `images_train` and `images_test` with the same sub-folders",
        prepare=splits("images_train", "images_test"),
    ),
    command(
        "--dataset=HERE/photos",
        "unknown dataset 'HERE/photos' (did you mean folder:HERE/photos?); expected one of …",
        did="A folder without `folder:`",
        prepare=bare,
    ),
    command(
        _FOLDER,
        f"{_PHOTOS}: has the splits test, val, but none to train on; expected {_PHOTOS}/train",
        did="Folders `val` and `test` without `train`",
        prepare=splits("val", "test"),
    ),
    command(
        _FOLDER,
        f"{_PHOTOS}: 'Train' and 'training' are both the train split; expected one",
        did="Folders `Train`, `training` and `test`",
        prepare=splits("Train", "training", "test"),
    ),
    command(
        _FOLDER,
        f"{_PHOTOS}: 'bus' stands beside splits (train, val); expected class folders alone, or splits alone",
        did="A class folder beside `train` and `val`",
        prepare=splits("train", "val", "bus"),
    ),
    command(
        _FOLDER,
        f"{_PHOTOS}/a/again: a link to {_PHOTOS}, the folder that it is in, so that it never ends; remove it",
        did="A link to a folder that it is in",
        prepare=loop,
    ),
    command(
        _FOLDER,
        f"{_PHOTOS}/dogs: the same folder as {_PHOTOS}/cats; remove one of the links",
        did="Two classes that are one folder",
        prepare=twice,
    ),
    command(
        _FOLDER,
        f"none of 2 images is readable; the first: {_PHOTOS}/cats/1.tif: integers with a sign or of 32 bits (mode I), "
        "whose range nothing says; convert it to 8 or 16 bits",
        did="TIFF files of 32-bit integers",
        prepare=wide_integers,
    ),
    command(
        "predict --run=HERE/standard HERE/x.png",
        "HERE/x.png: 13,300×13,300 pixels; at most 67,108,864 in all",
        did="An image file that says it is enormous",
        prepare=photo_of_a_wall,
    ),
    command(_FOLDER + " --image-size=0", "--image-size must be at least 1, got 0", prepare=bare),
    command(
        _FOLDER + " --backbone=lenet --image-size=30",
        "LeNet needs images whose height and width are divisible by 4, got 30×30: give another --image-size or"
        " --backbone",
        prepare=bare,
    ),
    command(
        _NPZ + " --image-size=16",
        "the images of HERE/own.npz have one size; leave out --image-size, which is for folder:PATH",
        prepare=npz(),
    ),
    command(
        "--dataset=HERE/none.npz", "HERE/none.npz: no such file; expected a .npz with arrays 'images' and 'labels'"
    ),
    command(_NPZ, _OWN + "not a readable .npz file (…)", did="A truncated .npz", prepare=truncated_npz),
    command(
        _NPZ,
        _OWN + "not a readable .npz file (…)",
        did="A .npz of pickled objects, which are not unpickled",
        prepare=npz(images=np.array([None])),
    ),
    command(
        _NPZ,
        _OWN + "has ['images']; expected 'images' and 'labels'",
        did="A .npz without labels",
        prepare=npz(labels=None),
    ),
    command(
        _NPZ,
        _OWN + "'images' is float32 [20, 8, 8]; expected uint8 [n, h, w] or [n, h, w, 1 or 3]",
        did="A .npz of float images",
        prepare=npz(images=_IMAGES.astype(np.float32)),
    ),
    command(
        _NPZ,
        _OWN + "'images' is uint8 [20, 64]; expected uint8 [n, h, w] or [n, h, w, 1 or 3]",
        did="A .npz of flattened images",
        prepare=npz(images=_IMAGES.reshape(20, 64)),
    ),
    command(
        _NPZ,
        _OWN + "'images' is uint8 [20, 8, 4, 2]; expected uint8 [n, h, w] or [n, h, w, 1 or 3]",
        did="A .npz of images with two channels",
        prepare=npz(images=_IMAGES.reshape(20, 8, 4, 2)),
    ),
    command(
        _NPZ,
        _OWN + "'images' and 'x_train' are both the train images; expected one: leave the other out, or give it another"
        " name",
        did="A .npz with `images` and `x_train`",
        prepare=npz(x_train=_IMAGES),
    ),
    command(
        _NPZ,
        _OWN + "class 2 of 'val_labels' has no images in 'images'; leave its images out, or say with an array "
        "'class_names' which classes there are",
        did="A .npz with a class that only its validation images have",
        prepare=npz(val_images=_IMAGES, val_labels=_LABELS + 1),
    ),
    command(
        _NPZ,
        _OWN + "labels from -1 to 0; expected 0 to K - 1",
        did="A .npz with negative labels",
        prepare=npz(labels=_LABELS - 1),
    ),
    command(
        _NPZ,
        _OWN + "labels from 1 to 2, but no image has label 0; expected 0 to K - 1: number the 2 classes 0 to 1, or say "
        "with an array 'class_names' which there are",
        did="A .npz with labels from 1",
        prepare=npz(labels=_LABELS + 1),
    ),
    command(
        _NPZ,
        _OWN + "'labels' is int64 []; expected integers [n]",
        did="A .npz with one number for labels",
        prepare=npz(labels=np.array(3)),
    ),
    command(
        _NPZ,
        _OWN + "'labels' is float64 [20]; expected integers [n]",
        did="A .npz with labels that are no integers",
        prepare=npz(labels=_LABELS / 2),
    ),
    command(
        _NPZ,
        _OWN + "20 images and 19 labels; expected as many of each, at least 10",
        did="A .npz with fewer labels than images",
        prepare=npz(labels=_LABELS[:19]),
    ),
    command(
        _NPZ,
        _OWN + "only one class, 0; expected at least two",
        did="A .npz of one class",
        prepare=npz(labels=0 * _LABELS),
    ),
    command(
        _NPY, "HERE/ood.npy: not a readable .npy file (…)", did="Truncated outliers", prepare=npy(_IMAGES, length=100)
    ),
    command(
        _NPY,
        "HERE/ood.npy: float64 [20, 8, 8]; expected uint8 [n, h, w, 1 or 3]",
        did="Outliers of another type and shape",
        prepare=npy(_IMAGES / 255),
    ),
    command("--outliers=folder:HERE/none", "--outliers folder:HERE/none: no such folder; expected a folder of images"),
    command(
        "prepare_data --dataset=mnist --source=HERE/none",
        "HERE/none: no such folder; expected the folder with the files of mnist",
    ),
    command(
        "prepare_data --dataset=mnist --source=HERE",
        "HERE: has no files of mnist; expected train-images-idx3-ubyte, train-labels-idx1-ubyte,"
        " t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte (each may end in .gz)",
    ),
    command(
        _MNIST,
        "HERE/files: train-images-idx3-ubyte of mnist is missing",
        did="One of MNIST's files missing",
        prepare=mnist(Path.unlink),
    ),
    command(_MNIST, "HERE/files/train-images-idx3-ubyte.gz: …", did="A truncated idx file", prepare=mnist(cut)),
    command(
        _MNIST,
        "HERE/files/train-images-idx3-ubyte.gz: …",
        did="A web page instead of an idx file",
        prepare=mnist(not_idx),
    ),
    command(
        _MNIST,
        "HERE/files/train-images-idx3-ubyte.gz: holds more than 51,928,576 bytes, which is more than the published "
        "file has",
        did="A small idx file that unpacks to a large one",
        prepare=mnist(of_zeros),
    ),
    command(
        "prepare_data --dataset=cifar10 --source=HERE/files",
        "HERE/files/data_batch_1: not a readable pickle of arrays (UnpicklingError: it has a tuple for a key)",
        did="A pickle with nested tuples for keys, which would take for ever to hash",
        prepare=cifar_with_nested_keys,
    ),
    command(
        "prepare_data --dataset=svhn --source=HERE/files",
        "HERE/files/train_32x32.mat: not a readable MATLAB file (version 7.3, which is HDF5); take the published "
        "file, or save it from MATLAB with -v7",
        did="A .mat of version 7.3",
        prepare=mat_7_3,
    ),
    command(
        "prepare_data --dataset=cifar10 --source=HERE/files",
        "HERE/files/data_batch_1: not a readable pickle of arrays (…)",
        did="A pickle with code in it, which is not run",
        prepare=cifar_with_code,
    ),
    command(
        "prepare_data --dataset=svhn --source=HERE/files",
        "HERE/files/train_32x32.mat: not a readable MATLAB file (…); copy or download it again",
        did="A truncated .mat",
        prepare=truncated_mat,
    ),
]
