"""A dataclass's repr in one line: arrays by their type and shape.  No JAX."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

# Characters of a value that is no array, and entries of a mapping, beyond which the rest is left out.
_LONG, _MANY = 120, 6


def short_repr(value: Any) -> str:
    """The fields by name, as `__repr__` of a dataclass that holds arrays.

    Example:
        >>> import dataclasses
        >>> import numpy as np
        >>> from preload_jax.short_repr import short_repr
        >>> @dataclasses.dataclass
        ... class Found:
        ...     center: np.ndarray
        ...     radius: float
        ...     __repr__ = short_repr
        >>> Found(np.zeros((8, 8)), 2.123456789)
        Found(center=float64[8, 8], radius=2.12346)
    """
    fields = [f"{field.name}={_short(getattr(value, field.name))}" for field in dataclasses.fields(value) if field.repr]
    return f"{type(value).__name__}({', '.join(fields)})"


def _short(value: Any) -> str:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.shape == ()):
        value = value.item()
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        entries = [f"{key!r}: {_short(each)}" for key, each in list(value.items())[:_MANY]]
        return "{" + ", ".join(entries + ["…"] * (len(value) > _MANY)) + "}"
    if isinstance(value, tuple | list) and any(hasattr(each, "shape") for each in value):
        return f"({', '.join(map(_short, value))})"
    found = repr(value)
    return found if len(found) <= _LONG and "\n" not in found else type(value).__name__
