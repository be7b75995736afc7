"""WideResNet-16-4, the paper's network for SVHN, CIFAR-10 and CIFAR-100 (Zagoruyko and Komodakis, 2016)."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from preload_jax.checks import require_integer, require_number
from preload_jax.errors import UserError
from preload_jax.models.guards import overflow_guard
from preload_jax.models.initializers import fan_out_normal_init

# Activations are limited to this magnitude in evaluation mode: a chain of batch norms with tiny running variances
# multiplies by 316 a layer, and would overflow far away from the data.
MAX_ACTIVATION = 1e30


class WideResNet(nn.Module):
    """Pre-activation residual network: conv – three groups of blocks – BN – ReLU – average pool: G(x).

    Images [batch, h, w, channels] in [0, 1]; features [batch, 64 · widen_factor], which are ≥ 0.
    With `train=True` dropout needs an rng named "dropout" and BN updates the collection "batch_stats".

    Attributes:
        depth: 6 · (blocks a group) + 4.
        widen_factor: multiplies the groups' 16, 32 and 64 channels.
        dropout: rate between a block's two convolutions.
        dtype: of the computation; parameters and BN statistics stay in float32.
        axis_name: of a `jax.pmap`, to average BN statistics over; None under plain jit, where a sharded batch already
            has one mean.

    Raises:
        UserError: for another depth, or a dropout or widening that makes no sense.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models import WideResNet
        >>> network = WideResNet(depth=10, widen_factor=1)
        >>> features, variables = network.init_with_output(jax.random.key(0), jnp.ones((2, 8, 8, 3)))
        >>> features.shape, sorted(variables)
        ((2, 64), ['batch_stats', 'params'])
    """

    depth: int = 16
    widen_factor: int = 4
    dropout: float = 0.3
    dtype: Any = jnp.float32
    axis_name: str | None = None

    def __post_init__(self) -> None:
        if require_integer("depth", self.depth, at_least=10) % 6 != 4:
            raise UserError(f"depth must be 6·n + 4 with n >= 1, got {self.depth}")
        require_integer("widen_factor", self.widen_factor, at_least=1)
        if not 0.0 <= require_number("dropout", self.dropout) < 1.0:
            raise UserError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        super().__post_init__()

    @nn.compact
    def __call__(self, images: Float[Array, "n h w c"], *, train: bool = False) -> Float[Array, "n d"]:
        block = partial(_Block, dropout=self.dropout, dtype=self.dtype, axis_name=self.axis_name)
        x = _conv(16, 3, 1, self.dtype, name="conv")(images.astype(self.dtype))
        for group, stride in enumerate((1, 2, 2), start=1):
            for i in range((self.depth - 4) // 6):
                channels = 16 * self.widen_factor * 2 ** (group - 1)
                x = block(channels, stride if i == 0 else 1, name=f"group{group}_block{i}")(x, train=train)
        x = _relu(_batch_norm(train, self.dtype, self.axis_name, name="bn")(x), train)
        return x.mean(axis=(1, 2), dtype=jnp.float64 if self.dtype == jnp.float64 else jnp.float32)


class _Block(nn.Module):
    """BN – ReLU – conv 3×3 – BN – ReLU – dropout – conv 3×3, plus the shortcut."""

    channels: int
    stride: int
    dropout: float
    dtype: Any
    axis_name: str | None

    @nn.compact
    def __call__(self, x: Float[Array, "n h w c"], *, train: bool) -> Float[Array, "n h2 w2 c2"]:
        y = _relu(_batch_norm(train, self.dtype, self.axis_name, name="bn1")(x), train)
        if x.shape[-1] == self.channels:
            shortcut = x
        else:
            # Where the width changes the shortcut starts from the pre-activated input, as in the released code.
            shortcut = _conv(self.channels, 1, self.stride, self.dtype, name="shortcut")(y)
        y = _conv(self.channels, 3, self.stride, self.dtype, name="conv1")(y)
        y = _relu(_batch_norm(train, self.dtype, self.axis_name, name="bn2")(y), train)
        y = _Dropout(self.dropout, name="Dropout_0")(y, train=train)
        return shortcut + _conv(self.channels, 3, 1, self.dtype, name="conv2")(y)


class _Dropout(nn.Module):
    """`nn.Dropout`, to the bit where it has this one's name; on a TPU each mask is drawn once.

    There XLA would fuse a mask into each convolution that uses it, gradients included, and draw it again for all.
    """

    rate: float

    @nn.compact
    def __call__(self, x: Float[Array, "n h w c"], *, train: bool) -> Float[Array, "n h w c"]:
        if not train or self.rate == 0.0:
            return x
        keep = 1.0 - self.rate
        mask = jax.random.bernoulli(self.make_rng("dropout"), keep, x.shape)
        mask = lax.platform_dependent(mask, tpu=lax.optimization_barrier, default=lambda mask: mask)
        return jnp.where(mask, x / keep, jnp.zeros_like(x))


def _relu(x: Array, train: bool) -> Array:
    # In training the batch's own variance keeps activations small; the limit would only cost time there.
    return nn.relu(x) if train else _limit(nn.relu(x))


@overflow_guard
def _limit(x: Array) -> Array:
    return jnp.minimum(x, MAX_ACTIVATION)


def _conv(channels: int, size: int, stride: int, dtype: Any, *, name: str) -> nn.Conv:
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


class _BatchNorm(nn.BatchNorm):
    """Flax's, which mixes float32 statistics with activations of half precision."""

    def __call__(self, x: Array, *arguments: Any, **options: Any) -> Array:
        # A strict setting of the user's would refuse that.
        with jax.numpy_dtype_promotion("standard"):
            return super().__call__(x, *arguments, **options)


def _batch_norm(train: bool, dtype: Any, axis_name: str | None, *, name: str) -> _BatchNorm:
    # Flax's momentum 0.9 is torch's 0.1, the paper's; Flax's default is 0.99.
    return _BatchNorm(
        use_running_average=not train, momentum=0.9, epsilon=1e-5, dtype=dtype, axis_name=axis_name, name=name
    )
