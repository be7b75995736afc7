"""Norms that do not overflow where the vector itself does not."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def norm(x: Float[Array, "n d"]) -> Float[Array, "n"]:
    """‖x‖ of each row: of the row over its largest entry, times that."""
    largest, scaled = _scaled(x)
    return largest[:, 0] * jnp.sqrt(jnp.sum(jnp.square(scaled), axis=-1))


def unit(x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Each row over its norm; 0 stays 0."""
    _, scaled = _scaled(x)
    length = jnp.sqrt(jnp.sum(jnp.square(scaled), axis=-1, keepdims=True))
    return scaled / jnp.where(length > 0.0, length, 1.0)


def _scaled(x: Array) -> tuple[Array, Array]:
    largest = jnp.max(jnp.abs(x), axis=-1, keepdims=True)
    return largest, x / jnp.where(largest > 0.0, largest, 1.0)
