"""DDU: one Gaussian a class on the features of a trained network (Mukhoti et al., 2023).

log Σ_c π_c N(g; μ_c, Σ_c), in float64 on the host: see `moments`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.special

from preload_jax.detectors import moments
from preload_jax.detectors.data import Outputs, Training

Fitted = dict[str, Any]


def fit(training: Training, *, jitter: float | None, weighted: bool, unbiased: bool) -> Fitted:
    """Means [K, d], Cholesky factors [K, d, d] of the covariances plus jitter·I, log-weights [K] and the jitter.

    Args:
        training: with features and labels.
        jitter: added to every variance, see `moments.factor`.
        weighted: whether a class weighs its share of the examples; otherwise each weighs 1.
        unbiased: whether covariances are divided by n − 1, not n.

    Raises:
        UserError: when a class has fewer than two examples, or no covariance is positive definite.
    """
    counts, means = moments.class_means(training, minimum=2)
    scatters = _scatters(training, means)

    def covariances() -> Iterator[np.ndarray]:
        return (s / (n - unbiased) for s, n in zip(scatters, counts, strict=True))

    factors, amount = moments.factor(covariances, jitter)
    log_weights = np.log(counts / counts.sum()) if weighted else np.zeros(len(counts))
    return {"means": means, "cholesky": np.stack(factors), "log_weights": log_weights, "jitter": np.float64(amount)}


def _scatters(training: Training, means: np.ndarray) -> list[np.ndarray]:
    """Σ (g − μ_c)(g − μ_c)ᵀ of each class, in one pass."""
    totals = [np.zeros((means.shape[1], means.shape[1]), order="F") for _ in means]
    for block, labels in training.blocks():
        for c in np.unique(labels):
            moments.add_scatter(totals[c], moments.features_of(block, labels == c) - means[c])
    return [moments.symmetric(total) for total in totals]


def log_density(fitted: Fitted, features: np.ndarray) -> np.ndarray:
    """log π_c N(g; μ_c, Σ_c) of each feature vector in each class: [n, d] → [n, K]; −inf where it overflows."""
    features = np.asarray(features, np.float64)
    out = np.empty((len(features), len(fitted["means"])))
    for c, (mean, factor) in enumerate(zip(fitted["means"], fitted["cholesky"], strict=True)):
        log_determinant = 2.0 * np.log(np.diag(factor)).sum()
        constant = log_determinant + len(mean) * np.log(2.0 * np.pi)
        out[:, c] = fitted["log_weights"][c] - 0.5 * (moments.whitened_distance(features, mean, factor) + constant)
    return out


def score(fitted: Fitted, outputs: Outputs, **options: Any) -> np.ndarray:
    """log Σ_c π_c N(g; μ_c, Σ_c), [n]."""
    return scipy.special.logsumexp(log_density(fitted, outputs.features), axis=1)


def limit(fitted: Fitted, ray: Any, **options: Any) -> np.ndarray:
    """−∞ where s ≠ 0: −½ t² sᵀ Σ_c⁻¹ s dominates in every class, and Σ_c⁻¹ is definite.  Else the score at a."""
    return np.where(ray.moving, -np.inf, scipy.special.logsumexp(log_density(fitted, ray.constants), axis=1))
