"""GradNorm: the 1-norm of the last layer's gradient of the cross-entropy to uniform (Huang et al., 2021)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs
from preload_jax.log_sum_exp import softmax


def score(fitted: dict[str, Any], outputs: Outputs, *, temperature: float) -> Float[Array, "n"]:
    """‖g‖₁ Σ_c |p_c − 1/K| / T: the gradient by the kernel is g (p − 1/K)ᵀ / T, whose 1-norm is the product of two."""
    z = outputs.logits
    p = softmax(z / temperature)
    return jnp.sum(jnp.abs(outputs.features), axis=-1) * jnp.sum(jnp.abs(p - 1.0 / z.shape[-1]), axis=-1) / temperature


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, temperature: float) -> np.ndarray:
    """+∞ where s ≠ 0 and p does not tend to uniform."""
    p = far_away.probabilities(ray.logit_slopes, ray.logit_constants / temperature)
    uneven = np.abs(p - 1.0 / p.shape[1]).sum(axis=1) / temperature
    return np.where(ray.moving & (uneven > 0.0), np.inf, uneven * np.abs(ray.constants).sum(axis=1))
