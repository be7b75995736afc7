"""MSP, the baseline: the largest softmax probability, as log-odds (Hendrycks and Gimpel, 2017)."""

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from preload_jax import scores
from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs


def score(fitted: dict[str, Any], outputs: Outputs) -> Float[Array, "n"]:
    """log(p / (1 − p)) with p = max_c p_c: the same order as by p, without ties where p rounds to 1."""
    return scores.max_probability(outputs.logits)


def limit(fitted: dict[str, Any], ray: far_away.Ray) -> np.ndarray:
    """+∞ where one class alone has the largest slope: its logit leaves the others behind."""
    return far_away.log_odds(ray.logit_slopes, ray.logit_constants)
