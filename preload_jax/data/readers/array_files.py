"""NumPy files, .npy and .npz: what they declare is read first, and pickled objects are never loaded."""

import math
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.data.readers.bounds import require_memory
from preload_jax.errors import DataError, reason, require_plain_file

_STORED_OR_DEFLATED = (0, 8)  # What NumPy writes; LZMA may take gigabytes of its own.


@dataclass(frozen=True)
class Declared:
    """What the header of an array says."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def open_npy(path: Path) -> np.ndarray:
    """A .npy file, memory-mapped; a DataError if it is not one or is truncated."""
    require_plain_file(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy's header parser raises SyntaxError and worse for damaged files.
        raise DataError(f"{path}: not a readable .npy file ({reason(error)})") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: an archive of arrays; expected a single one (.npy)")
    return array


def read_next(file: Any, name: str) -> np.ndarray:
    """The next array of a stream of .npy files, one after another, such as a pipe.

    Args:
      file: of bytes; it is read no further than the array goes.
      name: what a DataError calls it.

    Raises:
      DataError: for anything else than an array of numbers, one that ends too soon, or more than memory has room for.
    """
    try:
        shape, fortran, dtype = _read_whole_header(file)
        array = Declared(shape, dtype)
        if dtype.hasobject or min(shape, default=0) < 0:
            raise ValueError(f"{array}; expected numbers")
        require_memory(name, array.nbytes, copies=2)
        content = file.read(array.nbytes)
        if len(content) != array.nbytes:
            raise ValueError(f"it ends after {len(content):,} of {array.nbytes:,} bytes")
        return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
    except DataError:
        raise
    except Exception as error:  # NumPy's header parser raises SyntaxError and worse for damaged files.
        raise DataError(f"{name}: not a readable .npy file ({reason(error)})") from None


def open_images(path: Path) -> np.ndarray:
    """The user's own images in a .npy file, uint8 [n, h, w, 1 or 3]; a DataError for anything else."""
    images = open_npy(path)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] not in (1, 3) or not images.size:
        raise DataError(f"{path}: {images.dtype} {list(images.shape)}; expected uint8 [n, h, w, 1 or 3]")
    return images


def names_in(path: Path) -> list[str]:
    """The names of the arrays in a .npz file."""
    require_plain_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except Exception as error:  # zipfile, zlib and NumPy raise all kinds for damaged files.
        raise _unreadable(path, error) from error


def declared(path: Path, names: Iterable[str]) -> dict[str, Declared]:
    """What some of the arrays in a .npz file are, from their headers.

    Raises:
      DataError: for a damaged file, or if one of them holds pickled objects.
    """
    require_plain_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: _header(archive, archive.getinfo(f"{name}.npy")) for name in names}
    except Exception as error:
        raise _unreadable(path, error) from error


def read_npz(path: Path, names: Iterable[str], *, copies: int = 1) -> dict[str, np.ndarray]:
    """Some of the arrays in a .npz file.

    Args:
      path: the file.
      names: of the arrays.
      copies: how often the caller will hold them in memory.

    Raises:
      DataError: for a damaged file, and for one that the memory has no room for.
    """
    found = declared(path, names)
    require_memory(path, sum(array.nbytes for array in found.values()), copies=copies)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in found}
    except Exception as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: not a readable .npz file ({reason(error)})")


def _header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Declared:
    if entry.compress_type not in _STORED_OR_DEFLATED:
        raise ValueError(f"{entry.filename!r} is packed in a way that NumPy does not write")
    with archive.open(entry) as file:
        shape, dtype = _read_header(file)
        array = Declared(shape, dtype)
        if dtype.hasobject:
            raise ValueError(f"{entry.filename!r} holds pickled objects, which are not loaded")
        if min(shape, default=0) < 0 or file.tell() + array.nbytes != entry.file_size:
            raise ValueError(f"{entry.filename!r} has {entry.file_size:,} bytes, but its header says {array}")
        return array


def _read_header(file: Any) -> tuple[tuple[int, ...], Any]:
    shape, _, dtype = _read_whole_header(file)
    return shape, dtype


def _read_whole_header(file: Any) -> tuple[tuple[int, ...], bool, Any]:
    """(shape, whether the first axis changes fastest, type of numbers)"""
    if np.lib.format.read_magic(file) == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)
