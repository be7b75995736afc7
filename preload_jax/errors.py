"""The errors this library raises on purpose."""

import os
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
