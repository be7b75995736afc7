"""What names of data sets and of image sets mean: "folder:PATH", "list:FILE", FILE.npz, FILE.npy, or one of a table."""

import os
import zlib
from pathlib import Path
from typing import Any

from preload_jax.data import paths
from preload_jax.errors import DataError

FOLDER_PREFIX, LIST_PREFIX = "folder:", "list:"
_FILES = (".npz", ".npy")


def as_text(name: Any, *, what: str) -> str:
    """The name that was given for `what`, as text: a path is what it says.

    Raises:
      DataError: for anything else than text and paths.
    """
    text = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(text, str):
        raise DataError(f"{what} must be given by name, such as 'digits' or 'folder:PATH', got {name!r}")
    return text


def is_folder(name: str) -> bool:
    """Whether a name means a folder of images."""
    return name.startswith(FOLDER_PREFIX)


def is_list(name: str) -> bool:
    """Whether a name means a list of images, in OpenOOD's form."""
    return name.startswith(LIST_PREFIX)


def is_file(name: str) -> bool:
    """Whether a name means a file of images, or a list of them."""
    return is_list(name) or name.lower().endswith(_FILES)


def is_own(name: str) -> bool:
    """Whether a data set's name means the user's own data."""
    return is_folder(name) or name.lower().endswith(".npz")


def path_of(name: str) -> Path:
    """The folder or file that a name means.  `~` is the user's own folder.

    Raises:
      DataError: for a prefix without a path, which would mean the current folder.
    """
    prefix = _prefix(name)
    if prefix and name == prefix:
        what = "folder; expected folder:PATH" if is_folder(name) else "file; expected list:FILE"
        raise DataError(f"{name} names no {what} (is a variable of the shell not set?)")
    return paths.expanded(name[len(prefix) :])


def canonical(name: str) -> str:
    """The same for all names of one folder or file: "folder:x", "folder:x/" and "folder:./x"; other names as they are.

    Links are followed, so that the path is absolute and the real one.
    """
    if "\0" in name or not (is_folder(name) or is_file(name)):
        return name
    return _prefix(name) + os.path.realpath(path_of(name))


def _prefix(name: str) -> str:
    return next((prefix for prefix in (FOLDER_PREFIX, LIST_PREFIX) if name.startswith(prefix)), "")


def stream(name: str) -> int:
    """A number for a name, which gives what is made under it a stream of random numbers of its own."""
    # Names of files need not be text.
    return zlib.crc32(name.encode("utf-8", "surrogatepass"))


def split_list(text: str) -> tuple[str, ...]:
    """What stands between the commas, without blanks, empty parts and repetitions.

    A folder or file may have commas in its name: where the longer path is there, it is the one that is meant.
    """
    pieces = text.split(",")
    found: dict[str, str] = {}
    while pieces:
        joined = [",".join(pieces[:n]).strip() for n in range(1, len(pieces) + 1)]
        length = max((n for n, name in enumerate(joined, start=1) if _is_there(name)), default=1)
        if part := joined[length - 1]:
            found.setdefault(canonical(part), part)
        del pieces[:length]
    return tuple(found.values())


def did_you_mean(name: str) -> str:
    """A hint for a path given where a name was expected, or a prefix in capitals; empty if it is none."""
    for prefix in (FOLDER_PREFIX, LIST_PREFIX):
        if name.lower().startswith(prefix) and not name.startswith(prefix):
            return f" (did you mean {prefix}{name[len(prefix) :]}?)"
    path = path_of(name)
    is_path = name.startswith(("/", "./", "../", "~")) or (name.strip() and os.path.isdir(path))
    if not is_path or is_folder(name) or os.path.isfile(path):
        return ""
    return f" (did you mean {FOLDER_PREFIX}{name}?)"


def _is_there(name: str) -> bool:
    path = path_of(name)
    return os.path.isdir(path) if is_folder(name) else is_file(name) and os.path.isfile(path)
