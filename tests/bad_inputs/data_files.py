"""Folders and files of images that are missing, damaged or something else."""

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np

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


def unreadable_images(folder: Path) -> None:
    for name in ("cats", "dogs"):
        (folder / "photos" / name).mkdir(parents=True)
        (folder / "photos" / name / "1.png").write_bytes(b"no image")


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
        _OWN + "labels from -1 to 0; expected 0 to K - 1",
        did="A .npz with negative labels",
        prepare=npz(labels=_LABELS - 1),
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
    command("--outliers=folder:HERE/none", "HERE/none: no such folder; expected a folder of images"),
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
