"""Files that are written whole or not at all."""

import os
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all: to a temporary name, then renamed.

    Raises:
        OSError: with the file's own name, when it cannot be written; what was there stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
