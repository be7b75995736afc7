"""Readers of the files that publishers distribute, one function a format. A damaged file is a `DataError` naming it.

Each takes a set's description and the files of one split in the order of its `Layout`, and returns a `RawSplit`.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from preload_jax.data.published_set import PublishedSet
from preload_jax.data.readers import matlab
from preload_jax.data.readers.bounds import read_bytes
from preload_jax.data.readers.pickles import load_pickle
from preload_jax.errors import DataError

_CIFAR_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class RawSplit:
    """One split as published: images uint8 [n, h, w, c] (or n images of any size), labels int64 [n].

    `extra` holds further columns of length n that TFDS's description of the set has.
    """

    images: Sequence[np.ndarray] | np.ndarray
    labels: np.ndarray
    extra: dict[str, np.ndarray] = field(default_factory=dict)


def read_idx(path: Path, *, limit: int) -> np.ndarray:
    """An array of unsigned bytes in the idx format of MNIST.

    The header is two zero bytes, the type (8 = unsigned byte), the number of dimensions, and each dimension as a
    big-endian 32-bit integer; then the values, last dimension fastest.

    Args:
      path: the file, gzipped or not.
      limit: bytes that it may hold, unpacked.

    Source: the description at the end of yann.lecun.com/exdb/mnist.
    """
    content = read_bytes(path, limit)
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataError(f"{path}: not an idx file of bytes: starts with {content[:4].hex() or 'nothing'}, not 000008")
    header = 4 + 4 * content[3]
    if len(content) < header:
        raise DataError(f"{path}: truncated: {len(content)} bytes, shorter than its own header of {header}")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=content[3], offset=4))
    expected = header + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        raise DataError(f"{path}: {len(content)} bytes, but its header says {list(shape)}, which is {expected} bytes")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def idx(paths: Sequence[Path], item: PublishedSet) -> RawSplit:
    """An idx pair: images [n, h, w] and labels [n]."""
    images, labels = (read_idx(path, limit=item.file_limit) for path in paths)
    height, width, _ = item.image_shape
    if images.ndim != 3 or images.shape[1:] != (height, width):
        raise DataError(f"{paths[0]}: images of shape {list(images.shape)}; expected [n, {height}, {width}]")
    if labels.ndim != 1:
        raise DataError(f"{paths[1]}: labels of shape {list(labels.shape)}; expected [n]")
    return RawSplit(images=images[..., None], labels=labels.astype(np.int64))


def planar_to_images(data: np.ndarray) -> np.ndarray:
    """Rows of 3,072 bytes, red plane first, as images [n, 32, 32, 3]."""
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def cifar_binary(paths: Sequence[Path], item: PublishedSet) -> RawSplit:
    """CIFAR's binary version: a record is the label (CIFAR-100: coarse label, label) and 3,072 bytes of pixels."""
    num_labels = 2 if item.num_classes == 100 else 1
    record = num_labels + _CIFAR_PIXELS
    parts = []
    for path in paths:
        content = read_bytes(path, item.file_limit)
        if len(content) % record or not content:
            raise DataError(f"{path}: {len(content)} bytes; expected a multiple of {record}, one record an image")
        parts.append(np.frombuffer(content, np.uint8).reshape(-1, record))
    records = np.concatenate(parts)
    extra = {"coarse_label": records[:, 0].astype(np.int64)} if num_labels == 2 else {}
    labels = records[:, num_labels - 1].astype(np.int64)
    return RawSplit(images=planar_to_images(records[:, num_labels:]), labels=labels, extra=extra)


def cifar_python(paths: Sequence[Path], item: PublishedSet) -> RawSplit:
    """CIFAR's Python version: pickled dictionaries with `data` [n, 3072] and a list of labels."""
    fine = item.num_classes == 100
    images, labels, coarse = [], [], []
    for path in paths:
        batch = load_pickle(read_bytes(path, item.file_limit), path)
        images.append(_batch_pixels(batch, path))
        labels.append(_batch_labels(batch, "fine_labels" if fine else "labels", path))
        if fine:
            coarse.append(_batch_labels(batch, "coarse_labels", path))
    extra = {"coarse_label": np.concatenate(coarse)} if fine else {}
    return RawSplit(images=np.concatenate(images), labels=np.concatenate(labels), extra=extra)


def _batch_pixels(batch: dict[str, object], path: Path) -> np.ndarray:
    data = batch.get("data")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _CIFAR_PIXELS:
        found = f"{data.dtype} {list(data.shape)}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DataError(f"{path}: 'data' is {found}; expected uint8 [n, {_CIFAR_PIXELS}]")
    return planar_to_images(data)


def _batch_labels(batch: dict[str, object], key: str, path: Path) -> np.ndarray:
    if key not in batch:
        raise DataError(f"{path}: has no {key!r}; is it a file of another set?")
    values = batch[key]
    # One by one: NumPy would take a list of lists that share their parts for an array of any size.
    if isinstance(values, list | tuple) and all(type(value) is int and 0 <= value < 2**31 for value in values):
        return np.array(values, np.int64)
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iu":
        in_range = values.min(initial=0) >= 0 and values.max(initial=0) < 2**31
        if in_range:
            return values.astype(np.int64)
    raise DataError(f"{path}: {key!r} is not a list of integers")


def svhn(paths: Sequence[Path], item: PublishedSet) -> RawSplit:
    """SVHN's MATLAB file: X [32, 32, 3, n] and y [n, 1], where 10 stands for the digit 0."""
    (path,) = paths
    content = matlab.read(path, limit=item.file_limit)
    if "X" not in content or "y" not in content:
        raise DataError(f"{path}: has no 'X' and 'y'; expected the cropped digits (format 2)")
    images, labels = content["X"], content["y"].reshape(-1)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != item.image_shape:
        raise DataError(f"{path}: X is {images.dtype} {list(images.shape)}; expected uint8 [32, 32, 3, n]")
    if labels.dtype.kind not in "iu" or labels.min(initial=1) < 1 or labels.max(initial=1) > 10:
        raise DataError(f"{path}: labels must be integers from 1 to 10 (10 is the digit 0)")
    return RawSplit(images=np.ascontiguousarray(np.moveaxis(images, -1, 0)), labels=labels.astype(np.int64) % 10)


def lsun(paths: Sequence[Path], item: PublishedSet) -> RawSplit:
    """LSUN's lmdb (pass its data.mdb), whose values are encoded images, or any number of image files."""
    from preload_jax.data.readers import image_files, image_folder, lmdb_images

    if [path.suffix for path in paths] == [".mdb"]:
        images = lmdb_images.read(paths[0], limit=item.file_limit)
    else:
        pixels = [math.prod(image_files.describe(path)[0]) for path in paths]
        if 3 * sum(pixels) > lmdb_images.MAX_DECODED:
            raise DataError(f"{paths[0].parent}: {sum(pixels):,} pixels in {len(paths):,} images; expected small ones")
        images, _ = image_folder.read_images(paths, lambda _, image: np.asarray(image.convert("RGB")), strict=True)
    return RawSplit(images=images, labels=np.zeros(len(images), np.int64))


READERS: dict[str, Callable[[Sequence[Path], PublishedSet], RawSplit]] = {
    "idx": idx,
    "cifar_binary": cifar_binary,
    "cifar_python": cifar_python,
    "svhn": svhn,
    "lsun": lsun,
}


def check(
    split: RawSplit,
    *,
    item: PublishedSet,
    name: str,
    expected_size: int | None,
    others: Iterable[PublishedSet] = (),
) -> None:
    """Raises DataError unless the parts of a split fit together and to what is known of the set.

    MNIST and its successors give their files the same names, so the files of one of `others` are an easy mistake.
    """
    where = f"{item.name} {name}"
    if len(split.images) != len(split.labels):
        raise DataError(f"{where}: {len(split.images):,} images but {len(split.labels):,} labels")
    if not len(split.images):
        raise DataError(f"{where}: no images")
    low, high = int(split.labels.min()), int(split.labels.max())
    if low < 0 or high >= item.num_classes:
        outside = low if low < 0 else high
        raise DataError(f"{where}: label {outside} is outside the classes 0 to {item.num_classes - 1}")
    digest = hashlib.sha256(split.labels.astype(np.uint8).tobytes()).hexdigest()
    for other in others:
        if digest == other.fingerprint and other.name != item.name:
            raise DataError(f"{where}: these are the files of {other.name}")
    if expected_size is not None and len(split.images) != expected_size:
        raise DataError(f"{where}: {len(split.images):,} images; expected {expected_size:,}")
