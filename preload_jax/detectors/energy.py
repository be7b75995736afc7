"""The negative free energy T·logsumexp(z / T) (Liu et al., 2020)."""

from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs
from preload_jax.detectors.largest import log_sum_exp


def score(fitted: dict[str, Any], outputs: Outputs, *, temperature: float) -> Float[np.ndarray, "n"]:
    """T·log Σ_c exp(z_c / T) = −E."""
    if temperature == 1.0:
        return log_sum_exp(outputs.logits)
    with np.errstate(over="ignore"):
        return temperature * log_sum_exp(outputs.logits / outputs.logits.dtype.type(temperature))


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, temperature: float) -> np.ndarray:
    """The sign of the largest slope p₁: max z ≤ the score ≤ max z + T·log K."""
    return temperature * far_away.log_sum(ray.logit_slopes / temperature, ray.logit_constants / temperature)
