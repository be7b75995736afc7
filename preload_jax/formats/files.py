"""Files that are written whole or not at all, and never through a link."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from preload_jax.errors import DataError, UserError, what_instead

# What a process that was killed leaves: `.NAME.TOKEN.tmp`.
_INCOMPLETE = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.DOTALL)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all: to a temporary name of its own, then renamed.

    Several processes may write the same path at once; one of their files stays. A link in its place is replaced, what
    it points to stays as it is.

    Raises:
        UserError: where something else than a plain file, or a link, has the name: a device, a FIFO, a socket.
        OSError: with the file's own name, when it cannot be written; what was there stays.
    """
    if not path.name or (path.exists() and not path.is_symlink() and not path.is_file() and not path.is_dir()):
        raise UserError(f"{path}: {what_instead(path) if path.name else 'no name of a file'}; expected a plain file")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Only the start of a long name: with what is added it must still be one.
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.tmp")
    with _named(path):
        try:
            with open(_create(temporary), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Raises the OSError that writing a file there would: before what it holds is computed.

    Folders that are missing will be made; a part that is a file, links in a circle and a long name stay errors.
    """
    with suppress(FileNotFoundError):
        os.lstat(path)


def append_line(path: Path, line: bytes) -> None:
    """Adds a line to a file, in one piece; the file is made if it is missing.

    Raises:
        UserError: when a link is in its place.
        OSError: with the file's own name, when it cannot be written.
    """
    with _named(path), _refuses_links(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with open(descriptor, "ab", buffering=0) as file:
            file.write(line.rstrip(b"\n") + b"\n")


def open_lock(path: Path) -> int:
    """A descriptor of a lock file, made if it is missing; what it holds is left alone.

    Raises:
        UserError: when a link is in its place.
        OSError: when it cannot be made or opened.
    """
    with _refuses_links(path):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def remove_incomplete(folder: Path) -> None:
    """Removes what killed writers left in a folder; only for a folder that no other process writes to."""
    for path in folder.iterdir():
        if _INCOMPLETE.fullmatch(path.name):
            path.unlink(missing_ok=True)


def read_bytes(path: Path, *, most: int) -> bytes:
    """A file's content.

    Raises:
        DataError: when it is larger than `most` bytes, or no plain file.
        OSError: when it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is no plain file")
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise DataError(f"{path} has more than {most:,} bytes, the most that such a file has")
    return content


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Gives errors the file's own name."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def _refuses_links(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        if path.is_symlink():
            raise UserError(f"{path} is a link; expected a file of this program's own: remove the link") from None
        raise
