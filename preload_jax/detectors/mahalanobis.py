"""The Mahalanobis distance to the nearest class mean under one covariance for all classes (Lee et al., 2018)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from preload_jax.detectors import moments, odin
from preload_jax.detectors.data import Outputs, Training
from preload_jax.devices import threads
from preload_jax.errors import UserError

Fitted = dict[str, Any]
# Rows whose distances a thread computes at once.
_ROWS = 512


def fit(training: Training, *, jitter: float | None, noise: float) -> Fitted:
    """Class means [K, d] and Cholesky factor [d, d] of Σ + jitter·I, Σ = 1/n Σ_i (g_i − μ_{y_i})(g_i − μ_{y_i})ᵀ."""
    return fit_values(training, jitter)


def fit_values(
    training: Training, jitter: float | None, values: moments.Values = lambda block: block.features
) -> Fitted:
    """The same of any vectors that are computed from the blocks."""
    counts, means, within = moments.within_classes(training, values)
    factors, amount = moments.factor(lambda: iter([within / counts.sum()]), jitter)
    return {"means": means, "cholesky": factors[0], "counts": counts, "jitter": np.float64(amount)}


def nearest(fitted: Fitted, features: np.ndarray) -> np.ndarray:
    """min_c (g − μ_c)ᵀ Σ⁻¹ (g − μ_c), [n] in float64; inf where it overflows.

    With Σ = L Lᵀ, w = L⁻¹(g − o) and m_c = L⁻¹(μ_c − o) it is ‖w‖² − 2 wᵀm_c + ‖m_c‖²: one product for all classes.
    Where that would lose digits, as beside a mean that is far from the others, it is ‖w − m_c‖² term by term.
    """
    factor, origin = fitted["cholesky"], fitted["means"].mean(axis=0)
    with threads.blas_alone():
        inverses, means = moments.inverses(factor), fitted["means"] - origin
        moments.whiten(means, factor, inverses)
    of_means = np.vecdot(means, means)

    def of_rows(x: np.ndarray) -> tuple[np.ndarray]:
        with np.errstate(over="ignore", invalid="ignore"):
            x = np.subtract(x, origin, dtype=np.float64)
            moments.whiten(x, factor, inverses)
            squares = np.vecdot(x, x)
            found = np.min(of_means - 2.0 * (x @ means.T), axis=1) + squares
            rounding = len(origin) * np.finfo(float).eps * (squares + of_means.max())
            unsure = np.flatnonzero(~(rounding < 1e-11 * found))
            found[unsure] = np.inf
            for m in means:
                difference = x[unsure] - m
                found[unsure] = np.fmin(found[unsure], np.vecdot(difference, difference))
        return (found,)

    return threads.in_parts(of_rows, features, rows=_ROWS)[0]


def score(fitted: Fitted, outputs: Outputs, *, jitter: float | None, noise: float) -> np.ndarray:
    """−min_c (g − μ_c)ᵀ Σ⁻¹ (g − μ_c), [n]; of the input moved by ε along the sign of its gradient, where ε > 0."""
    return -nearest(fitted, _moved(fitted, outputs, noise) if noise else outputs.features)


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
    return np.where(ray.moving, -np.inf, -nearest(fitted, ray.constants))
