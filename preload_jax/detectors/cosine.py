"""The largest cosine between features and a class's prototype, as CIDER's (Ming et al., 2023)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import bank, moments, norms
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.far_away import Ray


def fit(training: Training) -> dict[str, Any]:
    """Prototypes μ̂_c: the normalised mean of each class's normalised features, [K, d]."""
    _, means = moments.class_means(training, lambda block: bank.unit(moments.features_of(block)))
    return {"prototypes": bank.unit(means)}


def score(fitted: dict[str, Any], outputs: Outputs) -> Float[Array, "n"]:
    """max_c ĝᵀμ̂_c, in −1 … 1."""
    return jnp.max(norms.unit(outputs.features) @ jnp.asarray(fitted["prototypes"]).T, axis=-1)


def limit(fitted: dict[str, Any], ray: Ray) -> np.ndarray:
    """The score at s / ‖s‖."""
    return (ray.direction @ fitted["prototypes"].T).max(axis=1)
