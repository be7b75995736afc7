"""Options whose names the command line does not know: those of a network that another option chooses."""

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class OptionsOf:
    """Marks a field of a command's options that gets all `--OPTION.NAME=VALUE`, as text by name; None where none is.

    Attributes:
        option: which chooses what they belong to, such as "backbone".
    """

    option: str


def taken(args_class: type[Any], argv: Sequence[str]) -> tuple[list[str], dict[str, dict[str, str]]]:
    """The arguments that are left, and the values of the fields marked `OptionsOf`.

    Raises:
        ValueError: naming an option without a value.
    """
    prefixes = {f"--{mark.option}.": field for field, mark in _marked(args_class)}
    rest: list[str] = []
    found: dict[str, dict[str, str]] = {}
    waiting = list(argv)
    while waiting:
        argument = waiting.pop(0)
        prefix = next((each for each in prefixes if argument.startswith(each)), None)
        if prefix is None:
            rest.append(argument)
            continue
        name, equals, value = argument.removeprefix(prefix).partition("=")
        if not equals:
            if not waiting or waiting[0].startswith("--"):
                raise ValueError(f"Missing value for argument '{argument}'")
            value = waiting.pop(0)
        found.setdefault(prefixes[prefix], {})[name.replace("-", "_")] = value
    return rest, found


def _marked(args_class: type[Any]) -> list[tuple[str, OptionsOf]]:
    return [(field.name, mark) for field in dataclasses.fields(args_class) for mark in marks(field.type)]


def marks(kind: Any) -> list[OptionsOf]:
    """Those of a field's type: none, or one."""
    return [mark for mark in typing.get_args(kind)[1:] if isinstance(mark, OptionsOf)]
