"""What a document must hold, as plain data, and whether it does.

A schema is `str`, `bool`, `int` (whole numbers), `float` (finite numbers, whole ones too), None, or `object`
(anything); a tuple of schemas (any of them); `[schema]` (a list); `{str: schema}` (any names); or a dict of names and
their schemas, in which "name?" may be missing and other names may be there, too.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterator
from typing import Any

_WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a finite number", None: "nothing"}
_MISSING = object()


def mismatch(value: Any, schema: Any, *, where: str = "it") -> str | None:
    """What is wrong with a value, in words; None where nothing is.

    Args:
        value: of what `json.loads` gives.
        schema: see above.
        where: what the words call the value.

    Example:
        >>> from preload_jax.formats import schema
        >>> schema.mismatch({"a": {"b": "x"}}, {"a": {"b": float}})
        'a.b is "x", expected a finite number'
        >>> schema.mismatch({}, {"a": int, "b?": int})
        'a is missing, expected a whole number'
    """
    if value is _MISSING:
        return f"{where} is missing, expected {_words(schema)}"
    if isinstance(schema, tuple):
        return None if any(mismatch(value, kind) is None for kind in schema) else _wrong(value, schema, where)
    if not _is(value, schema):
        return _wrong(value, schema, where)
    if isinstance(schema, list | dict):
        prefix = "" if where == "it" else f"{where}."
        found = (mismatch(part, kind, where=f"{prefix}{name}") for name, part, kind in _parts(value, schema))
        return next(filter(None, found), None)
    return None


def of_dataclass(kind: type) -> dict[str, Any]:
    """The schema of a dataclass's fields, each of which may be missing; dataclasses in it are taken apart, too."""
    hints = typing.get_type_hints(kind)
    return {f"{field.name}?": _of_annotation(hints[field.name]) for field in dataclasses.fields(kind)}


def _of_annotation(annotation: Any) -> Any:
    if dataclasses.is_dataclass(annotation):
        return of_dataclass(annotation)  # type: ignore[arg-type]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(_of_annotation(part) for part in typing.get_args(annotation))
    if annotation is types.NoneType:
        return None
    return annotation if annotation in (str, bool, int, float) else object


def _parts(value: Any, schema: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, value, schema) of everything in a list or dict that the schema speaks of."""
    if isinstance(schema, list):
        yield from ((str(i), part, schema[0]) for i, part in enumerate(value))
    elif str in schema:
        yield from ((name, part, schema[str]) for name, part in value.items())
    else:
        for name, kind in schema.items():
            part = value.get(name.removesuffix("?"), _MISSING)
            if part is not _MISSING or not name.endswith("?"):
                yield name.removesuffix("?"), part, kind


def _is(value: Any, schema: Any) -> bool:
    if isinstance(schema, list | dict):
        return isinstance(value, type(schema))
    if schema is None or schema is object:
        return schema is object or value is None
    if schema is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, schema) and not (schema is int and isinstance(value, bool))


def _wrong(value: Any, schema: Any, where: str) -> str:
    shown = json.dumps(value)
    return f"{where} is {shown if len(shown) < 40 else shown[:37] + '…'}, expected {_words(schema)}"


def _words(schema: Any) -> str:
    if isinstance(schema, tuple):
        return " or ".join(_words(kind) for kind in schema)
    if isinstance(schema, list | dict):
        return "a list" if isinstance(schema, list) else "a table of names"
    return _WORDS.get(schema, "something")
