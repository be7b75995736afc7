"""Where the next comparison changes along a ray: the end of an affine piece.

Just beyond a point x(t₀ + ε) = c₀ + c₋₁ ε + …  With τ = 1/ε that is a germ like any other: its highest power, 0,
decides a comparison first, and then the slope.  So one interpreter answers both questions, what is far away and what is
here.  Comparisons are taken as they are here, with no allowance for rounding, and each says how far ahead it changes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax.numpy as jnp

from preload_jax.guarantees.germs import germ
from preload_jax.guarantees.germs.germ import Germ

_steps: ContextVar[list[Any] | None] = ContextVar("steps", default=None)


@contextmanager
def recorded() -> Iterator[list[Any]]:
    """The steps ε > 0 to the crossings of every comparison that is traced meanwhile; infinite where there is none."""
    found: list[Any] = []
    token = _steps.set(found)
    try:
        yield found
    finally:
        _steps.reset(token)


def recording() -> bool:
    return _steps.get() is not None


def tolerance(power: int, *values: Germ) -> Any:
    """A coefficient's difference from another must be larger to be one; no allowance on a finite piece."""
    return germ.tolerance(power, *values) if not recording() else germ.ZERO


def note(a: Germ, b: Germ) -> None:
    """How far ahead a and b cross; NaN where they are not affine here, so that no one knows."""
    steps = _steps.get()
    if steps is not None:
        dtype = germ.dtype_of(a, b)
        gap, slope = (germ.coefficient(a, p, dtype) - germ.coefficient(b, p, dtype) for p in (0, -1))
        # A slope that only rounding may have made is followed, too: a piece too many does no harm.
        crosses = jnp.sign(gap) * jnp.sign(slope) < 0
        ahead = jnp.where(crosses, -gap / jnp.where(crosses, slope, 1.0), jnp.inf)
        curved = jnp.any(a.order > germ.EXACT) | jnp.any(b.order > germ.EXACT)
        for x in (a, b):
            for p in (p for p in x.powers if p not in (0, -1)):
                curved |= jnp.any(x.terms[p] != 0)
        steps.append(jnp.where(curved, jnp.nan, jnp.min(ahead, initial=jnp.inf)))
