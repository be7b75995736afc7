"""The errors this library raises on purpose, and its warnings."""

import os
import sys
import warnings
from pathlib import Path


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


def reason(error: BaseException) -> str:
    """What another library's exception says, in one line: its type, and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def what_instead(path: str | Path) -> str:
    """What is at a path where a file was expected: nothing, a folder, or something else, such as a pipe."""
    # Unlike Path's methods, these take any name.
    if os.path.isdir(path):
        return "a folder, not a file"
    return "not a regular file" if os.path.exists(path) else "no such file"
