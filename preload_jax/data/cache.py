"""Decoded arrays kept on disk, so that they are made only once."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from preload_jax.errors import require_plain_file

CACHE_FOLDER = "preload_jax_cache"


def cached(
    path: Path, make: Callable[[], dict[str, np.ndarray]], *, names: tuple[str, ...] = ("images", "labels")
) -> dict[str, np.ndarray]:
    """Returns the arrays `names` in the .npz file `path`, after making and saving them if it is not there or damaged.

    The file is written completely or not at all. Where it cannot be written (a read-only data directory, a full disk)
    the arrays are made anew each time.
    """
    require_plain_file(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except Exception:  # Not there, or damaged: zipfile, zlib and NumPy raise all kinds.
        arrays = make()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        save(path, arrays)
    return arrays


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a .npz file, completely or not at all."""
    with incomplete(path) as temporary:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.replace(temporary, path)


@contextlib.contextmanager
def incomplete(path: Path) -> Iterator[Path]:
    """A new, empty file beside `path`; it is removed at the end unless it was renamed.

    It has a new name each time: two processes may write at once, and no link that stands there is followed.
    """
    handle, name = tempfile.mkstemp(prefix="incomplete.", suffix=f".{path.name}", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def content_key(paths: Iterable[Path]) -> str:
    """A key made from the content of files."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]


def listing_key(paths: Iterable[Path], *extra: object) -> str:
    """A key made from names and states of files (for folders too large to read each time), and `extra`."""
    stats = [(str(path), *_state(path)) for path in paths]
    return hashlib.sha256(repr((stats, extra)).encode()).hexdigest()[:16]


def _state(path: Path) -> tuple[int, ...]:
    """What is another number where the content is another.

    Size and time alone are not enough: archives and container images set one time for all files, and then folders of
    images of one size may change their names. A copy has another number, too, and is only read again.
    """
    try:
        status = path.stat()
    except (OSError, ValueError):  # A link to nothing or to itself; a name that no file can have.
        return ()
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns
