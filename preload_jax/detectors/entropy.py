"""The entropy of the softmax (Chan et al., 2021), as −log H: the same order as by −H, without ties near 0."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs
from preload_jax.detectors.largest import two_largest


def score(fitted: dict[str, Any], outputs: Outputs) -> Float[Array, "n"]:
    """−log H with H = −Σ_c p_c log p_c, in logarithms: H itself would round to 0 where the network is certain.

    With m and s the largest and second largest logit, and sums over all classes but that of m, a = Σ e^(z_c − s),
    b = Σ e^(z_c − s)(m − z_c) and r = a e^(s − m): H = log(1 + r) + e^(s − m) b/(1 + r), two terms of one sign.
    """
    largest, second, is_largest = two_largest(outputs.logits)
    powers = jnp.where(is_largest, 0.0, jnp.exp(outputs.logits - second))
    a = jnp.sum(powers, axis=-1)
    # What is too far below may overflow, and counts nothing.
    b = jnp.sum(powers * jnp.where(powers > 0.0, largest - outputs.logits, 0.0), axis=-1)
    below = (second - largest)[..., 0]
    r = a * jnp.exp(below)
    # log(1 + r)/e^(s − m); r itself vanishes far away.
    of_largest = jnp.where(r > 0.0, a * jnp.log1p(r) / jnp.where(r > 0.0, r, 1.0), a)
    return -(below + jnp.log(of_largest + b / (1.0 + r)))


def limit(fitted: dict[str, Any], ray: far_away.Ray) -> np.ndarray:
    """+∞ where one class alone has the largest slope: H → 0.  Else −log of the entropy among those that share it."""
    p = far_away.probabilities(ray.logit_slopes, ray.logit_constants)
    with np.errstate(divide="ignore"):
        return -np.log(-np.sum(np.where(p > 0.0, p * np.log(np.where(p > 0.0, p, 1.0)), 0.0), axis=1))
