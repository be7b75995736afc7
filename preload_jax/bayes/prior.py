"""The precision of the prior of the last layer's weights: by marginal likelihood, or by held-out examples."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from preload_jax.checks import require_number

# Precisions that float32 variances can hold, and beyond which nothing is gained.
SMALLEST, LARGEST = 1e-8, 1e8
_POINTS = 65


def checked(precision: float) -> float:
    """The precision as a float; a UserError unless it is a number within `SMALLEST` … `LARGEST`."""
    return require_number("prior_precision", precision, above=0.0, at_least=SMALLEST, at_most=LARGEST)


def log_evidence(eigenvalues: Float[np.ndarray, "p"], squared_norm: float, precision: float) -> float:
    """What the log marginal likelihood depends on the prior by, in nats.

    −½ (Σ_i log(λ_i + δ) − P log δ + δ‖θ‖²), beside the log-likelihood at the trained weights θ (MacKay, 1992).
    """
    volume = np.log1p(eigenvalues / precision).sum()
    return float(-0.5 * (volume + precision * squared_norm))


def by_evidence(eigenvalues: Float[np.ndarray, "p"], squared_norm: float) -> float:
    """The precision of the largest marginal likelihood."""
    return largest(lambda precision: log_evidence(eigenvalues, squared_norm, precision))


def by_likelihood(mean_log_likelihood: Callable[[float], float]) -> float:
    """The precision of the largest mean log-likelihood of held-out examples."""
    return largest(mean_log_likelihood)


def largest(value: Callable[[float], float], *, between: tuple[float, float] = (SMALLEST, LARGEST)) -> float:
    """Where the function is largest: the best of a grid, and then between its neighbours."""
    import scipy.optimize  # here, for all training imports this file and few need it

    grid = np.geomspace(*between, _POINTS)
    best = int(np.argmax([value(float(each)) for each in grid]))
    low, high = np.log(grid[max(best - 1, 0)]), np.log(grid[min(best + 1, len(grid) - 1)])
    found = scipy.optimize.minimize_scalar(lambda x: -value(float(np.exp(x))), bounds=(low, high), method="bounded")
    return float(np.clip(np.exp(found.x), *between))
