"""Spline recalibration of the largest probability (Gupta et al., 2020)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import CubicSpline
from scipy.special import expit, logsumexp

from preload_jax.errors import UserError
from preload_jax.integers import require_integer
from preload_jax.log_sum_exp import log_sum_exp

# By how much, in log-odds, the first class stays above the second.
MARGIN = 1e-5


def fit(logits: np.ndarray, labels: np.ndarray, *, knots: int = 6) -> dict[str, np.ndarray]:
    """r(s), the share of examples of confidence s that are right, by the derivative of a natural cubic spline.

    The n examples in ascending order of s have the fractiles t_i = (i − 1)/(n − 1).  The spline δ(t), with evenly
    spaced knots in [0, 1], is fitted by least squares to Σ_{j ≤ i} (right_j − s_j) / n, and r = s + δ'(t).
    """
    n, knots = len(labels), require_integer("knots", knots, at_least=3)
    if n < knots:
        raise UserError(f"{n} examples; a spline with {knots} knots takes at least {knots}: give more")
    largest = logits.argmax(axis=1)
    others = logits.copy()
    others[np.arange(n), largest] = -np.inf
    log_odds = logits.max(axis=1) - logsumexp(others, axis=1)
    # Equal confidences share what is right among them, so that their order changes nothing.
    values, group, counts = np.unique(log_odds, return_inverse=True, return_counts=True)
    right = (np.bincount(group, weights=largest == labels) / counts).repeat(counts)
    stated, fractiles = expit(values).repeat(counts), np.linspace(0.0, 1.0, n)
    basis = CubicSpline(np.linspace(0.0, 1.0, knots), np.eye(knots), bc_type="natural")
    heights = np.linalg.lstsq(basis(fractiles), np.cumsum(right - stated) / n, rcond=None)[0]
    r = stated + basis(fractiles, 1) @ heights
    ends = np.cumsum(counts)
    mean = np.add.reduceat(r, ends - counts) / counts
    # Half an example of each kind more: n examples cannot show that a mistake never happens (Krichevsky and Trofimov,
    # 1981).  Float32 tells no more than the other apart from 1.
    least = max(0.5 / (n + 1), 2.0**-23)
    return {"log_odds": values, "probability": np.clip(mean, least, 1.0 - least)}


def logits(parameters: dict[str, Any], z: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """log q: the largest probability is r(s), the others keep their ratios; the largest stays the largest."""
    first = jax.nn.one_hot(jnp.argmax(z, axis=-1), z.shape[-1], dtype=bool)
    others = jnp.where(first, -jnp.inf, z)
    rest = log_sum_exp(others)
    r = jnp.interp(jnp.max(z, axis=-1) - rest, parameters["log_odds"], parameters["probability"])
    # log(p₂ / (1 − s)): where r / (1 − r) is below p₂ / (1 − s), the second would overtake the first.
    second = jnp.max(others, axis=-1) - rest
    log_odds = jnp.maximum(jnp.log(r) - jnp.log1p(-r), second + MARGIN)
    of_first, of_others = jax.nn.log_sigmoid(log_odds)[..., None], jax.nn.log_sigmoid(-log_odds)[..., None]
    lowest = jnp.finfo(z.dtype).min
    return jnp.where(first, of_first, jnp.maximum(others - rest[..., None] + of_others, lowest))
