"""Penalised multinomial regressions, fitted in float64 on the host: what vector scaling and the Dirichlet map share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular
from scipy.special import log_softmax, softmax
from threadpoolctl import threadpool_limits

from preload_jax.checks import require_number
from preload_jax.errors import UserError

# The strengths that cross-validation chooses from, the strongest first, and in how many parts.
STRENGTHS = (10.0, 1.0, 0.1, 0.01, 0.001)
_FOLDS = 5
# A gradient this small, in units in which the curvature is about 1, is the minimum's; what strengths are compared by
# may be rougher, and what float64 cannot bring below the last is refused.
_FLAT, _FLAT_TO_COMPARE, _FLAT_ENOUGH = 1e-9, 1e-4, 1e-6


@dataclass(frozen=True)
class Problem:
    """Mean cross-entropy of the logits θ_c · x_c of each class c, and a pull of θ to the identity.

    Attributes:
        inputs: x, [n, m] where all classes share it, else [n, K, m].
        labels: [n].
        identity: the θ that changes nothing, [K, m].
        penalties: by name, [K, m]; each is multiplied by a strength and by the squared distance of θ from the identity.
    """

    inputs: Float[np.ndarray, "n *shape"]
    labels: Int[np.ndarray, "n"]
    identity: Float[np.ndarray, "k m"]
    penalties: dict[str, Float[np.ndarray, "k m"]]

    def rows(self, rows: np.ndarray) -> "Problem":
        """The problem of some of the examples."""
        return Problem(self.inputs[rows], self.labels[rows], self.identity, self.penalties)

    def logits(self, theta: np.ndarray) -> np.ndarray:
        """[n, K]."""
        shared = self.inputs.ndim == 2
        return np.asarray(self.inputs @ theta.T if shared else np.einsum("nkm,km->nk", self.inputs, theta))

    def adjoint(self, gradient: np.ndarray) -> np.ndarray:
        """From a gradient in the logits [n, K] to the one in θ [K, m]."""
        shared = self.inputs.ndim == 2
        return np.asarray(gradient.T @ self.inputs if shared else np.einsum("nk,nkm->km", gradient, self.inputs))

    def cross_entropies(self, theta: np.ndarray) -> np.ndarray:
        """Of each example."""
        return -log_softmax(self.logits(theta), axis=1)[np.arange(len(self.labels)), self.labels]

    def units(self, penalty: np.ndarray) -> np.ndarray:
        """U, [m, m] or one a class: in φ, θ = identity + φ Uᵀ, the Hessian is about 1 at the identity."""
        n, q = len(self.labels), softmax(self.logits(self.identity), axis=1)
        weight = np.mean(q * (1.0 - q)) / n
        if self.inputs.ndim == 2:
            gram, ridge = weight * (self.inputs.T @ self.inputs), penalty.mean(axis=0)
        else:
            gram, ridge = weight * np.einsum("nkm,nkl->kml", self.inputs, self.inputs), penalty
        lower = np.linalg.cholesky(gram + 2.0 * ridge[..., None] * np.eye(gram.shape[-1]))
        inverse = [
            solve_triangular(one, np.eye(len(one)), lower=True).T for one in lower.reshape(-1, *lower.shape[-2:])
        ]
        return np.reshape(inverse, lower.shape)


def minimise(
    problem: Problem, penalty: np.ndarray, *, start: np.ndarray | None = None, flat: float = _FLAT
) -> np.ndarray:
    """The θ of the smallest penalised cross-entropy, by a trust region with conjugate gradients (Steihaug, 1983).

    With a penalty > 0 on every parameter it is strictly convex, so that there is one minimum.

    Raises:
        UserError: where float64 does not reach it.
    """
    n, identity = len(problem.labels), problem.identity
    units = problem.units(penalty)
    target = np.zeros((n, len(identity)))
    target[np.arange(n), problem.labels] = 1.0
    kept: dict[str, Any] = {}

    def away(phi: np.ndarray) -> np.ndarray:
        rows = phi.reshape(identity.shape)
        return np.asarray(rows @ units.T if units.ndim == 2 else np.einsum("kij,kj->ki", units, rows))

    def back(gradient: np.ndarray) -> np.ndarray:
        return np.ravel(gradient @ units if units.ndim == 2 else np.einsum("kij,ki->kj", units, gradient))

    def probabilities(phi: np.ndarray) -> Any:
        # The conjugate gradients ask for many products at one point.
        if "at" not in kept or not np.array_equal(kept["at"], phi):
            kept["at"], kept["q"] = phi.copy(), softmax(problem.logits(identity + away(phi)), axis=1)
        return kept["q"]

    def value_and_gradient(phi: np.ndarray) -> tuple[float, np.ndarray]:
        moved = away(phi)
        value = problem.cross_entropies(identity + moved).mean() + float(np.sum(penalty * moved**2))
        gradient = problem.adjoint((probabilities(phi) - target) / n) + 2.0 * penalty * moved
        return value, back(gradient)

    def hessian_times(phi: np.ndarray, direction: np.ndarray) -> np.ndarray:
        q, step = probabilities(phi), away(direction)
        change = problem.logits(step)
        curved = q * (change - np.einsum("nk,nk->n", q, change)[:, None]) / n
        return back(problem.adjoint(curved) + 2.0 * penalty * step)

    first = np.zeros(identity.size)
    if start is not None:
        moved = start - identity
        inverse = np.linalg.inv(units)
        first = np.ravel(moved @ inverse.T if units.ndim == 2 else np.einsum("kij,kj->ki", inverse, moved))
    found = scipy.optimize.minimize(
        value_and_gradient,
        first,
        jac=True,
        hessp=hessian_times,
        method="trust-ncg",
        options={"gtol": flat, "maxiter": 500},
    )
    if not np.linalg.norm(value_and_gradient(found.x)[1]) <= max(flat, _FLAT_ENOUGH):
        raise UserError(
            "the map was not found to float64's precision: the logits are very large; divide them by a temperature"
        )
    return identity + away(found.x)


def fit(problem: Problem, strengths: dict[str, float | None]) -> np.ndarray:
    """θ with given strengths, and those that are None chosen, all the same, by the cross-entropy of held-out parts.

    Args:
        problem: of all examples.
        strengths: of each of the problem's penalties, > 0 or None.

    Raises:
        UserError: for a strength that is no number above 0.
    """
    given = {name: require_number(name, x, above=0.0) for name, x in strengths.items() if x is not None}

    def penalty(strength: float) -> np.ndarray:
        return np.asarray(sum(given.get(name, strength) * each for name, each in problem.penalties.items()))

    # The threads of BLAS would wait for each other in every small product.
    with threadpool_limits(1, user_api="blas"):
        chosen = _chosen(problem, penalty) if len(given) < len(strengths) else STRENGTHS[0]
        return minimise(problem, penalty(chosen))


def _chosen(problem: Problem, penalty: Callable[[float], np.ndarray]) -> float:
    """The first strength, from the strongest on, after which the held-out cross-entropy rises."""
    order = np.random.default_rng(0).permutation(len(problem.labels))
    parts = np.array_split(order, min(_FOLDS, len(order)))
    starts: list[np.ndarray | None] = [None] * len(parts)
    best, least = STRENGTHS[0], np.inf
    for strength in STRENGTHS:
        cost = 0.0
        for i, part in enumerate(parts):
            fitted = problem.rows(np.setdiff1d(order, part))
            theta = minimise(fitted, penalty(strength), start=starts[i], flat=_FLAT_TO_COMPARE)
            cost += float(problem.rows(part).cross_entropies(theta).sum())
            starts[i] = theta
        if cost >= least:
            break
        best, least = strength, cost
    return best
