"""The residual: how far features lie from the principal space of the training features (Ndiour et al., 2020)."""

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import norms, subspace
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.far_away import Ray


def fit(training: Training, *, dims: int | None) -> dict[str, Any]:
    """The origin [d] and the directions R [d, d − dims], see `subspace`."""
    origin, directions = subspace.fit(training, dims)
    return {"origin": origin, "directions": directions}


def score(fitted: dict[str, Any], outputs: Outputs, *, dims: int | None) -> Float[Array, "n"]:
    """−‖Rᵀ(g − o)‖."""
    return -norm(fitted, outputs.features)


def norm(fitted: dict[str, Any], features: Float[Array, "n d"]) -> Float[Array, "n"]:
    """‖Rᵀ(g − o)‖."""
    return norms.norm((features - fitted["origin"][None]) @ fitted["directions"])


def limit(fitted: dict[str, Any], ray: Ray, *, dims: int | None) -> np.ndarray:
    """−∞ where Rᵀs ≠ 0, beyond rounding; else −‖Rᵀ(a − o)‖."""
    leaves = np.linalg.norm(ray.slopes @ fitted["directions"], axis=1)
    rounding = 64 * np.finfo(float).eps * np.linalg.norm(ray.slopes, axis=1)
    at_rest = -np.linalg.norm((ray.constants - fitted["origin"]) @ fitted["directions"], axis=1)
    return np.where(leaves > rounding, -np.inf, at_rest)
