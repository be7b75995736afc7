"""RankFeat: the energy of the last feature map without its largest singular component (Song et al., 2022)."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.detectors import shaping
from preload_jax.detectors.data import Outputs
from preload_jax.errors import UserError
from preload_jax.log_sum_exp import log_sum_exp


def score(fitted: dict[str, Any], outputs: Outputs) -> Float[Array, "n"]:
    """log Σ_c exp z_c(X − σ₁u₁v₁ᵀ), [n], with X the last map as a matrix [h·w, c] for each input.

    Raises:
        UserError: where the map has one position or channel: nothing would be left of it; where it does not fit the
            head.
    """
    assert outputs.maps is not None
    x = outputs.maps[-1]
    if x.ndim != 4 or min(x.shape[1] * x.shape[2], x.shape[3]) < 2:
        shape = f"[n, {', '.join(map(str, x.shape[1:]))}]"
        raise UserError(f"the last map has shape {shape}; RankFeat needs two positions and channels at least")
    without = _without_first(x.reshape(len(x), -1, x.shape[-1])).reshape(x.shape)
    if outputs.tail is not None:
        return log_sum_exp(outputs.tail(without))
    channels, rows = x.shape[-1], len(fitted["kernel"])
    if channels != rows:
        raise UserError(
            f"the last map has {channels} channels and the head's kernel {rows} rows; expected the same, or outputs"
            " with a `tail`, what the network makes of that map"
        )
    return shaping.energy(fitted, jnp.mean(without, axis=(1, 2)))


def _without_first(x: Float[Array, "n p c"]) -> Float[Array, "n p c"]:
    left, values, right = jnp.linalg.svd(x, full_matrices=False)
    return x - values[:, :1, None] * left[:, :, :1] * right[:, :1]
