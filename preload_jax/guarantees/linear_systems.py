"""The linear systems of the dual's Newton steps, one for each class."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

_MAX_CG_STEPS = 100


def by_factorisation(
    weights: np.ndarray, c: int, slopes: np.ndarray, factors: np.ndarray, roots: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """x of (I + MᵀM) x = right for one class, with M = A diag(roots), centred, and AᵀA the penalty's curvature.

    From the triangle of [M; I], whose condition is the root of the matrix's: MᵀM itself is never formed.
    """
    columns = weights.T.copy()
    columns[:, c] = slopes
    matrix = factors[:, None] * columns * roots
    matrix -= np.outer(matrix @ roots, roots)
    triangle = np.linalg.qr(np.vstack([matrix, np.eye(len(roots))]), mode="r")
    return solve_triangular(triangle, solve_triangular(triangle, right, trans="T"))


def conjugate_gradients(
    operator: Callable[[np.ndarray], np.ndarray], right: np.ndarray, *, accuracy: np.ndarray
) -> np.ndarray:
    """Solve operator(x) = right for every row, to its relative residual or as far as rounding lets it."""
    x = np.zeros_like(right)
    residual = right
    search = residual
    squared = np.sum(residual**2, axis=1)
    # Squares below 1e-280 are shares too small to matter, and would soon underflow.
    target = np.maximum(accuracy**2 * squared, 1e-280)
    for _ in range(_MAX_CG_STEPS):
        running = squared > target
        if not running.any():
            break
        image = operator(search)
        # The operator is the identity and something positive; where rounding hides that, the row ends here.
        curvature = np.sum(search * image, axis=1)
        running &= curvature >= 0.5 * np.sum(search**2, axis=1)
        step = np.divide(squared, curvature, out=np.zeros_like(squared), where=running)[:, None]
        x = x + step * search
        residual = residual - step * image
        previous, squared = squared, np.where(running, np.sum(residual**2, axis=1), 0.0)
        ratio = np.divide(squared, previous, out=np.zeros_like(squared), where=running)[:, None]
        search = residual + ratio * search
    return x
