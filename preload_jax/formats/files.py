"""Files that are written whole or not at all, and that no planted link leads elsewhere."""

import os
import secrets
from pathlib import Path
from typing import IO

# What is opened for writing is never a link: O_NOFOLLOW, where the system has it.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all: to a name that nobody else has, then renamed.

    Several writers of one path do not disturb each other: the last one's file stays.  A link of that name is replaced,
    not followed.

    Raises:
        OSError: with the file's own name, when it cannot be written; what was there stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}.{secrets.token_hex(6)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o666), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def open_lock(path: Path) -> IO[str]:
    """A file to lock: made if it is missing, never emptied, and never a link.

    Raises:
        OSError: with the file's own name, when it is a link or cannot be opened.
    """
    return open(os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666), "r+")
