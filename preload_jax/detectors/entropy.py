"""The entropy of the softmax (Chan et al., 2021), as −log H: the same order as by −H, without ties near 0."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs


def score(fitted: dict[str, Any], outputs: Outputs) -> Float[Array, "n"]:
    """−log H with H = −Σ_c p_c log p_c, in logarithms: H itself would round to 0 where the network is certain."""
    log_p = log_probabilities(outputs.logits)
    # Where −log p underflows to 0 the term is as small as p · p, or smaller: nothing.
    log_terms = log_p + jnp.log(jnp.maximum(-log_p, jnp.finfo(log_p.dtype).tiny))
    return -jax.nn.logsumexp(log_terms, axis=-1)


def log_probabilities(logits: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """log p_c; of the largest, as −log(1 + e^(others − largest)), which keeps its digits where p rounds to 1."""
    largest = jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1], dtype=bool)
    others = jax.nn.logsumexp(jnp.where(largest, -jnp.inf, logits), axis=-1)
    of_largest = -jnp.log1p(jnp.exp(others - jnp.max(logits, axis=-1)))
    return jnp.where(largest, of_largest[..., None], jax.nn.log_softmax(logits, axis=-1))


def limit(fitted: dict[str, Any], ray: far_away.Ray) -> np.ndarray:
    """+∞ where one class alone has the largest slope: H → 0.  Else −log of the entropy among those that share it."""
    p = far_away.probabilities(ray.logit_slopes, ray.logit_constants)
    with np.errstate(divide="ignore"):
        return -np.log(-np.sum(np.where(p > 0.0, p * np.log(np.where(p > 0.0, p, 1.0)), 0.0), axis=1))
