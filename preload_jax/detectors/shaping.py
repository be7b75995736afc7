"""Features, reshaped, through the head again: the energy of what comes out."""

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import far_away
from preload_jax.log_sum_exp import log_sum_exp

Fitted = dict[str, Any]


def energy(fitted: Fitted, features: Float[Array, "n d"]) -> Float[Array, "n"]:
    """log Σ_c exp(Wᵀg + b)_c."""
    return log_sum_exp(features @ fitted["kernel"] + fitted["bias"][None])


def limit(fitted: Fitted, slopes: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """Its limit for features t·s + a, by the sign of max_c (Wᵀs)_c."""
    return far_away.log_sum(slopes @ fitted["kernel"], constants @ fitted["kernel"] + fitted["bias"])
