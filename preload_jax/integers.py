"""Numbers that users give: counts, seeds, and reals that no float holds.  No JAX."""

import math
import operator
from numbers import Real
from typing import Any

import numpy as np

from preload_jax.errors import UserError


def require_integer(name: str, value: Any, *, at_least: int) -> int:
    """The value as an int, if it is an integer (Python's, NumPy's or JAX's; no bool) that is large enough.

    Raises:
        UserError: when it is not.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise UserError(f"{name} must be an integer, got {value!r}")
    if number < at_least:
        raise UserError(f"{name} must be at least {at_least}, got {number}")
    return number


def as_float(number: Real) -> float:
    """The float nearest to a number; infinity, whatever its sign, where it is beyond all of them."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def keep(instance: Any, name: str, value: Any) -> None:
    """Puts a checked value in place of what was given to a frozen dataclass.

    Small integers of NumPy would overflow, and JAX's arrays are no keys.
    """
    object.__setattr__(instance, name, value)


def require_seed(value: Any, *, name: str = "seed") -> int:
    """The value as an int, if it is an integer of 32 bits: of larger ones JAX reads the last 32 bits alone.

    Raises:
        UserError: when it is not.
    """
    seed = require_integer(name, value, at_least=0)
    if seed >= 2**32:
        raise UserError(f"{name} must be below 2**32, got {seed}: JAX reads 32 bits of it")
    return seed
