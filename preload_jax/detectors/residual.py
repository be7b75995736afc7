"""The residual: how far features lie from the principal space of the training features (Ndiour et al., 2020)."""

from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax.detectors import norms, subspace
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.far_away import Ray
from preload_jax.devices import threads

# Rows that a thread works on at once.
_ROWS = 2048


def fit(training: Training, *, dims: int | None) -> dict[str, Any]:
    """The origin [d] and the directions R [d, d − dims], see `subspace`."""
    origin, directions = subspace.fit(training, dims)
    return {"origin": origin, "directions": directions}


def score(fitted: dict[str, Any], outputs: Outputs, *, dims: int | None) -> Float[np.ndarray, "n"]:
    """−‖Rᵀ(g − o)‖."""
    return -norms_of(fitted, outputs.features)


def norms_of(fitted: dict[str, Any], features: np.ndarray) -> np.ndarray:
    """‖Rᵀ(g − o)‖, [n], in threads."""
    origin, directions = fitted["origin"], fitted["directions"]
    return threads.in_parts(lambda g: (norm(origin, directions, g),), features, rows=_ROWS)[0]


def norm(origin: np.ndarray, directions: np.ndarray, features: np.ndarray) -> np.ndarray:
    """‖Rᵀ(g − o)‖, [n], as exact as the features are; scores have no more digits."""
    dtype = features.dtype
    # Rᵀg − Rᵀo loses no more than rounding o does, and is the smaller difference.
    away = norms.differences(features @ directions.astype(dtype), (origin @ directions).astype(dtype))
    return np.concatenate([np.sqrt(squares) * scales for _, _, squares, scales in away])


def limit(fitted: dict[str, Any], ray: Ray, *, dims: int | None) -> np.ndarray:
    """−∞ where Rᵀs ≠ 0, beyond rounding; else −‖Rᵀ(a − o)‖."""
    leaves = np.linalg.norm(ray.slopes @ fitted["directions"], axis=1)
    rounding = 64 * np.finfo(float).eps * np.linalg.norm(ray.slopes, axis=1)
    at_rest = -np.linalg.norm((ray.constants - fitted["origin"]) @ fitted["directions"], axis=1)
    return np.where(leaves > rounding, -np.inf, at_rest)
