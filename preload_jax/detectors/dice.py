"""DICE: the energy of a head of which only the weights that contribute most are left (Sun and Li, 2022)."""

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import moments, shaping
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.far_away import Ray


def fit(training: Training, *, percentile: float) -> dict[str, Any]:
    """The kernel where W_jc · mean g_j exceeds the percentile of all entries, 0 elsewhere, [d, K]."""
    moments.require_percentiles(percentile)
    assert training.head is not None
    kernel, _ = training.head
    contributions = kernel * moments.mean(training)[:, None]
    return {"sparse": np.where(contributions > np.percentile(contributions, percentile), kernel, 0.0)}


def _sparse(fitted: dict[str, Any]) -> dict[str, Any]:
    return {**fitted, "kernel": fitted["sparse"]}


def score(fitted: dict[str, Any], outputs: Outputs, *, percentile: float) -> Float[Array, "n"]:
    """log Σ_c exp((W ⊙ M)ᵀg + b)_c."""
    return shaping.energy(_sparse(fitted), outputs.features)


def limit(fitted: dict[str, Any], ray: Ray, *, percentile: float) -> np.ndarray:
    """The sign of the largest slope of the sparse head."""
    return shaping.limit(_sparse(fitted), ray.slopes, ray.constants)
