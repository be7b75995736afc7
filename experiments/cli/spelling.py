"""The library's messages in the command line's words: a setting's name becomes the option that sets it."""

import dataclasses
import re
from typing import Any

from experiments.cli import open_options
from preload_jax.methods import METHODS


def spelled(message: str, args_class: type[Any]) -> str:
    """The message with `batch_size` as `--batch-size`, `learning_rate` as `--optimizer.learning-rate`, and so on.

    Names of one word stay: they are words, too.  So does a name that is a method's: that is what is meant.
    """
    options = _options(args_class)
    names = "|".join(sorted(options, key=len, reverse=True))
    if not names:
        return message
    # Not inside an option, a path, a call's arguments, or quotation marks.
    return re.sub(rf"(?<![\w\-./=\"'])({names})(?![\w\-./=\"'(])", lambda found: options[found[1]], message)


def options_of(args_class: type[Any], prefix: str = "--") -> list[str]:
    """The names of all options, of groups, too."""
    found = []
    for field in dataclasses.fields(args_class):
        if open_options.marks(field.type):
            continue
        option = prefix + field.name.replace("_", "-")
        is_group = isinstance(field.type, type) and dataclasses.is_dataclass(field.type)
        found += options_of(field.type, f"{option}.") if is_group else [option]  # type: ignore[arg-type]
    return found


def _options(args_class: type[Any], prefix: str = "--") -> dict[str, str]:
    """Setting → option; of a name that several groups have, the first group's."""
    found: dict[str, str] = {}
    for field in dataclasses.fields(args_class):
        option = prefix + field.name.replace("_", "-")
        if "_" in field.name and field.name not in METHODS:
            found.setdefault(field.name, option)
        if isinstance(field.type, type) and dataclasses.is_dataclass(field.type):
            found = {**_options(field.type, f"{option}."), **found}
    return found
