"""ReAct: the energy of features that are cut off at a percentile (Sun et al., 2021)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import moments, shaping
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.far_away import Ray


def fit(training: Training, *, percentile: float) -> dict[str, Any]:
    """The percentile τ of all training features together."""
    moments.require_percentiles(percentile)
    return {"most": moments.percentiles(training, [percentile])[0]}


def score(fitted: dict[str, Any], outputs: Outputs, *, percentile: float) -> Float[Array, "n"]:
    """log Σ_c exp(Wᵀ min(g, τ) + b)_c."""
    return shaping.energy(fitted, jnp.minimum(outputs.features, jnp.asarray(fitted["most"])))


def limit(fitted: dict[str, Any], ray: Ray, *, percentile: float) -> np.ndarray:
    """Features that rise end at τ, those at rest at min(a, τ), those that fall go on: bounded where g ≥ 0."""
    s = np.minimum(ray.slopes, 0.0)
    a = np.where(
        ray.slopes > 0.0, fitted["most"], np.where(s < 0.0, ray.constants, np.minimum(ray.constants, fitted["most"]))
    )
    return shaping.limit(fitted, s, a)
