"""Temperature scaling: all logits, the OOD class's too, over one T (Guo et al., 2017)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import temperature


def fit(logits: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The T > 0 of the smallest cross-entropy of softmax(z / T).

    Raises:
        UserError: where there is none in 10⁻⁴ … 10⁴.
    """
    return {"temperature": np.asarray(temperature.best(lambda: [(logits, labels)]))}


def logits(parameters: dict[str, Any], z: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """z / T."""
    largest = jnp.finfo(z.dtype).max
    return jnp.clip(z / parameters["temperature"], -largest, largest)
