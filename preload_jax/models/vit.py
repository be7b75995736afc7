"""A vision transformer (Dosovitskiy et al., 2021), as timm and torchvision have it."""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.errors import UserError
from preload_jax.integers import require_integer
from preload_jax.models.initializers import torch_bias_init, torch_kernel_init
from preload_jax.models.layers import accumulator, check_dropout, check_normalisation, drop, normalised

_init = nn.initializers.normal(0.02)


class ViT(nn.Module):
    """Patches – class token, positions – blocks of attention and dense layers – layer norm: G(x), the class token's.

    A block is x + attention(LN(x)), and then x + dense(GELU(dense(LN(x)))).  GELU is the exact one, with erf; LN has
    ε = 1e-6.  Attention is softmax(q kᵀ / √(width / heads)) v in each head.

    Images [batch, h, w, channels] in [0, 1], h and w multiples of `patch`; features [batch, width].  They may be
    negative, and the last layer norm keeps them bounded however far an image is: the OOD class need not win far away.
    `WithDistance` mends that.  The variables are for one size of images.

    Attributes:
        patch: side of a patch in pixels.
        depth: number of blocks.
        width: d, of each token.
        heads: of the attention; they divide the width.
        hidden: width between a block's two dense layers; None is 4 · width.
        mean, std: of each channel; images are first normalised as (x − mean) / std.  None: they are not.
        dropout: rate after the positions and after each dense layer but q, k and v, in training, and for `MCDropout`;
            then it needs an rng named "dropout".
        dtype: of the computation; parameters stay in float32.

    Raises:
        UserError: for sizes that are not positive integers, heads that do not divide the width, a dropout outside
            [0, 1), and images that are not made of whole patches.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models import ViT
        >>> network = ViT(patch=4, depth=1, width=8, heads=2)
        >>> features, _ = network.init_with_output(jax.random.key(0), jnp.ones((2, 8, 12, 3)))
        >>> features.shape
        (2, 8)
    """

    patch: int = 4
    depth: int = 6
    width: int = 192
    heads: int = 3
    hidden: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    dropout: float = 0.0
    dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        for name in ("patch", "depth", "width", "heads", "hidden"):
            if name != "hidden" or self.hidden is not None:
                setattr(self, name, require_integer(name, getattr(self, name), at_least=1))
        if self.width % self.heads:
            raise UserError(f"heads must divide the width {self.width}, got {self.heads}")
        self.mean, self.std = check_normalisation(self.mean, self.std)
        self.dropout = check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, images: Float[Array, "n h w c"], *, train: bool = False) -> Float[Array, "n d"]:
        n, height, width, channels = images.shape
        if height % self.patch or width % self.patch or 0 in (height, width):
            raise UserError(
                f"a ViT of {self.patch}×{self.patch} patches needs images whose height and width are multiples of"
                f" {self.patch}, got {height}×{width}"
            )
        x = normalised(images.astype(self.dtype), self.mean, self.std)
        x = nn.Conv(
            self.width,
            (self.patch, self.patch),
            strides=self.patch,
            padding="VALID",
            dtype=self.dtype,
            kernel_init=torch_kernel_init,
            bias_init=torch_bias_init(self.patch**2 * channels),
            name="patches",
        )(x)
        x = jax.lax.collapse(x, 1, 3)
        first = self.param("class_token", _init, (1, 1, self.width), jnp.float32).astype(self.dtype)
        x = jnp.concatenate([jnp.broadcast_to(first, (n, 1, self.width)), x], axis=1)
        x = x + self.param("positions", _init, (1, *x.shape[1:]), jnp.float32).astype(self.dtype)
        x = drop(x, self.dropout, train, name="dropout")
        hidden = 4 * self.width if self.hidden is None else self.hidden
        for i in range(self.depth):
            x = _Block(self.heads, hidden, self.dropout, self.dtype, name=f"block{i}")(x, train=train)
        return _layer_norm(self.dtype, name="norm")(x[:, 0]).astype(accumulator(self.dtype))


class _Block(nn.Module):
    """Attention and two dense layers, each after a layer norm and added to what goes in."""

    heads: int
    hidden: int
    dropout: float
    dtype: Any

    @nn.compact
    def __call__(self, x: Float[Array, "n tokens d"], *, train: bool) -> Float[Array, "n tokens d"]:
        width = x.shape[-1]
        y = _dense(3 * width, self.dtype, name="qkv")(_layer_norm(self.dtype, name="norm1")(x))
        y = _dense(width, self.dtype, name="projection")(_attention(y, self.heads))
        x = x + drop(y, self.dropout, train, name="dropout0")
        y = _dense(self.hidden, self.dtype, name="dense1")(_layer_norm(self.dtype, name="norm2")(x))
        y = drop(nn.gelu(y, approximate=False), self.dropout, train, name="dropout1")
        return x + drop(_dense(width, self.dtype, name="dense2")(y), self.dropout, train, name="dropout2")


def _attention(qkv: Float[Array, "n tokens d3"], heads: int) -> Float[Array, "n tokens d"]:
    n, tokens, width = qkv.shape
    query, key, value = jnp.moveaxis(qkv.reshape(n, tokens, 3, heads, width // 3 // heads), 2, 0)
    scores = jnp.einsum("nqhd,nkhd->nhqk", query, key) / math.sqrt(query.shape[-1])
    weights = jax.nn.softmax(scores.astype(accumulator(qkv.dtype)), axis=-1).astype(qkv.dtype)
    return jnp.einsum("nhqk,nkhd->nqhd", weights, value).reshape(n, tokens, width // 3)


def _dense(width: int, dtype: Any, *, name: str) -> nn.Dense:
    return nn.Dense(width, dtype=dtype, kernel_init=_init, name=name)


class _LayerNorm(nn.LayerNorm):
    """Flax's, which mixes float32 statistics with activations of half precision."""

    def __call__(self, x: Array, **options: Any) -> Array:
        with jax.numpy_dtype_promotion("standard"):
            return super().__call__(x, **options)


def _layer_norm(dtype: Any, *, name: str) -> nn.LayerNorm:
    # E[x²] − E[x]² would cancel where the mean is large.
    return _LayerNorm(epsilon=1e-6, dtype=dtype, use_fast_variance=False, name=name)
