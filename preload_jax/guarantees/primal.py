"""The same maximum as `dual`, sought over the embeddings: slower, and at ease where the dual is singular.

Where the classes themselves keep class c from being likely, the OOD class has hardly any share, and the dual divides
by it.  There the primal T(g) = log Σ_i exp(y_i(g)) is a well-behaved sum of exponentials of linear functions.
"""

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp, softmax

from preload_jax.guarantees.dual import DualProblem

_COOLING = 0.25
_NEWTON_STEPS = 40
_MAX_HALVINGS = 60


def minimise(problem: DualProblem) -> np.ndarray:
    """g [d] that minimises T of the problem's only class, by projected Newton steps while the temperature falls.

    T_τ(g) = τ log Σ_i exp(y_i(g) / τ) is smooth on the scale of τ.  From a τ that spans all logits down to 1, each
    minimum is a good start for the next.
    """
    (c,) = problem.classes
    e = problem.exponent
    # In units in which the OOD logit is Σ h^e.
    unit = problem.square_weights ** (-1.0 / e)
    own = problem.weights[c] * unit
    slopes = np.delete(problem.weights, c, axis=0) * unit - own
    offsets = np.append(np.delete(problem.offsets[0], c), problem.offsets[0, c])

    def logits(h: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # a step too far, which the line search takes back
            return np.append(slopes @ h, np.sum(h**e) - own @ h) + offsets

    h = problem.embeddings(problem.weights[[c]])[0] / unit
    temperature = max(1.0, float(np.ptp(logits(h))))
    while True:
        for _ in range(_NEWTON_STEPS):
            y = logits(h)
            step, gradient = _newton_step(h, y, slopes, own, e=e, temperature=temperature, bounded=problem.nonnegative)
            new = _line_search(h, step, gradient, logits, temperature=temperature, bounded=problem.nonnegative)
            if new is None:
                break
            decrease = -gradient @ (new - h)
            h = new
            if decrease < 1e-3 * temperature and temperature > 1.0:
                break
        if temperature == 1.0:
            return h * unit
        temperature = max(1.0, _COOLING * temperature)


def _newton_step(
    h: np.ndarray, y: np.ndarray, slopes: np.ndarray, own: np.ndarray, *, e: int, temperature: float, bounded: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The Newton step over the coordinates that are free to move, and the gradient."""
    shares = softmax(y / temperature)
    jacobian = np.vstack([slopes, e * h ** (e - 1) - own])
    gradient = shares @ jacobian
    free = ~((h <= 0.0) & (gradient >= 0.0)) if bounded else np.ones(len(h), bool)
    step = np.zeros_like(h)
    if free.any():
        spread = np.sqrt(shares / temperature)[:, None] * (jacobian - gradient)[:, free]
        curvature = spread.T @ spread
        diagonal = np.einsum("ii->i", curvature)
        diagonal += shares[-1] * e * (e - 1) * h[free] ** (e - 2)
        # Directions without curvature don't change T; a little more than rounding keeps the factorisation going.
        diagonal += 4 * len(curvature) * np.finfo(np.float64).eps * diagonal.max() + 1e-300
        step[free] = -cho_solve(cho_factor(curvature), gradient[free])
    return step, gradient


def _line_search(
    h: np.ndarray,
    step: np.ndarray,
    gradient: np.ndarray,
    logits: Callable[[np.ndarray], np.ndarray],
    *,
    temperature: float,
    bounded: bool,
) -> np.ndarray | None:
    """The first of the halved steps, projected to h ≥ 0, that decreases T_τ enough; None where none does."""
    value = temperature * logsumexp(logits(h) / temperature)
    for halvings in range(_MAX_HALVINGS):
        new = h + 0.5**halvings * step
        if bounded:
            new = np.maximum(new, 0.0)
        if temperature * logsumexp(logits(new) / temperature) < value + 1e-4 * gradient @ (new - h):
            return new
    return None
