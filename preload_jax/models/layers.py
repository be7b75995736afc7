"""Layers that several networks share, with torch's paddings and initial values."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from preload_jax.checks import require_number
from preload_jax.errors import UserError
from preload_jax.integers import as_listed
from preload_jax.models.guards import overflow_guard
from preload_jax.models.initializers import fan_out_normal_init

# Activations are limited to this magnitude in evaluation mode: a chain of batch norms with tiny running variances
# multiplies by 316 a layer, and would overflow far away from the data.
MAX_ACTIVATION = 1e30


def conv(channels: int, size: int, stride: int, dtype: Any, *, name: str) -> nn.Conv:
    """A convolution without offsets."""
    # "SAME" with stride 2 would pad on one side only; torch pads both.
    padding = (size - 1) // 2
    return nn.Conv(
        channels,
        (size, size),
        strides=stride,
        padding=padding,
        use_bias=False,
        dtype=dtype,
        kernel_init=fan_out_normal_init,
        name=name,
    )


def relu(x: Array, train: bool) -> Array:
    """max(x, 0)."""
    # In training the batch's own variance keeps activations small; the limit would only cost time there.
    return nn.relu(x) if train else _limit(nn.relu(x))


@overflow_guard
def _limit(x: Array) -> Array:
    return jnp.minimum(x, MAX_ACTIVATION)


class _BatchNorm(nn.BatchNorm):
    """Flax's, which mixes float32 statistics with activations of half precision."""

    def __call__(self, x: Array, *arguments: Any, **options: Any) -> Array:
        # A strict setting of the user's would refuse that.
        with jax.numpy_dtype_promotion("standard"):
            return super().__call__(x, *arguments, **options)


def batch_norm(train: bool, dtype: Any, axis_name: str | None, *, name: str) -> nn.BatchNorm:
    """A batch norm with torch's momentum."""
    # Flax's momentum 0.9 is torch's 0.1, the paper's; Flax's default is 0.99.
    return _BatchNorm(
        use_running_average=not train, momentum=0.9, epsilon=1e-5, dtype=dtype, axis_name=axis_name, name=name
    )


# The random numbers that keep dropout on in evaluation mode, see `models.MCDropout`.
MC_DROPOUT = "mc_dropout"


class Dropout(nn.Module):
    """`nn.Dropout`, to the bit where it has this one's name; on a TPU each mask is drawn once.

    There XLA would fuse a mask into each convolution that uses it, gradients included, and draw it again for all.

    In evaluation mode it does nothing, unless random numbers named `MC_DROPOUT` are given: then one mask is drawn for
    all inputs of the batch, so that a network is drawn, and an input's answer does not depend on its batch.
    """

    rate: float

    @nn.compact
    def __call__(self, x: Float[Array, "n ..."], *, train: bool) -> Float[Array, "n ..."]:
        drawn = not train and self.has_rng(MC_DROPOUT)
        if self.rate == 0.0 or not (train or drawn):
            return x
        keep = 1.0 - self.rate
        shape = (1, *x.shape[1:]) if drawn else x.shape
        mask = jax.random.bernoulli(self.make_rng(MC_DROPOUT if drawn else "dropout"), keep, shape)
        mask = lax.platform_dependent(mask, tpu=lax.optimization_barrier, default=lambda mask: mask)
        return jnp.where(mask, x / keep, jnp.zeros_like(x))


def drop(x: Array, rate: float, train: bool, *, name: str) -> Array:
    """A `Dropout` of this name in the calling module; without a rate there is no layer at all."""
    return Dropout(rate, name=name)(x, train=train) if rate else x


def check_dropout(rate: Any) -> float:
    """A dropout rate as a float.

    Raises:
        UserError: unless it is at least 0 and below 1.
    """
    number = require_number("dropout", rate)
    if not 0.0 <= number < 1.0:
        raise UserError(f"dropout must be at least 0 and below 1, got {rate}")
    return number


def accumulator(dtype: Any) -> Any:
    """The type that sums over many values have: float32, or float64 where the computation is."""
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def global_mean(x: Float[Array, "n h w c"], dtype: Any) -> Float[Array, "n c"]:
    """The mean over all pixels."""
    return x.mean(axis=(1, 2), dtype=accumulator(dtype))


def check_normalisation(mean: Any, std: Any) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """The channels' mean and standard deviation as tuples of floats; (None, None) for none.

    Raises:
        UserError: unless both or neither are given, as long as each other, finite, and std is positive.
    """
    if mean is None and std is None:
        return None, None
    mean, std = as_listed(mean), as_listed(std)
    if not all(isinstance(each, Sequence) and not isinstance(each, str) and each for each in (mean, std)):
        raise UserError(f"mean and std must both be given, a number a channel each, got {mean!r} and {std!r}")
    if len(mean) != len(std):
        raise UserError(f"mean has {len(mean)} numbers and std has {len(std)}; expected one a channel in both")
    return (
        tuple(require_number("mean", value) for value in mean),
        tuple(require_number("std", value, above=0.0) for value in std),
    )


def normalised(images: Array, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> Array:
    """(x − mean) / std of each channel; x itself where they are None.

    Raises:
        UserError: for images of another number of channels.
    """
    if mean is None or std is None:
        return images
    if images.shape[-1] != len(mean):
        raise UserError(f"the network normalises {len(mean)} channels, the images have {images.shape[-1]}")
    shape = (1,) * (images.ndim - 1) + (len(mean),)
    return (images - jnp.array(mean, images.dtype).reshape(shape)) / jnp.array(std, images.dtype).reshape(shape)


def require_side(images: Array, at_least: int, *, network: str) -> None:
    """Raises a UserError for images [n, h, w, c] that are smaller on a side."""
    height, width = images.shape[1:3]
    if min(height, width) < at_least:
        raise UserError(f"{network} needs images of at least {at_least}×{at_least} pixels, got {height}×{width}")
