"""Images that do not fit into memory: decoded once into a file, and read from there whenever they are needed.

An array of such images is a `numpy.memmap`: the system reads the rows that are asked for, and drops them when memory is
short.  What is taken of it is another file, which goes when nobody uses it any more.
"""

import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from preload_jax.data.cache import incomplete, save
from preload_jax.errors import DataError, reason, require_plain_file

# Rows that are copied at once.
_ROWS = 1024
# The images on disk: as they were decoded, and of these each of the two halves of a split.
COPIES = 3


def _require_disk(folder: Path, size: int, *, what: object) -> None:
    """Raises a DataError unless a folder's disk has room for `COPIES` times `size` bytes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise DataError(
            f"{what}: {size / 1e9:,.1f} GB do not fit into memory, and {folder}: {reason(error)}"
        ) from error
    if COPIES * size > free:
        raise DataError(
            f"{what}: {size / 1e9:,.1f} GB do not fit into memory, and {folder} has {free / 1e9:,.1f} GB free of the"
            f" {COPIES * size / 1e9:,.1f} GB that they take on disk; make room, choose another data directory,"
            " or smaller images"
        )


def kept(
    path: Path,
    shape: tuple[int, ...],
    make: Callable[[np.ndarray], dict[str, np.ndarray]],
    *,
    names: Sequence[str],
    of_each: Sequence[str],
    what: object,
) -> dict[str, np.ndarray]:
    """{"images": uint8 on disk, and the other arrays}: those of `path` and `path` + ".npy", made where they are not.

    Args:
        path: of the other arrays, a .npz file; it is written last, so that it says that the images are whole.
        shape: of the images.
        make: fills the images, and returns the other arrays.
        names: of the other arrays.
        of_each: those of them that have one entry an image.
        what: what messages call the images.

    Raises:
        DataError: where the disk has no room for them.
    """
    beside = path.with_suffix(".npy")
    for each in (path, beside):
        require_plain_file(each)
    try:
        with np.load(path, allow_pickle=False) as file:
            others = dict(file)
        images = np.load(beside, mmap_mode="r", allow_pickle=False)
        whole = set(others) == set(names) and all(len(others[name]) == len(images) for name in of_each)
        if whole and (images.shape, images.dtype) == (shape, np.uint8):
            return {"images": images, **others}
    except Exception:  # Not there, or damaged: zipfile, zlib and NumPy raise all kinds.
        pass
    _require_disk(path.parent, math.prod(shape), what=what)
    with _writing(beside) as temporary:
        _reserve(temporary, shape)
        images = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
        others = make(images)
        images.flush()
        os.replace(temporary, beside)
        save(path, others)
    return {"images": np.load(beside, mmap_mode="r", allow_pickle=False), **others}


def taken(images: np.memmap, rows: np.ndarray) -> np.ndarray:
    """Some rows of images on disk, on disk: a view where they follow each other, else a file that nobody sees.

    Raises:
        DataError: where the disk has no room for them.
    """
    rows = np.arange(len(images))[rows]  # negative ones, and a mask, too
    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        return images[rows[0] : rows[0] + len(rows)]
    if not len(rows):
        return np.empty((0, *images.shape[1:]), images.dtype)
    shape = (len(rows), *images.shape[1:])
    with _writing(Path(str(images.filename))) as temporary:
        _reserve(temporary, shape)
        copy = np.memmap(temporary, images.dtype, "r+", shape=shape)
        for start in range(0, len(rows), _ROWS):
            copy[start : start + _ROWS] = images[rows[start : start + _ROWS]]
    # Its name is gone, and the file with the last array of it.
    return copy


def _reserve(path: Path, shape: tuple[int, ...]) -> None:
    """Room for the images: without it a full disk would end the process when it writes."""
    with path.open("r+b") as file:
        # A header of .npy is less.
        os.posix_fallocate(file.fileno(), 0, math.prod(shape) + 4096)


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    """`cache.incomplete`, with the disk's troubles as errors for people."""
    try:
        with incomplete(path) as temporary:
            yield temporary
    except OSError as error:
        raise DataError(
            f"{path.parent}: {reason(error)}; images that do not fit into memory are kept there: make room, or choose"
            " another data directory"
        ) from error
