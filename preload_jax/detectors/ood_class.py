"""The OOD class of a network that has one: PreLoad (Rashid et al., 2024) and NC (Zhang and LeCun, 2017)."""

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from preload_jax import scores
from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs


def score(fitted: dict[str, Any], outputs: Outputs, *, square: bool) -> Float[Array, "n"]:
    """log((1 − p) / p) of the OOD class's probability p, the last logit's."""
    return scores.in_domain_probability(outputs.logits)


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, square: bool) -> np.ndarray:
    """Linear OOD logit (NC): the sign of max_c p_c − p_{K+1}.

    Square one (PreLoad; the head given is that of the K classes): −∞ where s ≠ 0, since exp(w')ᵀ s² t² outgrows every
    linear logit (theorem 1).  NaN where s = 0: w' and b decide there, see `guarantees.far_away_limit`.
    """
    if square:
        return np.where(ray.moving, -np.inf, np.nan)
    slopes = ray.logit_slopes[:, :-1] - ray.logit_slopes[:, -1:]
    return far_away.log_sum(slopes, ray.logit_constants[:, :-1] - ray.logit_constants[:, -1:])
