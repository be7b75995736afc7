"""Published sets that TFDS has no builder for, or hundreds: kept as the NumPy files they are published as.

They are memory-mapped when read: the 300K random images are 0.9 GB, CIFAR-10-C 2.9 GB.
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from preload_jax.data.preparing.prepared import ARRAYS_FOLDER, require
from preload_jax.data.published_set import Layout, PublishedSet
from preload_jax.data.readers import array_files
from preload_jax.data.readers.array_files import open_npy
from preload_jax.data.readers.bounds import read_bytes, too_large
from preload_jax.data.readers.pickles import load_pickle
from preload_jax.data.readers.published import planar_to_images
from preload_jax.errors import DataError


def store(
    item: PublishedSet,
    layout: Layout,
    files: dict[str, list[Path]],
    *,
    data_dir: Path,
    scratch: Path,
    check_sizes: bool = True,
) -> dict[str, int]:
    """Checks a set's NumPy files and keeps them in the data directory, replacing those that are there.

    They are gathered in `scratch`, a folder on the same file system, and moved together. Files are hard-linked where
    the file system can, else copied.

    Returns:
      The number of images in each split.

    Raises:
      DataError: for a file that is damaged or not of the expected shape and type.
    """
    ((split, paths),) = files.items()
    expected = item.sizes[split] if check_sizes else None
    gathered = scratch / ARRAYS_FOLDER
    gathered.mkdir()
    if layout.reader == "imagenet_batches":
        size = _join_batches(paths, gathered / "images.npy", item, expected)
    else:
        size = _keep(paths, gathered, item, expected)
    (gathered / "splits.json").write_text(json.dumps({split: size}))
    target = data_dir / item.name / ARRAYS_FOLDER
    target.parent.mkdir(exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    gathered.rename(target)
    return {split: size}


def open_array(item: PublishedSet, split: str, *, data_dir: Path, name: str | None = None) -> np.ndarray:
    """One memory-mapped array of a prepared set: the file NAME.npy, or its only one."""
    folder = require(item, split, data_dir=data_dir)
    path = folder / f"{name}.npy" if name else next(iter(sorted(folder.glob("*.npy"))), folder / "images.npy")
    return open_npy(path)


def check_images(path: Path, array: np.ndarray, item: PublishedSet, expected_size: int | None) -> None:
    """Raises DataError unless `array` is uint8 [expected_size, *item.image_shape]."""
    size: object = "n" if expected_size is None else expected_size
    fits = array.ndim == 4 and array.shape[1:] == item.image_shape and len(array) and size in ("n", len(array))
    if array.dtype != np.uint8 or not fits:
        expected = ", ".join(map(str, (size, *item.image_shape)))
        raise DataError(f"{path}: {array.dtype} {list(array.shape)}; expected uint8 [{expected}]")


def _keep(paths: Sequence[Path], folder: Path, item: PublishedSet, expected_size: int | None) -> int:
    sizes = {}
    for path in paths:
        array = open_npy(path)
        if path.name == "labels.npy":
            if array.ndim != 1 or array.dtype.kind not in "iu":
                raise DataError(f"{path}: {array.dtype} {list(array.shape)}; expected integers [n]")
            if array.min(initial=0) < 0 or array.max(initial=0) >= item.num_classes:
                raise DataError(f"{path}: a label is outside the classes 0 to {item.num_classes - 1}")
        else:
            check_images(path, array, item, expected_size)
        sizes[path] = len(array)
    size = max(sizes.values())
    for path, found in sizes.items():
        if found != size:
            raise DataError(f"{path}: {found:,} entries, but other files of {item.name} have {size:,}")
    for path in paths:
        try:
            os.link(path, folder / _npy_name(path, item))
        except OSError:  # Another file system, or one without links.
            shutil.copyfile(path, folder / _npy_name(path, item))
    return size


def _npy_name(path: Path, item: PublishedSet) -> str:
    # Downloads carry mangled names; a set of one file has one possible name.
    names = [name for files in item.layouts[0].files.values() for name in files]
    return names[0] if len(names) == 1 else path.name


def _join_batches(paths: Sequence[Path], target: Path, item: PublishedSet, expected_size: int | None) -> int:
    """Writes the pixels of all batches into one .npy, a batch at a time (the whole set has 3.9 GB)."""
    size = 0
    with target.open("wb") as file:
        _write_header(file, (size, *item.image_shape))
        for path in paths:
            images = np.ascontiguousarray(planar_to_images(_batch_data(path, item)))
            file.write(images.data)
            size += len(images)
        file.seek(0)
        _write_header(file, (size, *item.image_shape))
    if expected_size is not None and size != expected_size:
        raise DataError(f"{item.name}: {size:,} images; expected {expected_size:,}")
    return size


def _write_header(file: IO[bytes], shape: tuple[int, ...]) -> None:
    """The header of a .npy file of bytes; NumPy pads it, so that its length is the same whatever the first size."""
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})


def _batch_data(path: Path, item: PublishedSet) -> np.ndarray:
    limit = item.file_limit
    data: object
    if path.suffix == ".npz":
        if array_files.declared(path, ["data"])["data"].nbytes > limit:
            raise too_large(path, limit)
        data = array_files.read_npz(path, ["data"])["data"]
    else:
        data = load_pickle(read_bytes(path, limit), path).get("data")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        found = f"{data.dtype} {list(data.shape)}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DataError(f"{path}: 'data' is {found}; expected uint8 [n, 3072]")
    return data
