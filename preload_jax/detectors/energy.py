"""The negative free energy T·logsumexp(z / T) (Liu et al., 2020)."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs


def score(fitted: dict[str, Any], outputs: Outputs, *, temperature: float) -> Float[Array, "n"]:
    """T·log Σ_c exp(z_c / T) = −E."""
    return temperature * jax.nn.logsumexp(outputs.logits / temperature, axis=-1)


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, temperature: float) -> np.ndarray:
    """The sign of the largest slope p₁: max z ≤ the score ≤ max z + T·log K."""
    return temperature * far_away.log_sum(ray.logit_slopes / temperature, ray.logit_constants / temperature)
