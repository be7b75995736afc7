"""Functions of one number: their limit where the argument grows, their Taylor series where it has a limit."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from preload_jax.guarantees.germs import germ
from preload_jax.guarantees.germs.germ import EXACT, FADING, LOWEST, UNKNOWN, Germ


@dataclass(frozen=True)
class Limits:
    """Of a function at −∞ and at +∞, approached exponentially fast; NaN where there is none that a germ can hold."""

    low: float
    high: float
    bounded: bool = True


_NONE = Limits(jnp.nan, jnp.nan, bounded=False)
FUNCTIONS: dict[str, Limits] = {
    "tanh": Limits(-1.0, 1.0),
    "logistic": Limits(0.0, 1.0),
    "erf": Limits(-1.0, 1.0),
    "erfc": Limits(2.0, 0.0),
    "exp": Limits(0.0, jnp.inf, bounded=False),
    "exp2": Limits(0.0, jnp.inf, bounded=False),
    "expm1": Limits(-1.0, jnp.inf, bounded=False),
    "log": _NONE,
    "log1p": _NONE,
    "sin": Limits(jnp.nan, jnp.nan),
    "cos": Limits(jnp.nan, jnp.nan),
}


def apply(function: Callable[[Any], Any], limits: Limits, x: Germ) -> tuple[Germ, Any]:
    """function(x), and whether an element outgrows every power of t."""
    dtype, shape = germ.dtype_of(x), x.shape
    direction, unclear = _growth(x)
    grows = direction != 0
    centre = jnp.where(grows, 0.0, x.known(0) if 0 in x.terms else jnp.zeros(shape, dtype))
    limit = jnp.where(direction > 0, limits.high, limits.low).astype(dtype)
    value, first, second = _derivatives(function, centre)
    terms = {0: jnp.where(grows, limit, value)}
    # Without a limit: anything within its bounds, or anything at all, as the logarithm of what fades.
    nowhere = ~jnp.isfinite(value) & ~grows
    if limits.bounded:
        nowhere |= grows & jnp.isnan(limit)
        terms[0] = jnp.where(nowhere, 0.0, terms[0])
    small = {p: jnp.where(grows, 0.0, x.known(p)) for p in x.powers if p < 0}
    moves = jnp.zeros(shape, bool)
    for term in small.values():
        moves |= term != 0
    if small:
        zero = jnp.zeros(shape, dtype)
        one, two = small.get(-1, zero), small.get(-2, zero)
        terms[-1] = jnp.where(one == 0, 0.0, first * one)
        terms[-2] = jnp.where(moves, first * two + 0.5 * second * one**2, 0.0)
    stays = ~grows
    within = jnp.maximum(x.order, jnp.where(moves, LOWEST - 1.0, EXACT))
    inside = jnp.where(x.order < 0, within, 0.0 if limits.bounded else UNKNOWN)
    order = germ.highest_order(
        [
            jnp.where(grows, FADING, EXACT),
            jnp.where(stays, inside, EXACT),
            jnp.where(unclear | nowhere, 0.0 if limits.bounded else UNKNOWN, EXACT),
        ]
    )
    noise = {p: jnp.finfo(dtype).eps * jnp.abs(term) for p, term in terms.items()}
    if 0 in x.terms:
        noise[0] += jnp.where(grows, 0.0, jnp.abs(first) * x.noise[0])
    if small:
        curved = jnp.abs(second) * x.noise.get(0, germ.ZERO)
        noise[-1] += jnp.abs(first) * x.noise.get(-1, germ.ZERO) + curved * jnp.abs(one)
        noise[-2] += jnp.abs(first) * x.noise.get(-2, germ.ZERO) + curved * (jnp.abs(two) + one**2)
    outgrown = jnp.any(jnp.isinf(terms[0]) & grows)
    wild = math.isinf(limits.high) and (x.wild or max(x.powers, default=0) > 0)
    return germ.make(terms, order, noise, shape=shape, wild=wild), outgrown


def _growth(x: Germ) -> tuple[Any, Any]:
    """±1 where x tends to ±∞, 0 where not; and where rounding errors may decide that."""
    direction = jnp.zeros(x.shape, jnp.int8)
    unclear = jnp.zeros(x.shape, bool)
    if x.wild and 0 in x.terms:
        direction = jnp.where(jnp.isinf(x.terms[0]), jnp.sign(x.terms[0]), direction).astype(jnp.int8)
    for p in (p for p in x.powers if p > 0):
        lead = x.known(p)
        pending = (direction == 0) & ~unclear
        unclear |= pending & ~((jnp.abs(lead) > germ.tolerance(p, x)) | (lead == 0))
        direction = jnp.where(pending & ~unclear, jnp.sign(lead), direction).astype(jnp.int8)
    return direction, unclear


def _derivatives(function: Callable[[Any], Any], x: Any) -> tuple[Any, Any, Any]:
    one = jnp.ones_like(x)

    def slope(y: Any) -> Any:
        return jax.jvp(function, (y,), (one,))[1]

    first, second = jax.jvp(slope, (x,), (one,))
    return function(x), first, second
