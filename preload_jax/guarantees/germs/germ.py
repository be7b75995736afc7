"""The germ of a value along a ray: what it is for all sufficiently large t.

    x(t) = Σ_p c_p t^p + O(t^order),      p from 16 down to -2.

Every element of an array has coefficients and an order of its own: one of a transformer's tokens may end constant
while others grow.  The arrays are those of one ray: nothing here can mix two of them, and `jax.vmap` adds their axis.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LOWEST, HIGHEST = -2, 16
# Orders of a remainder that is no power of t: none at all; smaller than every power (exponentially small); anything.
EXACT, FADING, UNKNOWN = -math.inf, -1e6, 1e6
# Constants of at least this size stand for infinity: masks of attention, limits against overflow.
INFINITE = 1e30
# No rounding errors.
ZERO = np.float32(0)
# A coefficient counts as different from 0 when it exceeds this many times the level of rounding errors.
SAFETY = 16.0


@dataclass(frozen=True, eq=False)
class Germ:
    """A value that depends on t.

    Attributes:
        terms: the coefficient of each power that may be there.  An infinite coefficient of t⁰ says that the element
            outgrows every power; NaN that nothing is known about it.
        order: of the remainder: one number, or one an element.  Coefficients of powers up to it mean nothing.
        noise: for each power the level of rounding errors in its coefficients: one number, or one an element.
        shape: of the value.
        floor: a bound below the order that is known while tracing: constants below it are not computed.
        wild: whether infinite coefficients may occur.
        divisor: whether it is the inverse of a norm: what it multiplies is taken to be bounded, and checked to be.
    """

    terms: Mapping[int, Any]
    order: Any
    noise: Mapping[int, Any]
    shape: tuple[int, ...]
    floor: float = EXACT
    wild: bool = False
    divisor: bool = False

    @property
    def powers(self) -> list[int]:
        """Highest first."""
        return sorted(self.terms, reverse=True)

    def known(self, power: int) -> Any:
        """The coefficients of a power; 0 where the remainder hides them."""
        return jnp.where(power > self.order, self.terms[power], 0.0)

    def errors(self, power: int) -> Any:
        """The rounding errors of those: what the remainder hides has none that matter."""
        return jnp.where(power > self.order, self.noise[power], 0.0)


@dataclass(frozen=True, eq=False)
class Eventually:
    """A truth value or an integer that depends on t, and no longer changes from some t on.

    Attributes:
        value: that of all large t.
        known: where the kept terms decide it.
    """

    value: Any
    known: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.value)


def make(
    terms: Mapping[int, Any],
    order: Any,
    noise: Mapping[int, Any],
    *,
    shape: tuple[int, ...],
    floor: float = EXACT,
    wild: bool = False,
    divisor: bool = False,
) -> Germ:
    """A germ whose powers are within the window: lower ones are part of the remainder, higher ones infinite.

    Where the coefficient of t⁰ is NaN nothing is known: it may outgrow all that is kept.
    """
    kept = {power: term for power, term in terms.items() if LOWEST <= power <= HIGHEST and power > floor}
    order = jnp.asarray(order, jnp.float32)
    for power, term in terms.items():
        if floor < power < LOWEST:
            order = jnp.maximum(order, jnp.where(term != 0, float(power), EXACT))
    if floor > EXACT:
        order = jnp.maximum(order, floor)
    for power in sorted(p for p in terms if p > HIGHEST):
        term = jnp.where(power > order, terms[power], 0.0)
        base = kept[0] if 0 in kept else jnp.zeros(shape, term.dtype)
        kept[0] = jnp.where(term != 0, jnp.copysign(jnp.inf, term), base)
        wild = True
    if 0 in terms:
        order = jnp.where(jnp.isnan(terms[0]), UNKNOWN, order)
    return Germ(kept, order, {power: noise.get(power, ZERO) for power in kept}, shape, floor, wild, divisor)


def without_hidden_infinities(*values: Germ) -> list[Germ]:
    """The operands of an operation whose result has no coefficient of t⁰: what is infinite there is unknown."""
    if max(x.floor for x in values) == EXACT:
        return list(values)
    return [_unknown_where_infinite(x) if x.wild and 0 in x.terms else x for x in values]


def _unknown_where_infinite(x: Germ) -> Germ:
    infinite = jnp.isinf(x.terms[0])
    terms = {**x.terms, 0: jnp.where(infinite, 0.0, x.terms[0])}
    return Germ(terms, jnp.where(infinite, UNKNOWN, x.order), x.noise, x.shape, x.floor)


def of_constant(value: Any) -> Germ:
    """The germ of a value that does not depend on t."""
    if isinstance(value, Germ):
        return value
    if isinstance(value, Eventually):
        number = value.value if jnp.issubdtype(value.value.dtype, jnp.floating) else value.value * 1.0
        order = jnp.where(value.known, EXACT, 0.0)
        return make({0: number}, order, {}, shape=np.shape(number))
    wild = not isinstance(value, jax.core.Tracer) and bool(np.any(np.abs(np.asarray(value)) >= INFINITE))
    array = jnp.asarray(value)
    if wild:
        array = jnp.where(jnp.abs(array) >= INFINITE, jnp.copysign(jnp.inf, array), array)
    return make({0: array}, EXACT, {}, shape=np.shape(value), wild=wild)


def coefficient(x: Germ, power: int, dtype: Any) -> Any:
    """That of a power, zeros where it cannot be there."""
    return x.terms[power] if power in x.terms else jnp.zeros(x.shape, dtype)


def dtype_of(*values: Any) -> Any:
    """The floating type of the coefficients."""
    return next(term.dtype for x in values if isinstance(x, Germ) for term in x.terms.values())


def powers_of(*values: Germ) -> list[int]:
    """All that occur, highest first."""
    return sorted({power for x in values for power in x.terms}, reverse=True)


def tolerance(power: int, *values: Germ) -> Any:
    """A coefficient's difference from another must be larger to be one."""
    return SAFETY * sum((x.noise[power] for x in values if power in x.noise), ZERO)


def sizes(array: Any) -> Any:
    """The magnitudes, infinities aside, in float32: exact enough for a level of errors."""
    return jnp.where(jnp.isfinite(array), jnp.abs(array), 0.0).astype(jnp.float32)


def largest(array: Any) -> Any:
    """Of the magnitudes, infinities aside, as a scalar."""
    return jnp.max(sizes(array), initial=0.0)


def level(noise: Any) -> Any:
    """The largest of an array's rounding errors, as a scalar in float32."""
    return largest(noise) if np.shape(noise) else noise


def move(function: Callable[[Any], Any], levels: Any, shape: tuple[int, ...]) -> Any:
    """The rounding errors, or orders, of elements of an array of this shape that a function moves."""
    return function(jnp.broadcast_to(levels, shape)) if np.shape(levels) else levels


def largest_along(order: Any, axes: Iterable[int], shape: tuple[int, ...], *, keep: bool = False) -> Any:
    """The largest order along axes of an array of this shape."""
    if not np.shape(order):
        return order
    return jnp.max(jnp.broadcast_to(order, shape), axis=tuple(axes), keepdims=keep, initial=EXACT)


def top(x: Germ) -> Any:
    """The highest power with a coefficient other than 0, or the remainder's order where that is higher."""
    highest = x.order
    for power in x.powers:
        highest = jnp.maximum(highest, jnp.where(x.known(power) != 0, float(power), EXACT))
    if x.wild and 0 in x.terms:
        highest = jnp.where(jnp.isinf(x.terms[0]), UNKNOWN, highest)
    return highest


def highest_order(orders: Iterable[Any]) -> Any:
    """The largest, element by element."""
    return reduce(jnp.maximum, [jnp.asarray(order, jnp.float32) for order in orders])
