"""Reads the encoded images in an lmdb file, the form in which LSUN is published.

A data.mdb is a B+ tree of pages. All that is needed is to walk it from the root, which takes less code than the C
library takes to install, and a damaged file is an error instead of a crash.

Source: the structures MDB_page, MDB_meta, MDB_db and MDB_node in lmdb's mdb.c (version 1, 64-bit, little-endian).
"""

import io
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from preload_jax.data.readers import image_files
from preload_jax.data.readers.bounds import read_bytes
from preload_jax.errors import DataError, reason

_MAGIC = 0xBEEFC0DE
_PAGE_HEADER = 16  # page number (8 bytes), padding (2), flags (2), lower (2), upper (2)
_NODE_HEADER = 8  # data size or page number, low to high (2 + 2), flags (2), key size (2)
_BRANCH, _LEAF = 0x01, 0x02
_BIG_DATA = 0x01  # the node holds the number of an overflow page
_EMPTY = 2**64 - 1
MAX_DECODED = 2**29  # LSUN's 300 images have 256 rows each: a tenth of a gigabyte.


def read(path: Path, *, limit: int) -> list[np.ndarray]:
    """All images in the data.mdb at `path`, in the order of their keys: uint8 [h, w, 3] each.

    Args:
      path: the file.
      limit: bytes that it may have.

    Raises:
      DataError: for a damaged file, and for images that have more than `MAX_DECODED` bytes together.
    """
    images, total = [], 0
    for key, value in read_items(path, limit=limit):
        images.append(_decode(key, value, path, MAX_DECODED - total))
        total += images[-1].nbytes
    return images


def read_items(path: Path, *, limit: int) -> list[tuple[bytes, bytes]]:
    """All (key, value) pairs of the main database in the data.mdb at `path`, in the order of their keys."""
    content = read_bytes(path, limit)
    try:
        page_size, root = _newest_meta(content)
        items, total = [], 0
        for key, value in [] if root == _EMPTY else _walk(content, page_size, root):
            total += _NODE_HEADER + len(key) + len(value)
            if total > len(content):
                raise ValueError("its values overlap: together they are larger than the file")
            items.append((key, bytes(value)))
        return items
    except (struct.error, IndexError, ValueError) as error:
        raise DataError(
            f"{path}: damaged or truncated lmdb file ({reason(error)}); copy or download it again"
        ) from error


def _newest_meta(content: bytes) -> tuple[int, int]:
    """Page size, and page number of the main database's root, from the newer of the two meta pages."""
    magic, version = struct.unpack_from("<II", content, _PAGE_HEADER)
    if (magic, version) != (_MAGIC, 1):
        raise ValueError("not an lmdb file of version 1")
    (page_size,) = struct.unpack_from("<I", content, _PAGE_HEADER + 24)  # kept in the free-list database's record
    if page_size < _PAGE_HEADER:
        raise ValueError(f"pages of {page_size} bytes")
    metas = []
    for start in (_PAGE_HEADER, page_size + _PAGE_HEADER):
        (root,) = struct.unpack_from("<Q", content, start + 24 + 48 + 40)
        (transaction,) = struct.unpack_from("<Q", content, start + 24 + 2 * 48 + 8)
        metas.append((transaction, root))
    return page_size, max(metas)[1]


def _walk(content: bytes, page_size: int, root: int) -> Iterator[tuple[bytes, memoryview]]:
    view, seen, waiting = memoryview(content), set(), [root]
    while waiting:
        page = waiting.pop()
        if page in seen:
            raise ValueError("its pages form a loop")
        seen.add(page)
        start = page * page_size
        if start + _PAGE_HEADER > len(content):
            # A damaged number may be too large even to be an offset.
            raise ValueError(f"page {page} is outside the file")
        flags, lower = struct.unpack_from("<HH", content, start + 10)
        offsets = struct.unpack_from(f"<{(lower - _PAGE_HEADER) // 2}H", content, start + _PAGE_HEADER)
        nodes = [start + offset for offset in offsets]
        if flags & _BRANCH:
            # The last one first, as they are taken from the end.
            waiting += [_child(content, node) for node in reversed(nodes)]
        elif flags & _LEAF:
            yield from (_item(view, page_size, node) for node in nodes)
        else:
            raise ValueError(f"page {page} is neither a branch nor a leaf")


def _child(content: bytes, node: int) -> int:
    low, high, flags = struct.unpack_from("<HHH", content, node)
    return low | high << 16 | flags << 32


def _item(content: memoryview, page_size: int, node: int) -> tuple[bytes, memoryview]:
    low, high, flags, key_size = struct.unpack_from("<HHHH", content, node)
    data, size = node + _NODE_HEADER + key_size, low | high << 16
    if flags & _BIG_DATA:
        data = struct.unpack_from("<Q", content, data)[0] * page_size + _PAGE_HEADER
    if data + size > len(content):
        raise ValueError("a value ends outside the file")
    return bytes(content[node + _NODE_HEADER : node + _NODE_HEADER + key_size]), content[data : data + size]


def _decode(key: bytes, value: bytes, path: Path, room: int) -> np.ndarray:
    try:
        return np.asarray(image_files.decode(io.BytesIO(value), max_pixels=room // 3).image.convert("RGB"))
    except Exception as error:  # Pillow's decoders raise all kinds for damaged files.
        raise DataError(f"{path}: image {key!r} is not readable ({reason(error)})") from error
