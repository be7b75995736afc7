"""Images in batches of one size, as compiled programs take them."""

from collections.abc import Iterable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num

from preload_jax.checks import check_images, require_pixels
from preload_jax.errors import UserError
from preload_jax.integers import require_integer


def admitted(images: np.ndarray, batch_size: Any) -> tuple[np.ndarray, int]:
    """(the images as a network takes them, the batch's size), after a look at both.

    Raises:
        UserError: for no images, another type of numbers or shape, images that are not finite, or a size below 1.
    """
    images = as_network_takes(images)
    check_images(images)
    return images, require_integer("batch_size", batch_size, at_least=1)


def as_network_takes(images: np.ndarray) -> np.ndarray:
    """The images in this machine's byte order, float64 and longer as float32: what overflows there is infinite.

    Integers but uint8 as int32, if they fit: JAX would turn those that do not into others.
    """
    if images.dtype.kind in "iu" and images.dtype != np.uint8:
        if images.size and not (images.min() >= -(2**31) and images.max() < 2**31):
            raise UserError(f"inputs run from {images.min()} to {images.max()}; expected integers of 32 bits")
        return images.astype(np.int32)
    with np.errstate(over="ignore"):
        if images.dtype.kind == "f" and images.dtype.itemsize > 4:
            return images.astype(np.float32)
        return images if images.dtype.isnative else images.astype(images.dtype.newbyteorder("="))


def of_type(dtype: Any, images: np.ndarray, *, given: Any, name: str = "images") -> np.ndarray:
    """The inputs for a network that takes numbers of a type, see `variables.input_type`; `given` is theirs at first.

    Raises:
        UserError: for integers where the network takes floating point, and the other way round.
    """
    if dtype == np.int32:
        if images.dtype.kind not in "iu":
            raise UserError(f"{name} of type {given}; the network takes integers, such as tokens")
        if images.size and images.min() < 0:
            raise UserError(
                f"{name} hold {images.min()}; expected integers of at least 0: an embedding counts negative ones from"
                " its end, so give padding a token of its own"
            )
        return images.astype(np.int32)
    require_pixels(images, given=given, name=name)
    return images


def padded(images: np.ndarray, batch_size: int) -> Iterator[tuple[np.ndarray, int]]:
    """(a batch, how many of its rows are images): all of one size, the last filled up.

    It is filled up with its last image: a network may have a loop that never ends for an input that nobody gave.
    """
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        missing = np.broadcast_to(batch[-1:], (batch_size - len(batch), *batch.shape[1:]))
        yield (np.concatenate([batch, missing]) if len(missing) else batch), len(batch)


def regrouped(batches: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """The same inputs in batches of one size, but for the last.

    Raises:
        UserError: for a batch of another shape or type than the first.
    """
    held: list[np.ndarray] = []
    count = 0
    for number, batch in enumerate(batches):
        if held and (batch.shape[1:], batch.dtype) != (held[0].shape[1:], held[0].dtype):
            raise UserError(
                f"batch {number} is {batch.dtype} {list(batch.shape)}, those before {held[0].dtype} [n,"
                f" {', '.join(map(str, held[0].shape[1:]))}]; expected one type and shape"
            )
        held, count = [*held, batch], count + len(batch)
        if count >= size:
            joined = np.concatenate(held)
            full = count // size * size
            yield from (joined[start : start + size] for start in range(0, full, size))
            held, count = [joined[full:]], count - full
    if count:
        yield np.concatenate(held)


def to_float(images: Num[Array, "n ..."]) -> Num[Array, "n ..."]:
    """uint8 in [0, 255] → float32 in [0, 1]; other numbers are returned as they are."""
    return images.astype(jnp.float32) / 255.0 if images.dtype == jnp.uint8 else images
