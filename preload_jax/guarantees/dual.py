"""The largest log-odds of a class over all embeddings, by Newton's method on the dual.

Against class c, let y_i(g) = z_i(g) − z_c(g) for the other classes i and for the OOD class o, whose logit
Σ_j v_j g_j^e + b_o is convex.  The largest log-odds of c is −T with

    T = min_g log Σ_i exp(y_i(g))  =  max_p D(p),   p a distribution over the K competitors,
    D(p) = H(p) + Σ_i p_i (b_i − b_c) − Σ_j (1 − 1/e) r_j g_j,
    r = w_c − Σ_{i≠o} p_i w_i,    g_j = (max(r_j, 0) / (e v_j p_o))^{1/(e−1)}

(without `max` where embeddings may be negative).  Every p gives a bound on the log-odds, −D(p): weak duality.
p = 1 on o gives the closed form.  The gap between p and its g is KL(p ‖ softmax(y(g))), 0 at the optimum only.

No class competes with itself, so in row c of a matrix [classes, K] column c holds the OOD class o.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int, Shaped
from scipy.special import log_softmax, logsumexp

from preload_jax.guarantees import linear_systems

# Arrays are `Shaped`, not `Float`: jaxtyping counts long doubles as no floats.

# A smaller share of the OOD class would divide rounding errors by itself; the bound stays valid, its gap shows it.
_LOWEST = math.log(1e-12)
_NEGLIGIBLE = 1e-14
# Of the gap, in log-odds, absolute below 1 and relative above.
_TOLERANCE = 1e-12
_INVISIBLE = np.finfo(np.float64).eps
_MAX_NEWTON_STEPS = 40
_MAX_HALVINGS = 40


@dataclass(frozen=True)
class DualProblem:
    """The problems of several classes of one head.

    Attributes:
        weights, bias: of all K classes.
        square_weights, ood_bias, exponent: of the OOD logit.
        nonnegative: whether g ≥ 0.
        classes: the classes c to be solved for.
    """

    weights: Shaped[np.ndarray, "k d"]
    bias: Shaped[np.ndarray, "k"]
    square_weights: Shaped[np.ndarray, "d"]
    ood_bias: float
    exponent: int
    nonnegative: bool
    classes: Int[np.ndarray, "c"]

    def in_extended_precision(self) -> "DualProblem":
        """The same problem in NumPy's longest type of float: sixty-four bits of mantissa on most machines."""
        widened = {name: getattr(self, name).astype(np.longdouble) for name in ("weights", "bias", "square_weights")}
        return replace(self, **widened)

    @property
    def own(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the OOD class is in a matrix [classes, K]."""
        return np.arange(len(self.classes)), self.classes

    @property
    def offsets(self) -> Shaped[np.ndarray, "c k"]:
        """b_i − b_c and, in the slot of c, b_o − b_c."""
        offsets = np.repeat(self.bias[None], len(self.classes), axis=0)
        offsets[self.own] = self.ood_bias
        return offsets - self.bias[self.classes, None]

    def residuals(self, shares: Shaped[np.ndarray, "c k"]) -> Shaped[np.ndarray, "c d"]:
        """R = w_c − Σ_{i≠o} p_i w_i, which multiplies g_j p_o in the Lagrangian."""
        return self.weights[self.classes] - self.without_ood(shares) @ self.weights

    def embeddings(self, slopes: Shaped[np.ndarray, "c d"]) -> Shaped[np.ndarray, "c d"]:
        """The g that maximises xᵀg − Σ_j v_j g_j^e, for x = r / p_o."""
        if self.exponent == 2:
            return (np.maximum(slopes, 0.0) if self.nonnegative else slopes) / (2.0 * self.square_weights)
        magnitude = np.maximum(slopes, 0.0) if self.nonnegative else np.abs(slopes)
        return np.sign(slopes) * (magnitude / (self.exponent * self.square_weights)) ** (1.0 / (self.exponent - 1))

    def logits(self, embeddings: Shaped[np.ndarray, "c d"]) -> Shaped[np.ndarray, "c k"]:
        """y(g), row c at its own embedding."""
        logits = embeddings @ self.weights.T
        own = logits[self.own]
        logits[self.own] = embeddings**self.exponent @ self.square_weights
        return logits - own[:, None] + self.offsets

    def attained(self, embeddings: Shaped[np.ndarray, "c d"]) -> Shaped[np.ndarray, "c"]:
        """The log-odds at an embedding, −log Σ_i exp(y_i(g)), rounded down by what rounding can have taken from y."""
        num_classes, d = self.weights.shape
        magnitude = np.abs(embeddings) @ np.abs(self.weights).T
        own = magnitude[self.own]
        magnitude[self.own] = embeddings**self.exponent @ self.square_weights
        magnitude += own[:, None] + np.abs(self.offsets)
        eps = np.finfo(self.weights.dtype).eps
        logits = self.logits(embeddings) + (d + self.exponent + 4) * eps * magnitude
        largest = logits.max(axis=1)
        value = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
        return -value - (num_classes + 4) * eps * np.maximum(1.0, np.abs(value))

    def minimisers(self, shares: Shaped[np.ndarray, "c k"]) -> Shaped[np.ndarray, "c d"]:
        """The g that belong to p."""
        return self.embeddings(self.residuals(shares) / shares[self.own][:, None])

    def value(
        self, shares: Shaped[np.ndarray, "c k"], residuals: Shaped[np.ndarray, "c d"] | None = None
    ) -> Shaped[np.ndarray, "c"]:
        """D(p); its residuals may be given."""
        residuals = self.residuals(shares) if residuals is None else residuals
        return self._entropy_and_offsets(shares).sum(axis=1) - self._penalties(residuals, shares).sum(axis=1)

    def upper_bound(self, shares: Shaped[np.ndarray, "c k"]) -> Shaped[np.ndarray, "c"]:
        """−D(p) rounded up: an upper bound on the log-odds whatever the rounding in it."""
        eps = np.finfo(self.weights.dtype).eps
        num_classes, d = self.weights.shape
        magnitude = np.abs(self.weights[self.classes]) + self.without_ood(shares) @ np.abs(self.weights)
        residuals = self.residuals(shares)
        # Away from 0, or up where only positive residuals count: either way the penalty grows.
        slack = (num_classes + 2) * eps * magnitude
        residuals += slack if self.nonnegative else np.sign(residuals) * slack
        penalties = self._penalties(residuals, shares)
        terms = self._entropy_and_offsets(shares)
        # The 1 is for shares whose sum is not exactly 1, which matters where all terms are small.
        rounding = (num_classes + d + 16) * eps * (1.0 + np.abs(terms).sum(axis=1) + penalties.sum(axis=1))
        return penalties.sum(axis=1) - terms.sum(axis=1) + rounding

    def without_ood(self, values: Shaped[np.ndarray, "c k"]) -> Shaped[np.ndarray, "c k"]:
        """A copy with 0 in the slot of the OOD class."""
        values = values.copy()
        values[self.own] = 0.0
        return values

    def _entropy_and_offsets(self, shares: np.ndarray) -> np.ndarray:
        return shares * (self.offsets - np.log(np.where(shares > 0.0, shares, 1.0)))

    def _penalties(self, residuals: np.ndarray, shares: np.ndarray) -> np.ndarray:
        # Infinite where p_o is tiny: a bound, if a useless one.
        with np.errstate(over="ignore"):
            embeddings = self.embeddings(residuals / shares[self.own][:, None])
            return (1.0 - 1.0 / self.exponent) * residuals * embeddings


def solve(
    problem: DualProblem, *, start: Shaped[np.ndarray, "c k"] | None = None, floor: float | None = None
) -> Shaped[np.ndarray, "c k"]:
    """p that maximises D for every class.  Without a start (of log p) halfway from the closed form's to softmax(y(g)).

    It stops short where p_o is tiny or, for exponents above 2, an r_j is near 0: there D is close to singular.  With
    a `floor` of its own under p_o Newton's equation is solved by an orthogonal factorisation, one class after the
    other: slower, and it goes on where conjugate gradients stop.
    """
    if start is None:
        closed_form_logits = problem.logits(problem.embeddings(problem.weights[problem.classes]))
        start = log_softmax(closed_form_logits, axis=1)
        start[problem.own] = np.logaddexp(start[problem.own], 0.0)
    direct, lowest = floor is not None, _LOWEST if floor is None else math.log(floor)
    log_shares = _normalised(problem, start, lowest)
    remaining = np.arange(len(problem.classes))
    for _ in range(_MAX_NEWTON_STEPS):
        part = replace(problem, classes=problem.classes[remaining])
        theta = log_shares[remaining]
        direction, ascent, value, gap = _newton_direction(part, theta, direct=direct, lowest=lowest)
        log_shares[remaining], moved = _line_search(part, theta, direction, value=value, ascent=ascent, lowest=lowest)
        remaining = remaining[moved & (gap > _TOLERANCE * np.maximum(1.0, np.abs(value)))]
        if not len(remaining):
            break
    return np.exp(log_shares)


def _newton_direction(
    problem: DualProblem, theta: np.ndarray, *, direct: bool, lowest: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The Newton direction of θ = log p, D's derivative along it, D, and the gap between D and T.

    In terms of δ = Δθ the Newton equation is δ + B(p∘δ) = y − θ + const with Σ p δ = 0, B the curvature of the
    penalty.  A p too small to matter gets δ = y − θ − B(p∘δ), which sets its log share to its logit in one step.
    """
    shares = np.exp(theta)
    roots = np.sqrt(shares)
    ood_share = shares[problem.own][:, None]
    residuals = problem.residuals(shares)
    value = problem.value(shares, residuals)
    slopes = residuals / ood_share
    embeddings = problem.embeddings(slopes)
    logits = problem.logits(embeddings)
    active = embeddings != 0.0
    slopes = np.where(active, slopes, 0.0)
    # dg/dx
    stiffness = np.divide(embeddings, (problem.exponent - 1) * slopes, out=np.zeros_like(slopes), where=active)

    def centred(values: np.ndarray) -> np.ndarray:
        return values - np.sum(shares * values, axis=1, keepdims=True)

    def curvature(change: np.ndarray) -> np.ndarray:
        """B Δp."""
        slope_change = problem.without_ood(change) @ problem.weights + slopes * change[problem.own][:, None]
        moved = slope_change * stiffness / ood_share
        result = moved @ problem.weights.T
        result[problem.own] = np.sum(moved * slopes, axis=1)
        return centred(result)

    gradient = centred(logits - theta)
    # An OOD share at its floor that wants to fall further stays, so that the others can settle.
    stays = (theta[problem.own] <= lowest) & (gradient[problem.own] < 0.0)
    roots[problem.own] *= ~stays
    gap = logsumexp(logits, axis=1) - value
    if direct:
        factors = np.sqrt(stiffness / ood_share)
        solution = np.stack(
            [
                linear_systems.by_factorisation(
                    problem.weights, c, slopes[i], factors[i], roots[i], roots[i] * gradient[i]
                )
                for i, c in enumerate(problem.classes.tolist())
            ]
        )
    else:
        # As exact as this step can use: far from the optimum Newton's model is wrong by far more than a tenth.
        accuracy = np.clip(gap, 1e-8, 0.1)
        solution = linear_systems.conjugate_gradients(
            lambda x: x + roots * curvature(roots * x), roots * gradient, accuracy=accuracy
        )
    # Δp / p where p isn't negligible: the other expression cancels there when the penalty is stiff.
    direction = np.where(
        shares > (1e-200 if direct else _NEGLIGIBLE),
        solution / np.maximum(roots, 1e-300),
        gradient - curvature(roots * solution),
    )
    direction[problem.own] *= ~stays
    return direction, np.sum(shares * gradient * direction, axis=1), value, gap


def _line_search(
    problem: DualProblem,
    theta: np.ndarray,
    direction: np.ndarray,
    *,
    value: np.ndarray,
    ascent: np.ndarray,
    lowest: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Halve the step of each class until D grows in proportion to it; (θ, whether it moved)."""
    theta = theta.copy()
    moved = np.zeros(len(theta), bool)
    waiting = np.arange(len(theta))
    for halvings in range(_MAX_HALVINGS):
        step = 0.5**halvings
        part = replace(problem, classes=problem.classes[waiting])
        trial = _normalised(part, theta[waiting] + step * direction[waiting], lowest)
        better = part.value(np.exp(trial)) > value[waiting] + 1e-4 * step * ascent[waiting]
        theta[waiting[better]] = trial[better]
        moved[waiting[better]] = True
        # A growth below rounding can't be seen: a shorter step won't show it either.
        visible = 0.5 * step * ascent[waiting] > _INVISIBLE * np.maximum(1.0, np.abs(value[waiting]))
        waiting = waiting[~better & visible]
        if not len(waiting):
            break
    return theta, moved


def _normalised(problem: DualProblem, theta: np.ndarray, lowest: float) -> np.ndarray:
    theta = log_softmax(theta, axis=1)
    theta[problem.own] = np.maximum(theta[problem.own], lowest)
    return log_softmax(theta, axis=1)
