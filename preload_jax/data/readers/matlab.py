"""Reads the numeric arrays of a MATLAB 5 file, the form in which SVHN is published.

SciPy's reader crashes the process on some damaged files; the part of the format that is needed here is small.

Source: MathWorks, "MAT-File Format", level 5.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from preload_jax.data.readers.bounds import read_bytes
from preload_jax.errors import DataError, reason

_HEADER = 128
_HDF5 = b"\x89HDF\r\n\x1a\n"
_MATRIX, _COMPRESSED = 14, 15
# Types of stored numbers, which may be smaller than the array's own type.
_NUMBERS = {1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
# Array classes: double, single, and signed and unsigned integers of 1, 2, 4 and 8 bytes.
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX_FLAG = 0x08


def read(path: Path, *, limit: int) -> dict[str, np.ndarray]:
    """The real numeric arrays in a MATLAB 5 file, by name; anything else in it is passed over.

    Args:
      path: the file.
      limit: bytes that its arrays may have together.

    Raises:
      DataError: for a damaged file, one of another format, and one that holds more than `limit`.
    """
    content = read_bytes(path, limit)
    if _HDF5 in (content[:8], content[512:520]):
        raise DataError(
            f"{path}: not a readable MATLAB file (version 7.3, which is HDF5); take the published file, or save it "
            f"from MATLAB with -v7"
        )
    try:
        if content[124:128] != b"\x00\x01IM":
            raise ValueError("does not say that it is a little-endian MATLAB 5 file")
        arrays, left = {}, limit
        for kind, element in _elements(memoryview(content)[_HEADER:]):
            if kind == _COMPRESSED:
                unpacked = _unzipped(element, left)
                left -= len(unpacked)
                ((kind, element),) = _elements(memoryview(unpacked))
            if kind == _MATRIX and (named := _matrix(element, limit)) is not None:
                arrays[named[0]] = named[1]
        return arrays
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError, struct.error, zlib.error) as error:
        raise DataError(f"{path}: not a readable MATLAB file ({reason(error)}); copy or download it again") from error


def _unzipped(element: memoryview, limit: int) -> bytes:
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(element, limit + 1)
    if len(content) > limit:
        raise ValueError(f"holds more than {limit:,} bytes")
    if not unpacker.eof:
        raise ValueError("ends in the middle of a compressed element")
    return content


def _elements(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The (type, data) of each element: a tag with type and size, and the data padded to 8 bytes."""
    place = 0
    while place < len(content):
        kind, size = struct.unpack_from("<II", content, place)
        if kind >> 16:  # A small element has its size in the upper half and its data inside the tag.
            kind, size, start, end = kind & 0xFFFF, kind >> 16, place + 4, place + 8
        else:
            start = place + 8
            # Compressed elements are not padded.
            end = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > len(content):
            raise ValueError("ends in the middle of an element")
        yield kind, content[start : start + size]
        place = end


def _matrix(element: memoryview, limit: int) -> tuple[str, np.ndarray] | None:
    """The (name, array) in a matrix element: flags, dimensions, name, numbers; None for other classes of array."""
    (_, head), (_, dimensions), (_, label), *rest = _elements(element)
    (flags,) = struct.unpack_from("<I", head)
    if flags & 0xFF not in _CLASSES or (flags >> 8) & _COMPLEX_FLAG:
        return None
    shape = np.frombuffer(dimensions, "<i4").tolist()
    name, own_type = bytes(label).decode("ascii"), np.dtype(_CLASSES[flags & 0xFF])
    kind, numbers = rest[0]
    if kind not in _NUMBERS or min(shape, default=0) < 0:
        raise ValueError(f"array {name!r} has a type or a shape that does not exist")
    stored = np.frombuffer(numbers, _NUMBERS[kind]).reshape(shape, order="F")
    if stored.size * own_type.itemsize > limit:  # Numbers may be stored in fewer bytes than their type has.
        raise ValueError(f"array {name!r} holds more than {limit:,} bytes")
    return name, stored.astype(own_type, copy=False)
