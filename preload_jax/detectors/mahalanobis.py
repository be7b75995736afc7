"""The Mahalanobis distance to the nearest class mean under one covariance for all classes (Lee et al., 2018)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from preload_jax.detectors import moments, odin
from preload_jax.detectors.data import Outputs, Training
from preload_jax.errors import UserError

Fitted = dict[str, Any]


def fit(training: Training, *, jitter: float | None, noise: float) -> Fitted:
    """Class means [K, d] and Cholesky factor [d, d] of Σ + jitter·I, Σ = 1/n Σ_i (g_i − μ_{y_i})(g_i − μ_{y_i})ᵀ."""
    return fit_values(training, moments.features_of, jitter)


def fit_values(training: Training, values: moments.Values, jitter: float | None) -> Fitted:
    """The same of any vectors that are computed from the blocks."""
    counts, means = moments.class_means(training, values)
    within = moments.scatter(values(block) - means[labels] for block, labels in training.blocks())
    factors, amount = moments.factor(lambda: iter([within / counts.sum()]), jitter)
    return {"means": means, "cholesky": factors[0], "counts": counts, "jitter": np.float64(amount)}


def distances(fitted: Fitted, features: np.ndarray) -> np.ndarray:
    """(g − μ_c)ᵀ Σ⁻¹ (g − μ_c), [n, K] in float64; inf where it overflows.

    One triangular solve for all classes: the whitened features' distances to the whitened means.
    """
    origin = fitted["means"].mean(axis=0)
    factor = fitted["cholesky"]
    whitened_means = scipy.linalg.solve_triangular(factor, (fitted["means"] - origin).T, lower=True).T
    with np.errstate(over="ignore", invalid="ignore"):
        whitened = scipy.linalg.solve_triangular(factor, (features - origin).T, lower=True, check_finite=False).T
        found, difference = np.empty((len(features), len(whitened_means))), np.empty_like(whitened)
        for c, m in enumerate(whitened_means):
            np.subtract(whitened, m, out=difference)
            found[:, c] = np.einsum("nd,nd->n", difference, difference)
    return np.where(np.isnan(found), np.inf, found)


def score(fitted: Fitted, outputs: Outputs, *, jitter: float | None, noise: float) -> np.ndarray:
    """−min_c (g − μ_c)ᵀ Σ⁻¹ (g − μ_c), [n]; of the input moved by ε along the sign of its gradient, where ε > 0."""
    features = moments.features_of(outputs)
    if noise:
        features = _moved(fitted, outputs, noise)
    return -distances(fitted, features).min(axis=1)


def _moved(fitted: Fitted, outputs: Outputs, noise: float) -> np.ndarray:
    """The features of the moved images; the gradient in JAX's default precision."""
    network = outputs.network
    if network is None or outputs.images is None:
        raise UserError("images or network are missing; a Mahalanobis score with noise needs both")
    inverse = scipy.linalg.solve_triangular(fitted["cholesky"], np.eye(len(fitted["cholesky"])), lower=True)
    whiten, means = jnp.asarray(inverse), jnp.asarray(fitted["means"])

    def in_domain(images: Any) -> Any:
        difference = network(images).features[:, None] - means[None]
        squares = jnp.sum(jnp.square(difference @ whiten.T), axis=-1)
        nearest = jax.nn.one_hot(jnp.argmin(squares, axis=-1), squares.shape[-1], dtype=bool)
        return -jnp.sum(jnp.where(nearest, squares, 0.0), axis=-1)

    moved = odin.perturbed(jnp.asarray(outputs.images), in_domain, noise)
    return np.asarray(network(moved).features, np.float64)


def limit(fitted: Fitted, ray: Any, *, jitter: float | None, noise: float) -> np.ndarray:
    """−∞ where s ≠ 0: −t² sᵀ Σ⁻¹ s dominates, and Σ⁻¹ is positive definite.  Else the score at a (for ε = 0)."""
    return np.where(ray.moving, -np.inf, -distances(fitted, ray.constants).min(axis=1))
