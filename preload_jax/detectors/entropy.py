"""The entropy of the softmax (Chan et al., 2021), as −log H: the same order as by −H, without ties near 0."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs
from preload_jax.log_sum_exp import log_softmax, log_sum_exp


def score(fitted: dict[str, Any], outputs: Outputs) -> Float[Array, "n"]:
    """−log H with H = −Σ_c p_c log p_c, in logarithms: H itself would round to 0 where the network is certain."""
    logits = outputs.logits
    largest = jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1], dtype=bool)
    # The largest p is 1/(1 + e^δ): −log p = log(1 + e^δ), which is e^δ to all digits where δ < −30.
    delta = log_sum_exp(jnp.where(largest, -jnp.inf, logits)) - jnp.max(logits, axis=-1)
    minus_log_p = jnp.log1p(jnp.exp(jnp.maximum(delta, -30.0)))
    of_largest = jnp.where(delta < -30.0, delta, jnp.log(minus_log_p)) - minus_log_p
    log_p = jnp.where(largest, -1.0, log_softmax(logits))
    terms = jnp.where(largest, of_largest[..., None], log_p + jnp.log(-log_p))
    return -log_sum_exp(terms)


def limit(fitted: dict[str, Any], ray: far_away.Ray) -> np.ndarray:
    """+∞ where one class alone has the largest slope: H → 0.  Else −log of the entropy among those that share it."""
    p = far_away.probabilities(ray.logit_slopes, ray.logit_constants)
    with np.errstate(divide="ignore"):
        return -np.log(-np.sum(np.where(p > 0.0, p * np.log(np.where(p > 0.0, p, 1.0)), 0.0), axis=1))
