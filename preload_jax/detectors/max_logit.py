"""The largest logit (Hendrycks et al., 2022)."""

from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs
from preload_jax.detectors.largest import largest


def score(fitted: dict[str, Any], outputs: Outputs) -> Float[np.ndarray, "n"]:
    """max_c z_c."""
    return largest(outputs.logits)


def limit(fitted: dict[str, Any], ray: far_away.Ray) -> np.ndarray:
    """The sign of the largest slope p₁; where it is 0, the largest constant among the classes of slope 0."""
    among = np.where(far_away.winners(ray.logit_slopes), ray.logit_constants, -np.inf).max(axis=1)
    return far_away.in_the_end(ray.logit_slopes.max(axis=1), among)
