"""Limits that keep float32 from overflowing, marked so that what reads a network can tell them from its layers."""

from collections.abc import Callable

import jax
from jaxtyping import Array

# In exact arithmetic a compiled function of this name is its first argument.  No function of a user's has it.
GUARD = "<preload_jax.overflow_guard>"


def overflow_guard(function: Callable[..., Array]) -> Callable[..., Array]:
    """Marks a function that returns its first argument, limited to magnitudes that only an overflow exceeds.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models.guards import overflow_guard
        >>> limited = overflow_guard(lambda x: jnp.minimum(x, 1e30))
        >>> jax.make_jaxpr(limited)(1.0).eqns[0].params["name"]
        '<preload_jax.overflow_guard>'
    """

    def guarded(*args: Array) -> Array:
        return function(*args)

    guarded.__name__ = guarded.__qualname__ = GUARD
    return jax.jit(guarded)
