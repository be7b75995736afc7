"""Temperature scaling: MSP of logits over the temperature that makes them calibrated (Guo et al., 2017)."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special

from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs, Training
from preload_jax.errors import UserError


def fit(training: Training) -> dict[str, Any]:
    """The temperature T of the smallest mean cross-entropy, see `best`."""
    return {"temperature": np.float64(best(lambda: ((block.logits, labels) for block, labels in training.blocks())))}


def best(blocks: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]) -> float:
    """The T of the smallest cross-entropy of softmax(z / T), which is convex in β = 1/T, by a root of its derivative.

    Args:
        blocks: called anew for each pass, gives (logits, labels).

    Raises:
        UserError: where there is no minimum in 10⁻⁴ … 10⁴, as for labels that the logits always, or never, get right.
    """

    def derivative(log_beta: float) -> float:
        beta, total = np.exp(log_beta), 0.0
        for block, labels in blocks():
            logits = block.astype(np.float64)
            expected = np.sum(scipy.special.softmax(beta * logits, axis=1) * logits, axis=1)
            total += float(np.sum(expected - logits[np.arange(len(logits)), labels]))
        return total

    low, high = -np.log(1e4), np.log(1e4)
    if not derivative(low) < 0.0 < derivative(high):
        raise UserError(
            "no temperature in 0.0001 … 10000 minimises the cross-entropy; give labelled examples of which the network"
            " gets some wrong"
        )
    return float(1.0 / np.exp(scipy.optimize.brentq(derivative, low, high, xtol=1e-10)))


def score(fitted: dict[str, Any], outputs: Outputs) -> np.ndarray:
    """log(p / (1 − p)) with p = max_c softmax(z / T)_c."""
    z = np.sort(outputs.logits.astype(np.float64), axis=1) / fitted["temperature"]
    return z[:, -1] - scipy.special.logsumexp(z[:, :-1], axis=1)


def limit(fitted: dict[str, Any], ray: far_away.Ray) -> np.ndarray:
    """MSP's: +∞ where one class alone has the largest slope."""
    return far_away.log_odds(ray.logit_slopes, ray.logit_constants / fitted["temperature"])
