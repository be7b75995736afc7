"""A small convolutional network that trains on a CPU in minutes."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.integers import require_integers
from preload_jax.models.layers import batch_norm, check_dropout, conv, drop, global_mean, relu, require_side


class ConvNet(nn.Module):
    """Blocks of conv 3×3 – BN – ReLU – max pool 2×2, and an average pool: G(x).

    Images [batch, h, w, channels] in [0, 1] with sides of at least 2 ** (number of blocks) pixels; features
    [batch, channels[-1]], which are ≥ 0.  With `train=True` BN updates the collection "batch_stats".

    Attributes:
        channels: outputs of each block.
        dropout: rate after the average pool, in training, and for `MCDropout`; then it needs an rng named "dropout".
        dtype: of the computation; parameters and BN statistics stay in float32.
        axis_name: of a `jax.pmap`, to average BN statistics over.

    Raises:
        UserError: for channels that are not positive integers, a dropout outside [0, 1), and for smaller images.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models import ConvNet
        >>> features, _ = ConvNet(channels=(4, 6)).init_with_output(jax.random.key(0), jnp.ones((2, 9, 8, 1)))
        >>> features.shape
        (2, 6)
    """

    channels: tuple[int, ...] = (32, 64, 128)
    dropout: float = 0.0
    dtype: Any = jnp.float32
    axis_name: str | None = None

    def __post_init__(self) -> None:
        what = "a list of integers, one for each block"
        self.channels = require_integers("channels", self.channels, what=what, at_least=1)
        self.dropout = check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, images: Float[Array, "n h w c"], *, train: bool = False) -> Float[Array, "n d"]:
        require_side(images, 2 ** len(self.channels), network=f"a ConvNet of {len(self.channels)} blocks")
        x = images.astype(self.dtype)
        for i, channels in enumerate(self.channels, start=1):
            x = conv(channels, 3, 1, self.dtype, name=f"conv{i}")(x)
            x = relu(batch_norm(train, self.dtype, self.axis_name, name=f"bn{i}")(x), train)
            x = nn.max_pool(x, (2, 2), strides=(2, 2))
        return drop(global_mean(x, self.dtype), self.dropout, train, name="dropout")
