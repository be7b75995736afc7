"""LeNet, the paper's network for MNIST and Fashion-MNIST."""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.errors import UserError
from preload_jax.integers import require_integer, require_integers
from preload_jax.models.conv_pool import conv_max_pool
from preload_jax.models.initializers import torch_bias_init, torch_kernel_init
from preload_jax.models.layers import check_dropout, drop


class LeNet(nn.Module):
    """conv 5×5×32 – pool – conv 5×5×64 – pool – dense 1024, ReLU after each: G(x) of width 1024.

    Images [batch, h, w, channels] in [0, 1], h and w divisible by 4; features [batch, 1024].
    The computation runs in `dtype`, parameters stay in float32.

    Attributes:
        channels: outputs of the two convolutions.
        width: d, of the dense layer.
        dropout: rate after the dense layer, in training, and for `MCDropout`; then it needs an rng named "dropout".
        dtype: of the computation.

    Raises:
        UserError: for other heights and widths, channels or a width that are not positive, or a dropout outside
            [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models import LeNet
        >>> features, variables = LeNet().init_with_output(jax.random.key(0), jnp.ones((2, 28, 28, 1)))
        >>> features.shape
        (2, 1024)
    """

    channels: tuple[int, int] = (32, 64)
    width: int = 1024
    dropout: float = 0.0
    dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        what = "two integers, of the two convolutions"
        first, second = require_integers("channels", self.channels, what=what, at_least=1, count=2)
        self.channels = first, second
        self.width = require_integer("width", self.width, at_least=1)
        self.dropout = check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, images: Float[Array, "n h w c"], *, train: bool = False) -> Float[Array, "n d"]:
        height, width = images.shape[1:3]
        if height % 4 or width % 4 or 0 in (height, width):
            raise UserError(f"LeNet needs images whose height and width are divisible by 4, got {height}×{width}")
        x = images.astype(self.dtype)
        for i, channels in enumerate(self.channels):
            x = _ConvPoolReLU(channels, self.dtype, name=f"conv{i + 1}")(x)
        x = jax.lax.collapse(x, 1)
        x = nn.Dense(
            self.width,
            dtype=self.dtype,
            kernel_init=torch_kernel_init,
            bias_init=torch_bias_init(x.shape[-1]),
            name="dense",
        )(x)
        return drop(nn.relu(x), self.dropout, train, name="dropout")


class _ConvPoolReLU(nn.Module):
    """Convolution 5×5 – 2×2 max pooling – ReLU; parameters "kernel" and "bias", as `nn.Conv` has."""

    channels: int
    dtype: Any

    @nn.compact
    def __call__(self, x: Float[Array, "n h w c"]) -> Float[Array, "n h2 w2 c2"]:
        shape = (5, 5, x.shape[-1], self.channels)
        kernel = self.param("kernel", torch_kernel_init, shape, jnp.float32)
        bias = self.param("bias", torch_bias_init(math.prod(shape[:-1])), (self.channels,), jnp.float32)
        kernel, bias = kernel.astype(self.dtype), bias.astype(self.dtype)
        # Pooling first is the same function (adding a channel's bias and ReLU are monotone, rounding too) and leaves
        # the rest a quarter of the work.
        return nn.relu(conv_max_pool(x, kernel) + bias[None, None, None])
