"""GEN: a generalised entropy of the M largest probabilities (Liu et al., 2023), as −log G."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs
from preload_jax.errors import UserError
from preload_jax.log_sum_exp import log_sum_exp


def score(fitted: dict[str, Any], outputs: Outputs, *, gamma: float, largest: int) -> Float[Array, "n"]:
    """−log G with G = Σ p_c^γ (1 − p_c)^γ over the M largest, in logarithms: p^γ would round to 0 far away."""
    if largest < 1 or gamma <= 0.0:
        raise UserError(f"gamma {gamma} and largest {largest}; expected gamma > 0 and largest at least 1")
    logits = outputs.logits
    is_largest = jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1], dtype=bool)
    first = jnp.max(logits, axis=-1, keepdims=True)
    # Over the second largest: the others' sum does not vanish beside a class that is far above them.
    second = jnp.max(jnp.where(is_largest, -jnp.inf, logits), axis=-1, keepdims=True)
    # Barriers: XLA would otherwise compute these anew wherever they are read.
    exps = jax.lax.optimization_barrier(jnp.exp(jnp.where(is_largest, -jnp.inf, logits - second)))
    others = second + jnp.log(jnp.sum(exps, axis=-1, keepdims=True))
    log_sum = jax.lax.optimization_barrier(jnp.logaddexp(first, others))
    # log(1 − p): of the largest p it is the others' sum; the rest are at most ½.
    log_rest = jnp.where(is_largest, others - log_sum, jnp.log1p(-exps * jnp.exp(second - log_sum)))
    log_p = logits - log_sum
    terms = gamma * log_p + gamma * log_rest
    if largest < logits.shape[-1]:
        _, chosen = jax.lax.top_k(logits, largest)
        terms = jnp.take_along_axis(terms, chosen, axis=-1)
    return -log_sum_exp(jax.lax.optimization_barrier(terms))


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, gamma: float, largest: int) -> np.ndarray:
    """+∞ where one class alone has the largest slope: every p_c → 0 or 1, and G → 0."""
    p = np.sort(far_away.probabilities(ray.logit_slopes, ray.logit_constants), axis=1)[:, -largest:]
    with np.errstate(divide="ignore"):
        return -np.log(np.sum((p * (1.0 - p)) ** gamma, axis=1))
