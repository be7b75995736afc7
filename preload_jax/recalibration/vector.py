"""Vector scaling: a factor and an offset for each class (Guo et al., 2017)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.recalibration import convex

# Beyond this, products with a factor could overflow float32.
_LARGEST = 1e30


def fit(
    logits: np.ndarray, labels: np.ndarray, *, scale: float | None = None, intercept: float | None = None
) -> dict[str, np.ndarray]:
    """a and b of the smallest mean −log softmax(a ∘ z + b)_y + scale/K ‖a − 1‖² + intercept/K ‖b‖²."""
    n, k = logits.shape
    inputs = np.stack([logits, np.ones((n, k))], axis=2)
    identity = np.tile([1.0, 0.0], (k, 1))
    penalties = {"scale": np.tile([1.0 / k, 0.0], (k, 1)), "intercept": np.tile([0.0, 1.0 / k], (k, 1))}
    theta = convex.fit(convex.Problem(inputs, labels, identity, penalties), {"scale": scale, "intercept": intercept})
    return {"scale": theta[:, 0], "offset": theta[:, 1]}


def logits(parameters: dict[str, Any], z: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """a ∘ z + b."""
    return jnp.clip(z, -_LARGEST, _LARGEST) * parameters["scale"][None] + parameters["offset"][None]
