"""OpenMax: logits discounted by their distance to the class mean, for an unknown class (Bendale and Boult, 2016)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Array, Float

from preload_jax.detectors import far_away, moments, norms
from preload_jax.detectors.data import Outputs, Training
from preload_jax.errors import UserError
from preload_jax.log_sum_exp import log_sum_exp

# libMR, which the original code fits with, moves distances by this before it fits a Weibull distribution to them.
_SHIFT = 1e4


def fit(training: Training, *, tail: int, largest: int) -> dict[str, Any]:
    """Mean logits [K, K] of the correctly classified; Weibull shapes, log-scales and offsets [K] of their distances.

    Raises:
        UserError: where a class has no correctly classified example, or its largest distances are all the same.
    """
    k = training.num_classes
    if tail < 2 or largest < 1:
        raise UserError(f"tail {tail} and largest {largest}; expected at least 2 and 1")
    counts, sums = np.zeros(k, np.int64), np.zeros((k, k))
    for logits, labels in _correct(training):
        counts += np.bincount(labels, minlength=k)
        sums += moments.group_sums(logits, labels, k)
    if counts.min() < 2:
        c = int(counts.argmin())
        raise UserError(
            f"class {c} has {counts[c]} correctly classified examples; openmax needs at least 2"
            + moments.if_ood_class(counts)
        )
    means = sums / counts[:, None]
    tails = [np.empty(0)] * k
    for logits, labels in _correct(training):
        distances = np.linalg.norm(logits - means[labels], axis=1)
        for c in np.unique(labels):
            tails[c] = np.sort(np.concatenate([tails[c], distances[labels == c]]))[-tail:]
    offsets = np.array([x[0] for x in tails])
    fits = np.array([_weibull(x - x[0] + _SHIFT, c) for c, x in enumerate(tails)])
    return {"means": means, "shapes": fits[:, 0], "log_scales": fits[:, 1], "offsets": offsets}


def _correct(training: Training) -> Any:
    for block, labels in training.blocks():
        right = block.logits.argmax(axis=1) == labels
        if right.any():
            yield block.logits[right].astype(np.float64), labels[right]


def _weibull(x: np.ndarray, c: int) -> tuple[float, float]:
    """Shape k and log-scale of the largest likelihood: 1/k = Σ xᵏ log x / Σ xᵏ − mean log x (location 0)."""
    logs = np.log(x / _SHIFT)
    spread = float(logs.max() - logs.min())
    if spread == 0.0:
        raise UserError(f"the largest distances of class {c} are all the same; no Weibull distribution fits them")

    def equation(log_k: float) -> float:
        k = np.exp(log_k)
        weights = scipy.special.softmax(k * logs)
        return float(weights @ logs - logs.mean() - 1.0 / k)

    k = np.exp(scipy.optimize.brentq(equation, -np.log(spread) - 5.0, -np.log(spread) + 15.0, xtol=1e-12))
    log_scale = (scipy.special.logsumexp(k * logs) - np.log(len(x))) / k
    return float(k), float(log_scale)


def score(fitted: dict[str, Any], outputs: Outputs, *, tail: int, largest: int) -> Float[Array, "n"]:
    """log((1 − p₀) / p₀) of the unknown class's probability, [n]."""
    logits = outputs.logits
    # ‖z − m_c‖ term by term: the expanded square would lose the digits of small distances.
    distances = jnp.stack([norms.norm(logits - m[None]) for m in fitted["means"]], axis=-1)
    # log(1 + u), not log of the sum: the shift is four orders larger than what matters.
    moved = jnp.log1p(jnp.maximum((distances - fitted["offsets"][None]) / _SHIFT, -1.0 + 1e-6))
    far = -jnp.expm1(-jnp.exp(fitted["shapes"][None] * (moved - fitted["log_scales"][None])))
    alpha = min(largest, logits.shape[-1])
    rank = jnp.argsort(jnp.argsort(-logits, axis=-1), axis=-1)
    discount = far * jnp.maximum(alpha - rank, 0).astype(far.dtype) / alpha
    known, unknown = logits * (1.0 - discount), jnp.sum(logits * discount, axis=-1)
    return log_sum_exp(known) - unknown


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, tail: int, largest: int) -> np.ndarray:
    """The sign of max_c p_c (1 − r_c) − Σ_c p_c r_c, r_c = (α − rank_c)/α: every distance grows, so every F_c → 1."""
    p, q = ray.logit_slopes, ray.logit_constants
    alpha = min(largest, p.shape[1])
    order = np.lexsort((q, p), axis=1)[:, ::-1]
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(p.shape[1]), p.shape), axis=1)
    r = np.maximum(alpha - rank, 0) / alpha
    slopes = p * (1.0 - r) - np.sum(p * r, axis=1, keepdims=True)
    limits = far_away.log_sum(slopes, q * (1.0 - r) - np.sum(q * r, axis=1, keepdims=True))
    still = (p == 0.0).all(axis=1)
    at_rest = np.asarray(score(fitted, Outputs(logits=jnp.asarray(q)), tail=tail, largest=largest), np.float64)
    return np.where(still, at_rest, limits)
