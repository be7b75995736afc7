"""What rays are given by: directions, of which only where they point counts, and starts, which are images."""

from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax.checks import as_array, as_points, in_units, is_real, require_finite
from preload_jax.errors import UserError


def read_directions(directions: Any) -> Float[np.ndarray, "n ..."]:
    """The directions in float64, of the length that they have.

    Raises:
        UserError: for no array [n, …] of real numbers, or one that is not finite.
    """
    array = as_array(directions, name="directions")
    if not is_real(array.dtype):
        raise UserError(f"directions are of type {array.dtype}; expected real numbers [n, …], an input's shape each")
    if array.ndim < 2 or not array.size:
        raise UserError(
            f"directions have shape {list(array.shape)}; give at least one, [n, …], an input's shape each: random ones"
            " are numpy.random.default_rng(0).normal(size=(n, *shape))"
        )
    with np.errstate(over="ignore"):
        array = array.astype(np.float64)
    require_finite(array, name="directions")
    return array


def require_directions(directions: np.ndarray) -> None:
    """Raises a UserError where a direction is 0."""
    moving = directions.reshape(len(directions), -1).any(axis=1)
    if not moving.all():
        raise UserError(f"direction {int(np.argmin(moving))} is 0; expected non-zero directions: drop it")


def unit_directions(directions: Any, dtype: Any = np.float32) -> Float[np.ndarray, "n ..."]:
    """The directions scaled to Euclidean length 1; integers are directions as they are, uint8 too.

    Raises:
        UserError: when one is 0 or not finite, and for no array [n, …] of real numbers.
    """
    array = read_directions(directions)
    require_directions(array)
    rows = array.reshape(len(array), -1)
    # The square of a large number would be infinite, that of a small one 0.
    rows = rows / np.abs(rows).max(axis=1, keepdims=True)
    return (rows / np.linalg.norm(rows, axis=1)[:, None]).reshape(array.shape).astype(dtype)


def single_directions(directions: Any) -> Float[np.ndarray, "n ..."]:
    """The directions in float32, of the length that they have.

    Raises:
        UserError: as `unit_directions`, and for one that float32 does not hold.
    """
    with np.errstate(over="ignore", under="ignore"):
        array = read_directions(directions).astype(np.float32)
    require_finite(array, name="directions, as float32,")
    require_directions(array)
    return array


def ray_starts(starts: Any, directions: Any) -> Float[np.ndarray, "n ..."] | None:
    """The starts of rays in the directions' type, read as `predict` reads images; None where there are none.

    Args:
        starts: [n, …], uint8, which is divided by 255, or floating point.
        directions: what has the shape that they must have, and the type that they get.

    Raises:
        UserError: for another number than one a direction, and for what `predict` refuses.
    """
    if starts is None:
        return None
    array = as_array(starts, name="starts")
    if array.shape != directions.shape:
        raise UserError(
            f"starts have shape {list(array.shape)}, directions {list(directions.shape)}; give one a direction"
        )
    points = as_points(array, name="starts")
    # The network has fractions of 255 in float32, whatever the rays' type is.
    points = in_units(points).astype(np.float32) if points.dtype == np.uint8 else points
    return points.astype(directions.dtype)
