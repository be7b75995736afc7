"""GEN: a generalised entropy of the M largest probabilities (Liu et al., 2023), as −log G."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs
from preload_jax.detectors.largest import two_largest
from preload_jax.errors import UserError


def score(fitted: dict[str, Any], outputs: Outputs, *, gamma: float, largest: int) -> Float[Array, "n"]:
    """−log G with G = Σ p_c^γ (1 − p_c)^γ over the M largest, in logarithms: p^γ would round to 0 far away."""
    if largest < 1 or gamma <= 0.0:
        raise UserError(f"gamma {gamma} and largest {largest}; expected gamma > 0 and largest at least 1")
    logits = outputs.logits
    first, second, is_largest = two_largest(logits)
    # All below the second largest: logits as large as 1e6 have no digits for log Σ, and the others' sum does not vanish
    # beside a class that is far above them.  Barriers: XLA would otherwise compute these anew wherever they are read.
    below = logits - second
    powers = jax.lax.optimization_barrier(jnp.where(is_largest, 0.0, jnp.exp(below)))
    log_others = jnp.log(jnp.sum(powers, axis=-1, keepdims=True))
    # log((1 − p)/p) of the largest p, and −log p.
    odds = second - first + log_others
    minus_log_p = jax.lax.optimization_barrier(jnp.logaddexp(0.0, odds))
    # Terms are over that of the largest p, which no other exceeds: p(1 − p) grows up to ½.  The other p are at most ½,
    # so that log(1 − p) has no fewer digits than log p.
    log_rest = jnp.log(1.0 - powers * jnp.exp(second - first - minus_log_p))
    terms = jnp.where(is_largest, 0.0, gamma * (below - log_others + minus_log_p + log_rest))
    if largest < logits.shape[-1]:
        _, chosen = jax.lax.top_k(logits, largest)
        terms = jnp.take_along_axis(terms, chosen, axis=-1)
    of_largest = gamma * (odds - 2.0 * minus_log_p)[..., 0]
    return -(of_largest + jnp.log(jnp.sum(jnp.exp(terms), axis=-1)))


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, gamma: float, largest: int) -> np.ndarray:
    """+∞ where one class alone has the largest slope: every p_c → 0 or 1, and G → 0."""
    p = np.sort(far_away.probabilities(ray.logit_slopes, ray.logit_constants), axis=1)[:, -largest:]
    with np.errstate(divide="ignore"):
        return -np.log(np.sum((p * (1.0 - p)) ** gamma, axis=1))
