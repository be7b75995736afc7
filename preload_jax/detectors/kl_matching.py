"""KL matching: how near the softmax is to the mean softmax of a class (Hendrycks et al., 2022)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float

from preload_jax.detectors import far_away, moments
from preload_jax.detectors.data import Outputs, Training
from preload_jax.log_sum_exp import log_softmax


def fit(training: Training) -> dict[str, Any]:
    """log d_c with d_c the mean softmax of the inputs predicted as c, [c, K], for the classes that are predicted."""
    k = training.num_classes
    counts, sums = np.zeros(k), np.zeros((k, k))
    for block, _ in training.blocks():
        predicted = block.logits.argmax(axis=1)
        counts += np.bincount(predicted, minlength=k)
        sums += moments.group_sums(scipy.special.softmax(block.logits.astype(np.float64), axis=1), predicted, k)
    used = counts > 0
    return {"log_means": np.log(np.maximum(sums[used] / counts[used, None], np.finfo(float).tiny))}


def score(fitted: dict[str, Any], outputs: Outputs) -> Float[Array, "n"]:
    """−min_c KL(p ‖ d_c)."""
    log_p = log_softmax(outputs.logits)
    p = jnp.exp(log_p)
    negative_entropy = jnp.sum(jnp.where(p > 0.0, p * log_p, 0.0), axis=-1)
    return jnp.max(p @ fitted["log_means"].T, axis=-1) - negative_entropy


def limit(fitted: dict[str, Any], ray: far_away.Ray) -> np.ndarray:
    """max_c log d_c[m] for the class m of the largest slope: p tends to the unit vector of m."""
    p = far_away.probabilities(ray.logit_slopes, ray.logit_constants)
    negative_entropy = np.sum(scipy.special.xlogy(p, p), axis=1)
    return (p @ fitted["log_means"].T).max(axis=1) - negative_entropy
