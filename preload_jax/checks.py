"""Checks for the functions that users call with data of their own; they look at values, so they run outside of jit."""

import math
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.errors import UserError
from preload_jax.integers import as_float, shown

# Of rounding, when images are resized or normalised.
_RANGE_SLACK = 0.02
# Of longer products OpenBLAS gives shares to threads, which are no faster, and keep a core busy long after.
_WITHOUT_THREADS = 8192


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
    if isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float64) and values.flags.c_contiguous:
        # One fast pass that suffices mostly: squares whose sum is finite are all finite.
        flat = values.reshape(-1)
        whole = len(flat) - len(flat) % _WITHOUT_THREADS
        rows, rest = flat[:whole].reshape(-1, _WITHOUT_THREADS), flat[whole:]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.vecdot(rows, rows).sum() + np.dot(rest, rest)):
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


def as_array(values: Any, *, name: str) -> np.ndarray:
    """The values as NumPy sees them; a memory-mapped array stays one.

    Raises:
        UserError: for what is no array of numbers, such as rows of different lengths, and for masked arrays.
    """
    require_unmasked(values)
    try:
        return np.asanyarray(values)
    except (ValueError, TypeError) as error:
        raise UserError(f"{name} are no array ({str(error).split(' The detected')[0]}); expected rows alike") from None


def is_real(dtype: Any) -> bool:
    """Whether a type is of integers or floating point, bfloat16 too; booleans are none."""
    return np.dtype(dtype).kind in "iu" or jnp.issubdtype(dtype, jnp.floating)


def finite_or_none(value: Any) -> float | None:
    """The number as JSON has it: it has no infinity, which is null."""
    return float(value) if math.isfinite(value) else None


def require_number(
    name: str, value: Any, *, at_least: float = -math.inf, above: float = -math.inf, at_most: float = math.inf
) -> float:
    """The value as a float, if it is one finite real number (no bool, no array of several) in a range.

    Raises:
        UserError: when it is not.
    """
    scalar = isinstance(value, np.ndarray | jax.Array) and value.ndim == 0
    real = value.item() if scalar else value
    if isinstance(real, bool | np.bool_) or not isinstance(real, Real):
        raise UserError(f"{name} must be a number, got {value!r}")
    number = as_float(real)
    if not (math.isfinite(number) and at_least <= number <= at_most and number > above):
        bounds = (("above", above), ("at least", at_least), ("at most", at_most))
        wanted = ["finite", *(f"{words} {bound:g}" for words, bound in bounds if math.isfinite(bound))]
        raise UserError(f"{name} must be {' and '.join(wanted)}, got {shown(value)}")
    return number


def unit_of(images: Any) -> float:
    """Which number is 1 for the network: 255 of uint8, which it takes as [0, 1], and 1 of all other types."""
    return 255.0 if images.dtype == np.uint8 else 1.0


def as_points(images: Any, *, shape: tuple[int, ...] | None = None, name: str = "images") -> np.ndarray:
    """The images as given, after the looks of `predict` at what a network of floating point is asked about.

    Args:
        images: uint8, or floating point as the network takes them; [n, …], n ≥ 1.
        shape: of one image; None for any.
        name: what messages call them.

    Raises:
        UserError: for no array, masked ones, other types and shapes, and what is not finite in float32.
    """
    array = as_array(images, name=name)
    check_images(array, name=name)
    require_pixels(array, given=array.dtype, name=name)
    if array.dtype.kind == "f" and array.dtype.itemsize > 4:
        with np.errstate(over="ignore"):
            require_finite(array.astype(np.float32), name=f"{name}, as float32,")
    if shape is not None and array.shape[1:] != shape:
        hint = f": for one image give {name}[None]" if array.shape == shape else ""
        raise UserError(f"{name} of shape {list(array.shape)}; expected [{', '.join(map(str, ('n', *shape)))}]{hint}")
    return array


def in_units(points: np.ndarray) -> np.ndarray:
    """The points in float64, and uint8 divided by 255."""
    return points.astype(np.float64) / unit_of(points)


def require_pixels(images: np.ndarray, *, given: Any, name: str) -> None:
    """Raises a UserError for integers but uint8; `given` is the type that the message names."""
    if images.dtype.kind in "iu" and images.dtype != np.uint8:
        raise UserError(
            f"{name} of type {given}; expected uint8 in [0, 255] or floating point in [0, 1]: the network takes"
            " floating point"
        )


def check_labels(labels: Any) -> np.ndarray:
    """The labels as an array of integers [n].

    Raises:
        UserError: for another type or shape, or integers that are no class's: negative ones, or beyond 32 bits.
    """
    numbers = as_array(labels, name="labels")
    one_hot = ": of one-hot labels, and of probabilities, give labels.argmax(axis=1)" if numbers.ndim == 2 else ""
    if numbers.dtype.kind not in "iu":
        raise UserError(
            f"labels are {numbers.dtype} {list(numbers.shape)}; expected integers 0 … K - 1, one an image{one_hot}"
        )
    if numbers.ndim != 1:
        raise UserError(f"labels of shape {list(numbers.shape)}; expected [n], one integer an image{one_hot}")
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < 2**31):
        raise UserError(f"labels run from {numbers.min()} to {numbers.max()}; expected integers 0 … K - 1")
    return numbers


def outside_unit_range(low: float | np.floating, high: float | np.floating) -> bool:
    """Whether images from `low` to `high` leave [0, 1] by more than the rounding of resizing or normalising."""
    return bool(low < -_RANGE_SLACK or high > 1.0 + _RANGE_SLACK)


def require_share(name: str, value: Any) -> float:
    """The value as a float; raises a UserError unless it is a number between 0 and 1, both excluded."""
    try:
        number = require_number(name, value, above=0.0)
    except UserError:
        number = math.nan
    if not number < 1.0:
        raise UserError(f"{name} must lie between 0 and 1, both excluded, got {shown(value)}")
    return number


def check_images(images: np.ndarray, *, name: str = "images") -> None:
    """Raises a UserError unless the inputs are finite numbers [n, …], n ≥ 1, such as images [n, h, w, c]."""
    if images.ndim < 2:
        raise UserError(
            f"{name} of shape {list(images.shape)}; expected [n, h, w, channels], or [n, …] of another rank"
        )
    if len(images) == 0:
        raise UserError(f"no {name}; give at least one")
    if not is_real(images.dtype):
        raise UserError(f"{name} of type {images.dtype}; expected uint8 in [0, 255] or floating point in [0, 1]")
    require_finite(images, name=name)


def unlike_images(low: float, high: float) -> bool:
    """Whether floating-point numbers from `low` to `high` are not of the scale that images have in [0, 1]."""
    return outside_unit_range(low, high) or 0.0 < high <= 1.0 / 255.0
