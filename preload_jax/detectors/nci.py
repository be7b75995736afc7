"""NCI: how near features are to the predicted class's weights, and how large they are (Liu and Qin, 2025)."""

from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax.detectors import moments, norms
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.far_away import Ray


def fit(training: Training, *, alpha: float) -> dict[str, Any]:
    """The mean feature μ, [d]."""
    return {"mean": moments.mean(training)}


def score(fitted: dict[str, Any], outputs: Outputs, *, alpha: float) -> Float[np.ndarray, "n"]:
    """w_mᵀ(g − μ)/‖g − μ‖ + α‖g‖₁ with m the predicted class."""
    g, top = outputs.features, outputs.logits.argmax(axis=1)
    mean, columns = (x.astype(g.dtype) for x in (fitted["mean"], fitted["kernel"].T))
    slope, found = np.full(g.shape[1], alpha, g.dtype), np.empty(len(g), g.dtype)
    for rows, away, squares, _ in norms.differences(g, mean):
        along = np.take_along_axis(away @ columns.T, top[rows, None], axis=1)[:, 0]
        cosine = along / np.sqrt(np.where(squares > 0.0, squares, 1.0))
        found[rows] = cosine + np.abs(g[rows], out=away) @ slope
    return found


def limit(fitted: dict[str, Any], ray: Ray, *, alpha: float) -> np.ndarray:
    """+∞ for α > 0 where s ≠ 0 (−∞ for α < 0); for α = 0 it is w_mᵀs/‖s‖."""
    away = np.where(ray.moving[:, None], ray.slopes, ray.constants - fitted["mean"])
    weights = fitted["kernel"].T[ray.top]
    finite = np.sum(weights * away, axis=1) / np.maximum(np.linalg.norm(away, axis=1), np.finfo(float).tiny)
    if alpha == 0.0:
        return finite
    return np.where(ray.moving, np.sign(alpha) * np.inf, finite + alpha * np.abs(ray.constants).sum(axis=1))
