"""Norms that do not overflow where the vector itself does not."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Rows that are worked on at once on the host: they stay in a core's cache.
_ROWS = 256
# What ‖x − o‖² must be of ‖x‖² + ‖o‖² for products to tell it: two binary digits are lost.
_APART = 0.25


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
    size = jnp.where(largest > 0.0, largest, 1.0)
    # Compiled, it may be a product with 1 / size, which vanishes where size is beyond 2¹²⁶.
    part = jnp.where(size > 1.0, 0.25, 1.0).astype(size.dtype)
    return largest, (x * part) / (size * part)


def distances(
    x: Float[np.ndarray, "n d"], origin: Float[np.ndarray, "d"]
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """‖x − o‖/s of each row and s, in float64 on the host: by products with o, or of differences where those cancel.

    The scale s is 1, but for rows whose squares would overflow or vanish.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        apart = np.vecdot(x, x) + np.vecdot(origin, origin)
        squares = apart - 2.0 * (x @ origin)
        told = (squares > _APART * apart) & (squares > _least(x)) & (apart <= np.finfo(x.dtype).max)
    lengths, scales = np.sqrt(np.where(told, squares, 1.0).astype(np.float64)), np.ones(len(x))
    cancelled = np.flatnonzero(~told)
    for some, _, of_differences, scale in differences(x[cancelled], origin):
        rows = cancelled[some]
        lengths[rows], scales[rows] = np.sqrt(of_differences.astype(np.float64)), scale
    return lengths, scales


def differences(
    x: Float[np.ndarray, "n d"], origin: Float[np.ndarray, "d"]
) -> Iterator[tuple[slice, Float[np.ndarray, "m d"], Float[np.ndarray, "m"], Float[np.ndarray, "m"]]]:
    """Some rows at a time, on the host: which, (x − o)/s, its squared norm, and s.

    The scale s is 1, but for rows whose squares would overflow or vanish.  The differences are overwritten by the next.
    """
    limits, least = np.finfo(x.dtype), _least(x)
    room = np.empty((min(_ROWS, len(x)), x.shape[1]), x.dtype)
    for start in range(0, len(x), _ROWS):
        rows = slice(start, start + _ROWS)
        away = np.subtract(x[rows], origin, out=room[: len(x[rows])])
        with np.errstate(over="ignore", under="ignore"):
            squares = np.vecdot(away, away)
        scales = np.ones_like(squares)
        if not (squares.min() > least and squares.max() <= limits.max):
            largest = np.abs(away).max(axis=1)
            scales = np.where(largest > 0.0, largest, scales)
            away /= scales[:, None]
            squares = np.vecdot(away, away)
        yield rows, away, squares, scales


def _least(x: np.ndarray) -> float:
    """Sums of squares above this have lost nothing to underflow."""
    limits = np.finfo(x.dtype)
    return float(x.shape[1] * limits.tiny / limits.eps)
