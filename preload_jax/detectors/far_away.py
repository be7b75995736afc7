"""Limits of scores along rays: features g(t) = t·s + a for all large t, logits z(t) = t·p + q.

Everything is exact but for the rounding of p and q in float64: which class wins is decided by p, and by q among classes
of equal p.
"""

from dataclasses import dataclass

import numpy as np
import scipy.special

from preload_jax.detectors import bank


@dataclass(frozen=True)
class Ray:
    """Rays' features and logits far away.

    Attributes:
        slopes: s, [n, d] in float64.
        constants: a, [n, d] in float64.
        logit_slopes: p = Wᵀs, [n, K], or None without a head.
        logit_constants: q = Wᵀa + b, [n, K], or None.
    """

    slopes: np.ndarray
    constants: np.ndarray
    logit_slopes: np.ndarray
    logit_constants: np.ndarray

    @property
    def moving(self) -> np.ndarray:
        """Whether any feature changes, [n]: where none does, the features are a from some t on."""
        return (self.slopes != 0.0).any(axis=1)

    @property
    def top(self) -> np.ndarray:
        """The class whose logit is the largest in the end, [n]."""
        return np.where(winners(self.logit_slopes), self.logit_constants, -np.inf).argmax(axis=1)

    @property
    def direction(self) -> np.ndarray:
        """g / ‖g‖ in the limit, [n, d]: s / ‖s‖, and a / ‖a‖ where s = 0."""
        return bank.unit(np.where(self.moving[:, None], self.slopes, self.constants))


def winners(slopes: np.ndarray) -> np.ndarray:
    """Where the largest slope of a row is, [n, K]."""
    return slopes == slopes.max(axis=1, keepdims=True)


def in_the_end(slope: np.ndarray, constant: np.ndarray) -> np.ndarray:
    """lim t·slope + constant: ±∞ by the sign of the slope, the constant where it is 0."""
    with np.errstate(invalid="ignore"):
        return np.where(slope > 0.0, np.inf, np.where(slope < 0.0, -np.inf, constant))


def log_sum(slopes: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """lim log Σ_c exp(t·p_c + q_c), [n]: the largest slope decides; where it is 0, logsumexp of q over those of 0."""
    among = scipy.special.logsumexp(np.where(winners(slopes), constants, -np.inf), axis=1)
    return in_the_end(slopes.max(axis=1), among)


def log_odds(slopes: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """lim log(p / (1 − p)) of the largest probability: +∞ where one class alone has the largest slope."""
    won = winners(slopes)
    among = np.sort(np.where(won, constants, -np.inf), axis=1)
    with np.errstate(invalid="ignore"):
        finite = among[:, -1] - scipy.special.logsumexp(among[:, :-1], axis=1)
    return np.where(won.sum(axis=1) == 1, np.inf, finite)


def probabilities(slopes: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """lim softmax(t·p + q), [n, K]: shared among the classes of the largest slope."""
    return scipy.special.softmax(np.where(winners(slopes), constants, -np.inf), axis=1)
