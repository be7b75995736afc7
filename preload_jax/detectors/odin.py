"""ODIN: a large temperature, and inputs moved a little towards certainty (Liang et al., 2018)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax import scores
from preload_jax.detectors import far_away
from preload_jax.detectors.data import Outputs
from preload_jax.log_sum_exp import log_softmax


def score(fitted: dict[str, Any], outputs: Outputs, *, temperature: float, noise: float) -> Float[Array, "n"]:
    """log(p / (1 − p)) of the temperature-scaled softmax at x + ε·sign ∇ₓ log p(x)."""
    network = outputs.network
    assert network is not None
    moved = perturbed(outputs.images, lambda x: _log_probability(network(x).logits / temperature), noise)
    return scores.max_probability(network(moved).logits / temperature)


def perturbed(images: Array, in_domain: Any, noise: float) -> Array:
    """The images moved by ε along the sign of the gradient of a score [n], so that it rises."""
    # Their own type, so that integer images, whose gradient does not exist, become numbers.
    images = jnp.asarray(images, jnp.float64 if images.dtype == jnp.float64 else jnp.float32)
    return images + noise * jnp.sign(jax.grad(lambda x: jnp.sum(in_domain(x)))(images))


def _log_probability(logits: Array) -> Array:
    # Not the maximum of log p: compiled, its gradient compares values that may be rounded twice, which makes 0 / 0.
    predicted = jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1], dtype=bool)
    return jnp.sum(jnp.where(predicted, log_softmax(logits), 0.0), axis=-1)


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, temperature: float, noise: float) -> np.ndarray:
    """+∞ where one class alone has the largest slope: the step ε is bounded, so slopes stay what they are.

    Where several share it, the constants are those of the unmoved input, which is exact for noise = 0 only.
    """
    return far_away.log_odds(ray.logit_slopes, ray.logit_constants / temperature)
