"""Numbers that users give: counts, seeds, truth values, and reals that no float holds.  No JAX."""

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from preload_jax.errors import UserError

# Nothing is counted that far, and no array of JAX holds more.
_BEYOND = 2**63


def require_integer(name: str, value: Any, *, at_least: int) -> int:
    """The value as an int, if it is an integer (Python's, NumPy's or JAX's; no bool) that is large enough.

    Raises:
        UserError: when it is not.
    """
    number = _index(name, value)
    if number < at_least:
        raise UserError(f"{name} must be at least {at_least}, got {shown(number)}")
    if number >= _BEYOND:
        raise UserError(f"{name} must be below 2**63, got {shown(number)}")
    return number


def shown(value: Any) -> str:
    """A number as messages show it: of an integer with more digits than anybody reads, its size alone."""
    if not isinstance(value, int) or abs(value) < _BEYOND:
        return repr(value)
    return f"about {'-' if value < 0 else ''}10**{math.floor(math.log10(abs(value)))}"


def _index(name: str, value: Any) -> int:
    """The value as an int; a UserError unless it is an integer."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise UserError(f"{name} must be an integer, got {value!r}")
    return number


def require_integers(name: str, values: Any, *, what: str, at_least: int, count: int | None = None) -> tuple[int, ...]:
    """The values as a tuple of ints, if they are a list of large enough integers, a range, an array [n], or the like.

    A tuple, since what a network or a compiled function is made of must be hashable.

    Args:
        name: what the message calls them.
        values: as given.
        what: how the message says what is expected.
        at_least: of each.
        count: how many there must be; None for one or more.

    Raises:
        UserError: when they are not.
    """
    given = as_listed(values)
    if isinstance(given, str) or not isinstance(given, Sequence) or not given or count not in (None, len(given)):
        raise UserError(f"{name} must be {what}, got {values!r}")
    return tuple(require_integer(name, value, at_least=at_least) for value in given)


def as_listed(values: Any) -> Any:
    """What an array of NumPy, JAX or torch holds, as Python's own lists; anything else as it is."""
    return values.tolist() if hasattr(values, "tolist") else values


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
    seed = _index(name, value)
    if seed < 0:
        raise UserError(f"{name} must be at least 0, got {shown(seed)}")
    if seed >= 2**32:
        raise UserError(f"{name} must be below 2**32, got {shown(seed)}: JAX reads 32 bits of it")
    return seed


def require_flag(name: str, value: Any) -> bool:
    """The value as a bool, if it is Python's or NumPy's: of anything else the truth is a guess, "False" is true.

    Raises:
        UserError: when it is not.
    """
    if not isinstance(value, bool | np.bool_):
        raise UserError(f"{name} must be True or False, got {value!r}")
    return bool(value)
