"""The errors this library raises on purpose, and its warnings."""

import difflib
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class UserError(ValueError):
    """Something the caller gave is wrong.

    The message is one line that says what was wrong, what was expected and what to do; the command line shows it as
    it is, without a traceback.

    Example:
        >>> from preload_jax import UserError, make_classifier
        >>> try:
        ...     make_classifier("lenet", "square_logit", num_classes=1)
        ... except UserError as error:
        ...     print(error)
        num_classes must be at least 2, got 1
    """


class DataError(UserError):
    """A data set, or a file or folder that should hold one, is unknown, damaged or not what was asked for.

    Example:
        >>> from preload_jax import DataError
        >>> from preload_jax.data import datasets
        >>> try:
        ...     datasets.load("folder:no/such/folder")
        ... except DataError as error:
        ...     print(error)
        no/such/folder: no such folder; expected a folder of images
    """


class NotPreparedError(DataError):
    """A data set is known but not in the data directory yet."""


class CheckpointError(RuntimeError):
    """Checkpoints are there, and none of them can be read."""


# Whose frames are no caller's: this library's, and those of what checks types between its functions in tests.
_NOT_THE_CALLER = ("preload_jax", "jaxtyping", "beartype")


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """A Python warning at the line that called this library, however deep in it the reason was found."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_within(frame.f_globals.get("__name__", ""), frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_within(module: str, file: str) -> bool:
    return module.split(".")[0] in _NOT_THE_CALLER or file.startswith("<@beartype")


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """What was perhaps meant by a name that is not known, in brackets; "" where none of them is like it."""
    names = [str(each) for each in known] if isinstance(name, str) else []
    # Capitals are a slip of the keyboard, too; of names that differ in nothing else the first is meant.
    small = {each.casefold(): each for each in reversed(names)}
    close = difflib.get_close_matches(name, names, n=1) or [
        small[each] for each in difflib.get_close_matches(str(name).casefold(), small, n=1)
    ]
    return f" (did you mean {close[0]!r}?)" if close else ""


def unknown(what: str, name: Any, known: Iterable[Any], *, hint: str = "") -> str:
    """The message about a name that is in no table: what was perhaps meant, and which there are.

    Args:
        what: the table's things are, such as "method".
        name: that was given.
        known: the names.
        hint: in place of a guess.
    """
    names = [str(each) for each in known]
    return f"unknown {what} {name!r}{hint or did_you_mean(name, names)}; expected one of {', '.join(names)}"


def reason(error: BaseException) -> str:
    """What another library's exception says, in one line: its type, and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def require_plain_file(path: str | Path) -> None:
    """Raises a DataError for a pipe, a socket or a device: who reads one may wait for ever.

    A path with nothing or a folder is left to whoever opens it.
    """
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise DataError(f"{path}: {what_instead(path)}; expected a plain file: move it away, or give another path")


def what_instead(path: str | Path) -> str:
    """What is at a path where a file was expected: nothing, a folder, or something else, such as a pipe."""
    # Unlike Path's methods, these take any name.
    if os.path.isdir(path):
        return "a folder, not a file"
    return "not a regular file" if os.path.exists(path) else "no such file"
