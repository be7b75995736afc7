"""A small ReLU network for the embedded digits and for toy data."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.integers import require_integers
from preload_jax.models.initializers import torch_bias_init, torch_kernel_init
from preload_jax.models.layers import check_dropout, drop


class MLP(nn.Module):
    """Dense layers with ReLU after each; inputs of any rank are flattened; features [batch, widths[-1]].

    Attributes:
        widths: outputs of each layer.
        dropout: rate after each ReLU, in training, and for `MCDropout`; then it needs an rng named "dropout".
        dtype: of the computation; parameters stay in float32.

    Raises:
        UserError: for widths that are not positive integers, or a dropout outside [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models import MLP
        >>> features, variables = MLP(widths=(32, 6)).init_with_output(jax.random.key(0), jnp.ones((5, 4, 4, 1)))
        >>> features.shape
        (5, 6)
    """

    widths: tuple[int, ...] = (256, 256)
    dropout: float = 0.0
    dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        what = "a list of integers, one for each layer"
        self.widths = require_integers("widths", self.widths, what=what, at_least=1)
        self.dropout = check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, images: Float[Array, "n ..."], *, train: bool = False) -> Float[Array, "n d"]:
        x = jax.lax.collapse(images, 1).astype(self.dtype)
        for i, width in enumerate(self.widths):
            x = nn.Dense(
                width,
                dtype=self.dtype,
                kernel_init=torch_kernel_init,
                bias_init=torch_bias_init(x.shape[-1]),
                name=f"dense{i + 1}",
            )(x)
            x = drop(nn.relu(x), self.dropout, train, name=f"dropout{i + 1}")
        return x
