"""JSON files of ours: written in one form, with a digest of what they hold, and checked when they are read.

A flipped bit in a number reads as another number; the digest tells.  Files of versions before format 2 have none.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from preload_jax.digests import of_json, sealed
from preload_jax.errors import UserError, require_plain_file
from preload_jax.formats.files import write_bytes
from preload_jax.formats.strict_json import parse

FORMAT = 2
_LINE_DIGITS = 16


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a record whole or not at all, keys sorted, with its format and digest.

    Raises:
        ValueError: for NaN and infinity, which are not JSON.
    """
    text = json.dumps(sealed({**value, "format": FORMAT}), indent=2, allow_nan=False, sort_keys=True)
    write_bytes(path, f"{text}\n".encode())


def digest(value: Mapping[str, Any]) -> str:
    """Of a record, as `write` writes it and `read` gives it."""
    return of_json({**value, "format": FORMAT})


def read(path: Path, *, advice: str) -> dict[str, Any]:
    """A record without its digest.

    Args:
        path: of the file.
        advice: what to do about a damaged one.

    Raises:
        FileNotFoundError: when there is none.
        UserError: when it is damaged, or no plain file.
    """
    require_plain_file(path)
    try:
        value = parse(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); {advice}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged: expected an object, got {_kind(value)}; {advice}")
    written_as = value.get("format", 1)
    if isinstance(written_as, int) and written_as > FORMAT:
        raise UserError(
            f"{path} is of format {written_as}, this version reads formats up to {FORMAT}: update preload_jax"
        )
    said = value.pop("digest", None)
    if (said is not None or value.get("format", 1) != 1) and said != of_json(value):
        raise UserError(f"{path} is damaged: its content does not have the digest that was written with it; {advice}")
    return value


def read_lines(path: Path, check: Callable[[Any], bool]) -> tuple[list[dict[str, Any]], list[int]]:
    """`lines` of a file; none of one that is not there.

    Raises:
        UserError: when it is no plain file.
    """
    require_plain_file(path)
    return lines(path.read_bytes() if path.exists() else b"", check)


def line(value: Mapping[str, Any]) -> str:
    """A record as a line of a file that grows by lines."""
    return json.dumps({**value, "digest": of_json(value)[:_LINE_DIGITS]}, allow_nan=False, sort_keys=True) + "\n"


def lines(content: bytes, check: Callable[[Any], bool]) -> tuple[list[dict[str, Any]], list[int]]:
    """The good lines of such a file, and the numbers from 1 of the damaged ones.

    Args:
        content: any bytes.  A last line without an end is damaged unless it is whole.
        check: whether a record has what it must have; lines of earlier versions have no digest.
    """
    good, damaged = [], []
    for number, part in enumerate(content.split(b"\n"), start=1):
        if not part:
            continue
        try:
            value = parse(part)
        except ValueError:
            value = None
        said = value.pop("digest", None) if isinstance(value, dict) else None
        if value is None or not check(value) or said not in (None, of_json(value)[:_LINE_DIGITS]):
            damaged.append(number)
        else:
            good.append(value)
    return good, damaged


def is_texts(value: Any) -> bool:
    """Whether it is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_number(value: Any) -> bool:
    """Whether it is a finite number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_fields(values: Any, into: type[Any], *, where: str = "") -> None:
    """Checks the types of what a dataclass is made of, as far as it is there; dataclasses within it, too.

    Raises:
        TypeError: naming the field.
    """
    if not isinstance(values, dict):
        raise TypeError(f"{where.rstrip('.') or 'it'} must be an object, got {_kind(values)}")
    for name, hint in typing.get_type_hints(into).items():
        if name in values:
            _check(values[name], hint, where + name)


def _check(value: Any, hint: Any, where: str) -> None:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for kind in kinds:
        if dataclasses.is_dataclass(kind) and isinstance(value, dict):
            return check_fields(value, typing.cast(type[Any], kind), where=f"{where}.")
    if not any(_is(value, kind) for kind in kinds):
        raise TypeError(f"{where} must be {' or '.join(_name(kind) for kind in kinds)}, got {value!r}")
    return None


def _is(value: Any, kind: Any) -> bool:
    if kind is float:
        return is_number(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if typing.get_origin(kind) is tuple:
        items: Iterable[Any] = value if isinstance(value, list) else [None]
        return all(_is(item, typing.get_args(kind)[0]) for item in items)
    if kind in (str, bool, types.NoneType):
        return isinstance(value, kind)
    return not dataclasses.is_dataclass(kind)


def _name(kind: Any) -> str:
    names: dict[Any, str] = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false"}
    names[types.NoneType] = "null"
    return names.get(kind, "an object" if dataclasses.is_dataclass(kind) else "a list")


def _kind(value: Any) -> str:
    return {list: "a list", str: "a text", type(None): "null"}.get(type(value), repr(value))
