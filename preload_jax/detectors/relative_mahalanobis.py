"""Mahalanobis distance less that to all data as one Gaussian (Ren et al., 2021)."""

from typing import Any

import numpy as np
import scipy.linalg

from preload_jax.detectors import mahalanobis, moments
from preload_jax.detectors.data import Outputs, Training

Fitted = dict[str, Any]


def fit(training: Training, *, jitter: float | None) -> Fitted:
    """Mahalanobis' means and factor, and the mean [d] and factor [d, d] of all features together."""
    by_class = mahalanobis.fit_values(training, moments.features_of, jitter)
    count = sum(len(labels) for _, labels in training.blocks())
    mean = moments.mean(training)
    total = moments.scatter(moments.features_of(block) - mean for block, _ in training.blocks())
    # The same jitter: a larger one for one of the two would tip the difference far away.
    factors, _ = moments.factor(lambda: iter([total / count]), float(by_class["jitter"]))
    return {**by_class, "mean": mean, "cholesky_all": factors[0]}


def score(fitted: Fitted, outputs: Outputs, *, jitter: float | None) -> np.ndarray:
    """−min_c (d_c − d_0), [n]."""
    return _score(fitted, moments.features_of(outputs))


def _score(fitted: Fitted, features: np.ndarray) -> np.ndarray:
    to_all = moments.whitened_distance(features, fitted["mean"], fitted["cholesky_all"])
    with np.errstate(invalid="ignore"):
        difference = mahalanobis.distances(fitted, features).min(axis=1) - to_all
    # Where both overflow: far away, and the class distance is the larger one.
    return -np.where(np.isnan(difference), np.inf, difference)


def limit(fitted: Fitted, ray: Any, *, jitter: float | None) -> np.ndarray:
    """The sign of −sᵀ(Σ⁻¹ − Σ₀⁻¹)s, then of the linear term, then the score at a.

    Σ₀ = Σ + the means' covariance, so that Σ⁻¹ − Σ₀⁻¹ has no negative eigenvalue: the score never rises like t².  It
    has rank ≤ K − 1: s may be in its null space, where the classes' means do not differ.
    """
    s, a = ray.slopes, ray.constants

    def whiten(x: np.ndarray, factor: np.ndarray) -> np.ndarray:
        return scipy.linalg.solve_triangular(factor, x.T, lower=True).T

    within, overall = fitted["cholesky"], fitted["cholesky_all"]
    ws, os = whiten(s, within), whiten(s, overall)
    squares = np.sum(ws**2, axis=1)
    quadratic = squares - np.sum(os**2, axis=1)
    # Below the rounding of the two terms it is 0 for all that is known.
    zero = np.abs(quadratic) <= 64 * np.finfo(float).eps * squares * len(within)
    linear = np.stack(
        [np.sum(ws * whiten(a - m, within), axis=1) - np.sum(os * whiten(a - fitted["mean"], overall), axis=1)
         for m in fitted["means"]], axis=1,
    )  # fmt: skip
    by_line = np.where(ray.moving, np.sign(-linear.min(axis=1)) * np.inf, _score(fitted, a))
    return np.where(zero, by_line, np.where(quadratic > 0.0, -np.inf, np.inf))
