"""The largest confidence anywhere: the supremum of P(c | g) over all embeddings g."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog
from scipy.special import expit, softmax

from preload_jax.devices import threads
from preload_jax.errors import warn_user
from preload_jax.guarantees import dual, primal
from preload_jax.guarantees.dual import DualProblem
from preload_jax.guarantees.head_parameters import HeadParameters, known_nonnegative, read_head

# Classes solved at once, by one thread: few enough for its arrays to stay in the cache.
_BLOCK_SIZE = 128
# A wider gap between the bound and what is attained, relative to log-odds above 1, calls for the slower solver.
_MAX_GAP = 1e-8
# And one that is wider still is said.
_GAP_TO_SAY = 1e-6
# Smallest shares of the OOD class that are tried in the dual bound at a primal solution: it divides by them.
_SHARES = (1e-300, *np.logspace(-20, -8, 25))
# The floors under that share, one after the other.
_FLOORS = tuple(10.0**-n for n in range(4, 19))


@dataclass(frozen=True)
class ConfidenceBound:
    """The supremum of P(c | g) for each class, as a probability and as log-odds, log P − log(1 − P).

    A probability within 1e-16 of 1 prints as 1.  Its log-odds still show how far from 1 it is.  Arrays have one entry
    for each class: [k], or [k, d] for `embeddings`.

    Attributes:
        confidence: an upper bound on P(c | g) over all g; 1 for a linear head.
        log_odds: the log-odds of `confidence`, in nats; inf for a linear head.
        attained_log_odds: the log-odds at `embeddings`, rounded down.  The supremum lies between these and `log_odds`.
        closed_form: sigmoid(Σ_j max(w_cj, 0)² / (4 v_j) + b_c − b_{K+1}), never below `confidence`.
        closed_form_log_odds: the log-odds of `closed_form`: the sum inside the sigmoid.
        kkt_residual: how far `embeddings` violate the optimality (Karush-Kuhn-Tucker) conditions: the largest slope of
            the log-odds along a coordinate that may move, relative to the largest weight.
        embeddings: where `attained_log_odds` is attained.  For a linear head a direction along which the confidence
            tends to 1; a row of zeros where the class has none, so that 1 is an upper bound, not its supremum.
        reason: why the bound is what it is, in a sentence.

    Example: see `confidence_bound`.
    """

    confidence: Float[np.ndarray, "k"]
    log_odds: Float[np.ndarray, "k"]
    attained_log_odds: Float[np.ndarray, "k"]
    closed_form: Float[np.ndarray, "k"]
    closed_form_log_odds: Float[np.ndarray, "k"]
    kkt_residual: Float[np.ndarray, "k"]
    embeddings: Float[np.ndarray, "k d"]
    reason: str

    def __repr__(self) -> str:
        largest = np.max(self.log_odds, initial=-np.inf)
        return f"ConfidenceBound(classes={len(self.log_odds)}, largest log_odds={largest:.4g}, reason={self.reason!r})"


def confidence_bound(
    head_variables: Mapping[str, Any],
    *,
    exponent: int = 2,
    nonnegative: bool | None = None,
    min_weight: float = 0.0,
    min_distance_weight: float | None = None,
) -> ConfidenceBound:
    """The largest confidence of each class over every conceivable input.

    With a square-logit head −log P(c | g) is convex in g, so its minimum over g is a small convex programme.  It is
    solved in float64 on the host.  Every point of its dual gives a bound, so `log_odds` is valid whatever the solver
    did.  The gap to `attained_log_odds` says how far it can be from the supremum.  The bound allows for rounding of the
    float64 arithmetic, but not for rounding of the network's own float32 logits (about 1e-6 of their size).

    Args:
        head_variables: `variables["params"]["head"]` of a classifier: {"linear": {"kernel", "bias"}} and, for a
            square-logit head, {"ood": {"raw_weights", "bias"}}.
        exponent: the head's even power.
        nonnegative: True if embeddings are ≥ 0, as `nonnegative_embeddings` proves of a network that ends with ReLU.
            The bound is then smaller.  With False, or None for "not known", it holds over all of ℝ^d.
        min_weight, min_distance_weight: the head's floors: with `exponent` they are `models.head_options(head)`.

    Warns (RuntimeWarning) when the gap is above 1e-6 of the log-odds, or above 1e-6 if they are below 1.  The bound
    still holds.

    Raises:
        UserError: for parameters that are not a head's or not finite, an exponent that is not even, or a `nonnegative`
            that is none of True, False and None.

    Example:
        >>> import numpy as np
        >>> from preload_jax import guarantees
        >>> head = {
        ...     "linear": {"kernel": np.array([[2.0, -2.0]]), "bias": np.zeros(2)},
        ...     "ood": {"raw_weights": np.zeros(1), "bias": np.array(0.0)},
        ... }
        >>> bound = guarantees.confidence_bound(head, nonnegative=True)  # logits 2g, −2g and g², for g ≥ 0
        >>> bound.confidence.round(4).tolist(), bound.embeddings[0].round(4).tolist()
        ([0.7228, 0.3333], [1.0737])
    """
    nonnegative = known_nonnegative(nonnegative)
    head = read_head(head_variables, exponent=exponent, min_weight=min_weight, min_distance_weight=min_distance_weight)
    if head.square_weights is None:
        return _linear_bound(head, nonnegative=nonnegative)
    # At the largest confidence the distance, which the classes do not see, is 0.
    problem = DualProblem(
        head.weights,
        head.bias,
        head.square_weights,
        head.ood_bias,
        exponent,
        nonnegative,
        classes=np.arange(len(head.weights)),
    )
    blocks = _solve_all(problem)
    return ConfidenceBound(
        **{name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]},
        reason=f"the square logit grows with the embedding's power {exponent}, every other logit linearly (theorem 1); "
        + ("over embeddings >= 0" if nonnegative else "over all embeddings, negative ones too"),
    )


def _solve_all(problem: DualProblem) -> list[dict[str, np.ndarray]]:
    """`_solve` of all classes, a block a thread.

    The threads of BLAS would wait for each other in every product, which takes minutes on a busy machine.
    """
    count = len(problem.classes)
    parts = [replace(problem, classes=problem.classes[i : i + _BLOCK_SIZE]) for i in range(0, count, _BLOCK_SIZE)]
    with threads.blas_alone():  # of a single block, too
        blocks = list(threads.in_order(_solve, parts))
    gaps = np.concatenate(
        [(b["log_odds"] - b["attained_log_odds"]) / np.maximum(1.0, np.abs(b["log_odds"])) for b in blocks]
    )
    if (gaps > _GAP_TO_SAY).any():
        warn_user(
            f"the bound of {int((gaps > _GAP_TO_SAY).sum())} of {count} classes may lie above the supremum by up to"
            f" {gaps.max():.1e} of the log-odds: it holds, but is not known to be the smallest",
            RuntimeWarning,
        )
    return blocks


def _solve(problem: DualProblem) -> dict[str, np.ndarray]:
    """The fields of `ConfidenceBound` for the problem's classes."""
    shares = dual.solve(problem)
    embeddings = problem.minimisers(shares)
    # p = 1 on the OOD class.
    closed_form = problem.upper_bound(np.eye(len(problem.weights))[problem.classes])
    log_odds = np.minimum(problem.upper_bound(shares), closed_form)
    attained = problem.attained(embeddings)
    for i in np.flatnonzero(log_odds - attained > _MAX_GAP * np.maximum(1.0, np.abs(log_odds))):
        g, value, bound = _by_primal(replace(problem, classes=problem.classes[[i]]))
        log_odds[i] = min(log_odds[i], bound)
        if value > attained[i]:
            embeddings[i], attained[i] = g, value
    return {
        "confidence": _expit_rounded_up(log_odds),
        "log_odds": log_odds,
        "attained_log_odds": attained,
        "closed_form": _expit_rounded_up(closed_form),
        "closed_form_log_odds": closed_form,
        "kkt_residual": _kkt_residual(problem, embeddings),
        "embeddings": embeddings,
    }


def _by_primal(problem: DualProblem) -> tuple[np.ndarray, float, float]:
    """g, the log-odds at g, and the best of some bounds near g, for a problem of one class."""
    g = primal.minimise(problem)
    logits = problem.logits(g[None])
    precise = problem.in_extended_precision()
    found = [softmax(logits, axis=1)]
    # From shares at which the dual is tame down to where the OOD class hardly counts, each from the one before.
    for floor in _FLOORS:
        with np.errstate(divide="ignore"):
            found.append(dual.solve(problem, start=np.maximum(np.log(found[-1]), -700.0), floor=floor))
    # A larger share of the OOD class costs little, and rounding is divided by it.
    candidates = np.concatenate([np.repeat(shares, len(_SHARES), axis=0) for shares in found])
    best = replace(precise, classes=np.repeat(problem.classes, len(candidates)))
    candidates[best.own] = np.maximum(candidates[best.own], np.tile(_SHARES, len(found)))
    bounds = best.upper_bound(candidates / candidates.sum(axis=1, keepdims=True))
    # The dual's own embeddings are the better ones where the primal's steps stall.
    dual_points = replace(problem, classes=np.repeat(problem.classes, len(found) - 1))
    points = np.concatenate([g[None], dual_points.minimisers(np.concatenate(found[1:]))])
    points = points[np.isfinite(points).all(axis=1)]
    attained = replace(precise, classes=np.repeat(problem.classes, len(points))).attained(points)
    best_point = int(np.argmax(attained))
    # float64 may round the extended precision's number to the wrong side.
    return (
        points[best_point],
        np.nextafter(float(attained[best_point]), -np.inf),
        np.nextafter(float(bounds.min()), np.inf),
    )


def _expit_rounded_up(log_odds: np.ndarray) -> np.ndarray:
    return np.minimum(expit(log_odds) * (1.0 + 4.0 * np.finfo(np.float64).eps), 1.0)


def _kkt_residual(problem: DualProblem, embeddings: np.ndarray) -> np.ndarray:
    """The largest |∂T/∂g_j|, where g_j = 0 ≤ g only if negative, relative to the largest |w_ij|."""
    shares = softmax(problem.logits(embeddings), axis=1)
    slopes = problem.exponent * problem.square_weights * embeddings ** (problem.exponent - 1)
    gradient = shares[problem.own][:, None] * slopes - problem.residuals(shares)
    if problem.nonnegative:
        gradient = np.where(embeddings > 0.0, gradient, np.minimum(gradient, 0.0))
    return np.abs(gradient).max(axis=1) / max(np.abs(problem.weights).max(), np.finfo(np.float64).tiny)


def _linear_bound(head: HeadParameters, *, nonnegative: bool) -> ConfidenceBound:
    directions = np.stack([_winning_direction(head.weights, c, nonnegative) for c in range(len(head.weights))])
    reached = np.abs(directions).max(axis=1) > 0.0
    infinite = np.full(len(head.weights), np.inf)
    one = np.ones(len(head.weights))
    return ConfidenceBound(
        confidence=one,
        log_odds=infinite,
        attained_log_odds=np.where(reached, np.inf, np.nan),
        closed_form=one,
        closed_form_log_odds=infinite,
        kkt_residual=np.zeros(len(head.weights)),
        embeddings=directions,
        reason=f"every logit is linear, and {int(reached.sum())} of {len(reached)} outgrow all others along a ray of "
        "embeddings, where their probability tends to 1",
    )


def _winning_direction(weights: np.ndarray, c: int, nonnegative: bool) -> np.ndarray:
    """A unit g with w_cᵀg > w_iᵀg for every other class, or zeros where there is none."""
    num_classes, width = weights.shape
    if num_classes == 1:  # All win where there is no other.
        return np.full(width, width**-0.5)
    differences = weights[c] - np.delete(weights, c, axis=0)
    guess = weights[c] - weights.mean(axis=0)
    direction = np.maximum(guess, 0.0) if nonnegative else guess
    if not np.all(differences @ direction > 0.0):
        # Largest margin within a box: 0 when no direction wins.
        programme = linprog(
            np.append(np.zeros(width), -1.0),
            A_ub=np.hstack([-differences, np.ones((len(differences), 1))]),
            b_ub=np.zeros(len(differences)),
            bounds=[(0.0 if nonnegative else -1.0, 1.0)] * width + [(None, None)],
        )
        direction = programme.x[:width] if programme.success else np.zeros(width)
        if not (differences @ direction).min() > 1e-9 * np.abs(differences).max():
            return np.zeros(width)
    return direction / np.linalg.norm(direction)
