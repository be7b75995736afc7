"""A number between two bounds, and what rounding adds to them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Interval:
    """Arrays of one shape in float64: low ≤ x ≤ high."""

    low: Any
    high: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(np.shape(self.low))

    @property
    def size(self) -> Any:
        """The largest |x|."""
        return jnp.maximum(jnp.abs(self.low), jnp.abs(self.high))

    @property
    def middle(self) -> Any:
        return 0.5 * (self.low + self.high)

    @property
    def radius(self) -> Any:
        """Half the width, rounded up."""
        return 0.5 * (self.high - self.low) + 4.0 * np.finfo(np.float64).eps * self.size


@dataclass(frozen=True)
class Truth:
    """A comparison on a box: whether it may be false, and whether it may be true."""

    may_fail: Any
    may_hold: Any


def of(value: Any) -> Interval:
    """An interval, or one point as one."""
    return value if isinstance(value, Interval) else Interval(value, value)


def widened(x: Interval, dtype: Any, *, steps: int = 1, size: Any = None) -> Interval:
    """With room for `steps` roundings to a type, relative to `size`; and for numbers too small for the type."""
    info = jnp.finfo(dtype)
    # The unit in the last place, twice what a rounding errs by: the rest covers float64's own roundings.
    room = steps * float(info.eps) * (x.size if size is None else size) + steps * float(info.tiny)
    # Where a bound is infinite there is nothing to widen, and ∞ − ∞ is no number.
    low, high = x.low - room, x.high + room
    return Interval(jnp.where(jnp.isnan(low), -jnp.inf, low), jnp.where(jnp.isnan(high), jnp.inf, high))


def monotone(function: Callable[[Any], Any], x: Interval, *, falls: bool = False) -> Interval:
    """Of a function that rises, or falls, everywhere."""
    low, high = function(x.low), function(x.high)
    return Interval(high, low) if falls else Interval(low, high)


def product(a: Interval, b: Interval) -> Interval:
    """Of two numbers that need not have to do with each other; 0 · ∞ is taken as 0."""
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    ends = [jnp.where(jnp.isnan(end), 0.0, end) for end in ends]
    low, high = ends[0], ends[0]
    for end in ends[1:]:
        low, high = jnp.minimum(low, end), jnp.maximum(high, end)
    return Interval(low, high)


def inverse(x: Interval) -> Interval:
    """1 / x; anything where x may be 0."""
    sure = (x.low > 0) | (x.high < 0)
    return Interval(jnp.where(sure, 1.0 / x.high, -jnp.inf), jnp.where(sure, 1.0 / x.low, jnp.inf))


def power(x: Interval, exponent: int) -> Interval:
    """x^n of an integer n ≥ 0."""
    ends = x.low**exponent, x.high**exponent
    if exponent % 2:
        return Interval(*ends)
    low = jnp.where((x.low <= 0) & (x.high >= 0), 0.0, jnp.minimum(*ends))
    return Interval(jnp.ones_like(ends[0]) if exponent == 0 else low, jnp.maximum(*ends))
