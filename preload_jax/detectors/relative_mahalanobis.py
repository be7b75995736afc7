"""Mahalanobis distance less that to all data as one Gaussian (Ren et al., 2021).

With π_c the share of class c, μ_0 the mean of all and B = [√π_c (μ_c − μ_0)], the covariance of all is Σ_0 = Σ + B Bᵀ.
So (Woodbury), with v = (μ_c − μ_0)ᵀ Σ⁻¹ (g − μ_0) for each class, G_cc its value at g = μ_c and D = diag(√π),

    d_c − d_0 = G_cc − 2 v_c + (D v)ᵀ (I + D G D)⁻¹ (D v).

Neither distance is computed: their difference, which is what counts, would lose the digits that they share.
"""

from typing import Any

import numpy as np
import scipy.linalg

from preload_jax.detectors import mahalanobis, moments
from preload_jax.detectors.data import Outputs, Training

Fitted = dict[str, Any]


def fit(training: Training, *, jitter: float | None) -> Fitted:
    """μ_0 [d], Σ⁻¹(μ_c − μ_0) [d, K], G_cc [K] and D (I + D G D)^{-1/2} as a factor [K, K]."""
    by_class = mahalanobis.fit_values(training, jitter)
    shares = by_class["counts"] / by_class["counts"].sum()
    mean = shares @ by_class["means"]
    gaps = by_class["means"] - mean
    weights = scipy.linalg.cho_solve((by_class["cholesky"], True), gaps.T)
    gram = gaps @ weights
    root = np.sqrt(shares)
    inner = np.linalg.cholesky(np.eye(len(root)) + root[:, None] * gram * root)
    factor = scipy.linalg.solve_triangular(inner, np.diag(root), lower=True).T
    return {
        "mean": mean,
        "weights": weights,
        "squares": np.diag(gram).copy(),
        "factor": factor,
        "jitter": by_class["jitter"],
    }


def score(fitted: Fitted, outputs: Outputs, *, jitter: float | None) -> np.ndarray:
    """−min_c (d_c − d_0), [n]."""
    return _score(fitted, moments.features_of(outputs))


def _score(fitted: Fitted, features: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        v = (features - fitted["mean"]) @ fitted["weights"]
        quadratic = np.sum((v @ fitted["factor"]) ** 2, axis=1)
        found = np.max(2.0 * v - fitted["squares"], axis=1) - quadratic
    # Where it overflows the square outweighs the rest.
    return np.where(np.isnan(found), -np.inf, found)


def limit(fitted: Fitted, ray: Any, *, jitter: float | None) -> np.ndarray:
    """−∞ where (μ_c − μ_0)ᵀ Σ⁻¹ s ≠ 0 for some class, beyond rounding: −t² (D v)ᵀ(I + D G D)⁻¹(D v) dominates.

    Elsewhere v does not change along the ray, and the limit is the score at a.
    """
    sees = np.abs(ray.slopes @ fitted["weights"])
    rounding = 64 * np.finfo(float).eps * (np.abs(ray.slopes) @ np.abs(fitted["weights"]))
    return np.where((sees > rounding).any(axis=1), -np.inf, _score(fitted, ray.constants))
