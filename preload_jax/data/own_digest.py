"""A digest of the user's own data: another where images were added, removed, moved or exchanged."""

import hashlib
import zipfile
from collections import Counter
from pathlib import Path

from preload_jax.data.own_data import Own
from preload_jax.data.own_folder import Listing
from preload_jax.data.repeated import size_of
from preload_jax.errors import DataError, reason

_BYTES = 1 << 16  # of a file that is looked into
_FORM = "2:"  # Digests of earlier versions looked into fewer files.


def of(own: Own) -> str:
    """The digest, SHA-256 in hexadecimal after its form; the same wherever the data are, so that they may move.

    A folder may hold millions of images.  So of each the name in the folder and the size count, and how a file begins
    where another has its size: such could have exchanged their places, as those of class folders that exchanged their
    names have.  Of arrays in a file their own checksums count.

    Raises:
      DataError: for a file that cannot be read.
    """
    said = _of_folder(own.content) if isinstance(own.content, Listing) else _of_arrays(own)
    return _FORM + hashlib.sha256(repr(said).encode()).hexdigest()


def may_be_one(*digests: str | None) -> bool:
    """Whether digests may be of the same data: None, and those of earlier versions, tell nothing of today's."""
    return len({each for each in digests if each is not None and each.startswith(_FORM)}) < 2


def _of_folder(listing: Listing) -> object:
    sizes = [size_of(path) for path in listing.paths]
    count = Counter(sizes)
    return [
        (path.relative_to(listing.root).parts, size, _begins(path) if count[size] > 1 and size > 0 else "")
        for path, size in zip(listing.paths, sizes, strict=True)
    ]


def _of_arrays(own: Own) -> object:
    assert not isinstance(own.content, Listing)
    names = [f"{name}.npy" for pair in own.content.keys.values() for name in pair]
    try:
        with zipfile.ZipFile(own.path) as archive:
            return [(name, archive.getinfo(name).file_size, archive.getinfo(name).CRC) for name in names]
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{own.path}: not a readable .npz file ({reason(error)})") from error


def _begins(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.read(_BYTES)).hexdigest()
    except (OSError, ValueError):
        return ""
