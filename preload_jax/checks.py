"""Checks for the functions that users call with data of their own; they look at values, so they run outside of jit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.errors import UserError


def require_finite(values: Any, *, name: str = "images") -> None:
    """Raise when an array holds NaN or ±infinity.

    Args:
        values: [n, ...], NumPy or JAX, of any type; integers and booleans are finite and are not looked at.
        name: what the message calls the array.

    Raises:
        UserError: with how many of the n examples are affected and the index of the first.
    """
    if not jnp.issubdtype(values.dtype, jnp.inexact):
        return
    # Where the array is, the reduction is: a device array is not copied to the host for it.
    numpy = jnp if isinstance(values, jax.Array) else np
    finite = np.atleast_1d(numpy.isfinite(values).all(axis=tuple(range(1, values.ndim))))
    if not finite.all():
        bad = np.flatnonzero(~finite)
        raise UserError(
            f"{name} hold NaN or infinity in {len(bad)} of {len(finite)} examples, first in example {bad[0]}; "
            f"expected finite numbers: repair or drop those examples"
        )


def require_unmasked(*arrays: Any) -> None:
    """Raises a UserError for NumPy's masked arrays: what they hide would count."""
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        raise UserError("a masked array was given; its hidden values would count: fill them, or drop those examples")


def check_images(images: np.ndarray) -> None:
    """Raises a UserError unless the images are uint8 or finite floating-point numbers [n, h, w, c], n ≥ 1."""
    if images.ndim != 4:
        raise UserError(f"images of shape {list(images.shape)}; expected [n, h, w, channels]")
    if len(images) == 0:
        raise UserError("no images; give at least one")
    if images.dtype != np.uint8 and not jnp.issubdtype(images.dtype, jnp.floating):
        raise UserError(f"images of type {images.dtype}; expected uint8 in [0, 255] or floating point in [0, 1]")
    require_finite(images)
