"""Images in batches of one size, as compiled programs take them."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num

from preload_jax.checks import check_images, require_integer


def admitted(images: np.ndarray, batch_size: Any) -> tuple[np.ndarray, int]:
    """(the images as a network takes them, the batch's size), after a look at both.

    Raises:
        UserError: for no images, another type of numbers or shape, images that are not finite, or a size below 1.
    """
    images = as_network_takes(images)
    check_images(images)
    return images, require_integer("batch_size", batch_size, at_least=1)


def as_network_takes(images: np.ndarray) -> np.ndarray:
    """The images in this machine's byte order, float64 and longer as float32: what overflows there is infinite."""
    with np.errstate(over="ignore"):
        if images.dtype.kind == "f" and images.dtype.itemsize > 4:
            return images.astype(np.float32)
        return images if images.dtype.isnative else images.astype(images.dtype.newbyteorder("="))


def padded(images: np.ndarray, batch_size: int) -> Iterator[tuple[np.ndarray, int]]:
    """(a batch, how many of its rows are images): all of one size, the last filled up with zeros."""
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        missing = batch_size - len(batch)
        yield (np.pad(batch, ((0, missing), *((0, 0),) * (batch.ndim - 1))) if missing else batch), len(batch)


def to_float(images: Num[Array, "n h w c"]) -> Num[Array, "n h w c"]:
    """uint8 in [0, 255] → float32 in [0, 1]; floating-point images are returned as they are."""
    return images.astype(jnp.float32) / 255.0 if images.dtype == jnp.uint8 else images
