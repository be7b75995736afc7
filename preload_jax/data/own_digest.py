"""A digest of the user's own data: another where images were added, removed, moved or exchanged."""

import hashlib
import os
import zipfile
from pathlib import Path

from preload_jax.data.own_data import Own
from preload_jax.data.own_folder import Listing
from preload_jax.errors import DataError, reason

_BYTES = 1 << 20  # of a file that is looked into


def of(own: Own) -> str:
    """The digest, SHA-256 in hexadecimal; the same wherever the data are, so that they may move.

    A folder may hold millions of images.  So of each only the name in the folder and the size count, and of the first
    of each class in each split what is in it: class folders that exchanged their images tell by that, if not by the
    sizes.  Of arrays in a file their own checksums count.

    Raises:
      DataError: for a file that cannot be read.
    """
    said = _of_folder(own.content) if isinstance(own.content, Listing) else _of_arrays(own)
    return hashlib.sha256(repr(said).encode()).hexdigest()


def _of_folder(listing: Listing) -> object:
    firsts: dict[tuple[int, int], Path] = {}
    for path, split, label in zip(listing.paths, listing.splits.tolist(), listing.labels.tolist(), strict=True):
        firsts.setdefault((split, label), path)
    sizes = [(path.relative_to(listing.root).parts, _size(path)) for path in listing.paths]
    return sizes, [_begins(path) for path in firsts.values()]


def _of_arrays(own: Own) -> object:
    assert not isinstance(own.content, Listing)
    names = [f"{name}.npy" for pair in own.content.keys.values() for name in pair]
    try:
        with zipfile.ZipFile(own.path) as archive:
            return [(name, archive.getinfo(name).file_size, archive.getinfo(name).CRC) for name in names]
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{own.path}: not a readable .npz file ({reason(error)})") from error


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):  # A link to nothing, which is an image that cannot be read.
        return -1


def _begins(path: Path) -> str:
    if not os.path.isfile(path):  # Reading a pipe would never end.
        return ""
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.read(_BYTES)).hexdigest()
    except (OSError, ValueError):
        return ""
