"""DDU: one Gaussian a class on the features of a trained network (Mukhoti et al., 2023).

log Σ_c π_c N(g; μ_c, Σ_c), in float64 on the host: see `moments`.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.special

from preload_jax.detectors import moments
from preload_jax.detectors.data import Outputs, Training
from preload_jax.devices import threads

Fitted = dict[str, Any]
# Blocks whose rows of a class are multiplied as one, and rows whose densities a thread computes at once.
_BLOCKS, _ROWS = 4, 512


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
    totals = [np.zeros((means.shape[1], means.shape[1])) for _ in means]
    blocks = training.blocks(checked=True)
    while some := list(itertools.islice(blocks, _BLOCKS)):

        def add(c: Any, some: list[Any] = some) -> None:
            x = np.concatenate([moments.features_of(block, labels == c) for block, labels in some]) - means[c]
            totals[c] += x.T @ x

        # A thread a class: a sum has its order whatever their number.
        for _ in threads.in_order(add, np.unique(np.concatenate([labels for _, labels in some]))):
            pass
    return totals


def log_density(fitted: Fitted, features: np.ndarray) -> np.ndarray:
    """log π_c N(g; μ_c, Σ_c) of each feature vector in each class: [n, d] → [n, K]; −inf where it overflows."""
    factors = fitted["cholesky"]
    with threads.blas_alone():
        gaussians = list(zip(fitted["means"], factors, map(moments.inverses, factors), strict=True))

    def of_rows(x: np.ndarray) -> tuple[np.ndarray]:
        found = np.empty((len(x), len(gaussians)))
        with np.errstate(over="ignore", invalid="ignore"):
            for c, (mean, factor, inverses) in enumerate(gaussians):
                away = np.subtract(x, mean, dtype=np.float64)
                moments.whiten(away, factor, inverses)
                found[:, c] = np.vecdot(away, away)
        return (found,)

    squares = threads.in_parts(of_rows, features, rows=_ROWS)[0]
    constants = fitted["log_weights"] - np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    return constants - 0.5 * (np.where(np.isnan(squares), np.inf, squares) + features.shape[1] * np.log(2.0 * np.pi))


def score(fitted: Fitted, outputs: Outputs, **options: Any) -> np.ndarray:
    """log Σ_c π_c N(g; μ_c, Σ_c), [n]."""
    return scipy.special.logsumexp(log_density(fitted, outputs.features), axis=1)


def limit(fitted: Fitted, ray: Any, **options: Any) -> np.ndarray:
    """−∞ where s ≠ 0: −½ t² sᵀ Σ_c⁻¹ s dominates in every class, and Σ_c⁻¹ is definite.  Else the score at a."""
    return np.where(ray.moving, -np.inf, scipy.special.logsumexp(log_density(fitted, ray.constants), axis=1))
