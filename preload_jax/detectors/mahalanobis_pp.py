"""Mahalanobis++: the Mahalanobis distance of features on the unit sphere (Müller and Hein, 2025)."""

from typing import Any

import numpy as np

from preload_jax.detectors import bank, far_away, mahalanobis, moments
from preload_jax.detectors.data import Outputs, Training


def fit(training: Training, *, jitter: float | None) -> dict[str, Any]:
    """Mahalanobis' means and factor of the normalised features."""
    return mahalanobis.fit_values(training, jitter, _normalised)


def _normalised(block: Outputs) -> np.ndarray:
    return bank.unit(moments.features_of(block))


def score(fitted: dict[str, Any], outputs: Outputs, *, jitter: float | None) -> np.ndarray:
    """−min_c (ĝ − μ_c)ᵀ Σ⁻¹ (ĝ − μ_c), [n]."""
    return -mahalanobis.nearest(fitted, _normalised(outputs))


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, jitter: float | None) -> np.ndarray:
    """The score at s / ‖s‖: the direction alone decides."""
    return -mahalanobis.nearest(fitted, ray.direction)
