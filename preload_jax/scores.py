"""Logits → a score for each input; higher means more in-domain.

All are in the log domain: each is a strictly increasing function of the probability or energy that the paper uses, so
every ranking metric is the same, but no two different inputs tie because a float32 probability rounded to 1.

(Toolkits in which OOD is positive and higher means more OOD want the negative of these.)
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.log_sum_exp import log_sum_exp


def max_probability(logits: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    """log(p / (1 − p)) of the largest softmax probability p (Standard, OE, OE-FT, DOE-FT).

    = z_max − logsumexp of the other logits; K ≥ 2.  In nats, float32.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import scores
        >>> float(scores.max_probability(jnp.array([2.0, 0.0])))
        2.0
    """
    logits = logits.astype(jnp.float32)
    largest = jnp.argmax(logits, axis=-1)
    others = jnp.where(jax.nn.one_hot(largest, logits.shape[-1], dtype=bool), -jnp.inf, logits)
    return jnp.max(logits, axis=-1) - log_sum_exp(others)


def in_domain_probability(logits: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    """log((1 − p) / p) of the OOD class's probability p, the last of K + 1 (NC, PreLoad, PreLoad-FT).

    = logsumexp of the K in-domain logits − z_{K+1}.  In nats, float32.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import scores
        >>> round(float(scores.in_domain_probability(jnp.array([1.0, 1.0, -3.0]))), 4)
        4.6931
    """
    logits = logits.astype(jnp.float32)
    return log_sum_exp(logits[..., :-1]) - logits[..., -1]


def negative_energy(logits: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    """logsumexp(logits) = −E (Energy-FT; Liu et al., 2020).  In nats, float32.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import scores
        >>> round(float(scores.negative_energy(jnp.array([0.0, 0.0]))), 4)
        0.6931
    """
    return log_sum_exp(logits.astype(jnp.float32))
