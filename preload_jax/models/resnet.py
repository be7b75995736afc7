"""ResNet-18, -34 and -50 (He, Zhang, Ren and Sun, 2016), as torchvision, timm and OpenOOD have them."""

from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.errors import UserError, unknown
from preload_jax.integers import require_integer, require_integers
from preload_jax.models.layers import (
    batch_norm,
    check_dropout,
    check_normalisation,
    conv,
    drop,
    global_mean,
    normalised,
    relu,
)

STEMS = ("auto", "cifar", "imagenet")
# Pixels from which "auto" takes the stem for large images.
_LARGE = 64


class ResNet18(nn.Module):
    """Residual network of basic blocks: stem – four groups of blocks – average pool: G(x).

    A basic block is conv 3×3 – BN – ReLU – conv 3×3 – BN, plus the shortcut, and a ReLU.  The first block of each group
    after the first halves the image and doubles the channels; its shortcut is a conv 1×1 – BN.

    Images [batch, h, w, channels] in [0, 1] of any size; features [batch, 8 · width], which are ≥ 0.
    With `train=True` BN updates the collection "batch_stats".

    Attributes:
        blocks: how many blocks each group has.
        width: channels of the first group, 64 in the literature.
        stem: "cifar" is a conv 3×3, "imagenet" a conv 7×7 of stride 2 and a max pooling 3×3 of stride 2, both with BN
            and ReLU.  "auto" is "cifar" for images whose shorter side has fewer than 64 pixels, "imagenet" for others.
        mean, std: of each channel; images are first normalised as (x − mean) / std.  None: they are not.
        dropout: rate after the average pool, in training, and for `MCDropout`; then it needs an rng named "dropout".
        dtype: of the computation; parameters and BN statistics stay in float32.
        axis_name: of a `jax.pmap`, to average BN statistics over.

    Raises:
        UserError: for another stem, no blocks, a mean without std, or a dropout outside [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models import ResNet18
        >>> network = ResNet18(blocks=(1, 1), width=4)
        >>> features, variables = network.init_with_output(jax.random.key(0), jnp.ones((2, 8, 8, 3)))
        >>> features.shape, sorted(variables)
        ((2, 8), ['batch_stats', 'params'])
    """

    blocks: tuple[int, ...] = (2, 2, 2, 2)
    width: int = 64
    stem: str = "auto"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    dropout: float = 0.0
    dtype: Any = jnp.float32
    axis_name: str | None = None
    _bottleneck: ClassVar[bool] = False

    def __post_init__(self) -> None:
        what = "a list of integers, one for each group"
        self.blocks = require_integers("blocks", self.blocks, what=what, at_least=1)
        self.width = require_integer("width", self.width, at_least=1)
        if self.stem not in STEMS:
            raise UserError(unknown("stem", self.stem, STEMS))
        self.mean, self.std = check_normalisation(self.mean, self.std)
        self.dropout = check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, images: Float[Array, "n h w c"], *, train: bool = False) -> Float[Array, "n d"]:
        large = self.stem == "imagenet" or (self.stem == "auto" and min(images.shape[1:3]) >= _LARGE)
        x = normalised(images.astype(self.dtype), self.mean, self.std)
        x = conv(self.width, 7 if large else 3, 2 if large else 1, self.dtype, name="conv")(x)
        x = relu(batch_norm(train, self.dtype, self.axis_name, name="bn")(x), train)
        if large:
            x = nn.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        for group, number in enumerate(self.blocks):
            for i in range(number):
                x = _Block(
                    self.width * 2**group,
                    2 if group and i == 0 else 1,
                    self._bottleneck,
                    self.dtype,
                    self.axis_name,
                    name=f"group{group + 1}_block{i}",
                )(x, train=train)
        return drop(global_mean(x, self.dtype), self.dropout, train, name="dropout")


class ResNet34(ResNet18):
    """`ResNet18` with more blocks.  Features [batch, 8 · width].

    Example:
        >>> from preload_jax.models import ResNet34
        >>> ResNet34().blocks
        (3, 4, 6, 3)
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)


class ResNet50(ResNet18):
    """`ResNet18` of bottleneck blocks: conv 1×1 – BN – ReLU – conv 3×3 – BN – ReLU – conv 1×1 – BN, plus the shortcut.

    The third convolution has four times the channels, so features are [batch, 32 · width].  The stride is the 3×3
    convolution's, as in torchvision.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models import ResNet50
        >>> features, _ = ResNet50(blocks=(1,), width=4).init_with_output(jax.random.key(0), jnp.ones((2, 8, 8, 3)))
        >>> features.shape
        (2, 16)
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    _bottleneck: ClassVar[bool] = True


class _Block(nn.Module):
    """Convolutions with BN, and ReLU between them; plus the shortcut; ReLU."""

    channels: int
    stride: int
    bottleneck: bool
    dtype: Any
    axis_name: str | None

    @nn.compact
    def __call__(self, x: Float[Array, "n h w c"], *, train: bool) -> Float[Array, "n h2 w2 c2"]:
        if self.bottleneck:
            layers = [(self.channels, 1, 1), (self.channels, 3, self.stride), (4 * self.channels, 1, 1)]
        else:
            layers = [(self.channels, 3, self.stride), (self.channels, 3, 1)]
        y = x
        for i, (channels, size, stride) in enumerate(layers, start=1):
            y = conv(channels, size, stride, self.dtype, name=f"conv{i}")(y)
            y = batch_norm(train, self.dtype, self.axis_name, name=f"bn{i}")(y)
            y = relu(y, train) if i < len(layers) else y
        if self.stride != 1 or x.shape[-1] != y.shape[-1]:
            x = conv(y.shape[-1], 1, self.stride, self.dtype, name="shortcut_conv")(x)
            x = batch_norm(train, self.dtype, self.axis_name, name="shortcut_bn")(x)
        return relu(x + y, train)
