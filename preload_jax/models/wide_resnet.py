"""WideResNet-16-4, the paper's network for SVHN, CIFAR-10 and CIFAR-100 (Zagoruyko and Komodakis, 2016)."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.errors import UserError
from preload_jax.integers import require_integer
from preload_jax.models.layers import Dropout, batch_norm, check_dropout, conv, global_mean, relu


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
        self.depth = require_integer("depth", self.depth, at_least=10)
        if self.depth % 6 != 4:
            raise UserError(f"depth must be 6·n + 4 with n >= 1, got {self.depth}")
        self.widen_factor = require_integer("widen_factor", self.widen_factor, at_least=1)
        self.dropout = check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, images: Float[Array, "n h w c"], *, train: bool = False) -> Float[Array, "n d"]:
        block = partial(_Block, dropout=self.dropout, dtype=self.dtype, axis_name=self.axis_name)
        x = conv(16, 3, 1, self.dtype, name="conv")(images.astype(self.dtype))
        for group, stride in enumerate((1, 2, 2), start=1):
            for i in range((self.depth - 4) // 6):
                channels = 16 * self.widen_factor * 2 ** (group - 1)
                x = block(channels, stride if i == 0 else 1, name=f"group{group}_block{i}")(x, train=train)
        x = relu(batch_norm(train, self.dtype, self.axis_name, name="bn")(x), train)
        return global_mean(x, self.dtype)


class _Block(nn.Module):
    """BN – ReLU – conv 3×3 – BN – ReLU – dropout – conv 3×3, plus the shortcut."""

    channels: int
    stride: int
    dropout: float
    dtype: Any
    axis_name: str | None

    @nn.compact
    def __call__(self, x: Float[Array, "n h w c"], *, train: bool) -> Float[Array, "n h2 w2 c2"]:
        y = relu(batch_norm(train, self.dtype, self.axis_name, name="bn1")(x), train)
        if x.shape[-1] == self.channels:
            shortcut = x
        else:
            # Where the width changes the shortcut starts from the pre-activated input, as in the released code.
            shortcut = conv(self.channels, 1, self.stride, self.dtype, name="shortcut")(y)
        y = conv(self.channels, 3, self.stride, self.dtype, name="conv1")(y)
        y = relu(batch_norm(train, self.dtype, self.axis_name, name="bn2")(y), train)
        y = Dropout(self.dropout, name="Dropout_0")(y, train=train)
        return shortcut + conv(self.channels, 3, 1, self.dtype, name="conv2")(y)
