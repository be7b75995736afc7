"""LeNet, the paper's network for MNIST and Fashion-MNIST."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.models.initializers import torch_bias_init, torch_kernel_init


class LeNet(nn.Module):
    """conv 5×5×32 – pool – conv 5×5×64 – pool – dense 1024, ReLU after each: G(x) of width 1024.

    Images [batch, h, w, channels] in [0, 1], h and w divisible by 4; features [batch, 1024].
    The computation runs in `dtype`, parameters stay in float32.
    """

    channels: tuple[int, int] = (32, 64)
    width: int = 1024
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "n h w c"], *, train: bool = False) -> Float[Array, "n d"]:
        if images.shape[1] % 4 or images.shape[2] % 4:
            raise ValueError(f"LeNet needs images whose height and width are divisible by 4, got {images.shape[1:]}")
        x = images.astype(self.dtype)
        for i, channels in enumerate(self.channels):
            x = nn.Conv(
                channels,
                (5, 5),
                padding=2,
                dtype=self.dtype,
                kernel_init=torch_kernel_init,
                bias_init=torch_bias_init(25 * x.shape[-1]),
                name=f"conv{i + 1}",
            )(x)
            # Pooling first is the same function (ReLU is monotone) and leaves a quarter of the work to ReLU.
            x = nn.relu(max_pool_2x2(x))
        x = x.reshape(len(x), -1)
        x = nn.Dense(
            self.width,
            dtype=self.dtype,
            kernel_init=torch_kernel_init,
            bias_init=torch_bias_init(x.shape[-1]),
            name="dense",
        )(x)
        return nn.relu(x)


def max_pool_2x2(x: Float[Array, "n h w c"]) -> Float[Array, "n h2 w2 c"]:
    """Maximum over 2×2 windows that do not overlap; its gradient needs no scatter, unlike `nn.max_pool`'s."""
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))
