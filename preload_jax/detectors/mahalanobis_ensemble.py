"""Mahalanobis distances in several layers, added up (Lee et al., 2018)."""

from functools import partial
from typing import Any

import numpy as np

from preload_jax.detectors import mahalanobis
from preload_jax.detectors.data import Outputs, Training
from preload_jax.errors import UserError


def fit(training: Training, *, jitter: float | None, weights: tuple[float, ...] | None) -> dict[str, Any]:
    """Mahalanobis' means and factor of each feature map's mean over positions."""
    block, _ = next(iter(training.blocks()))
    layers = len(block.maps or ())
    if weights is not None and len(weights) != layers:
        raise UserError(f"{len(weights)} weights for {layers} maps; expected one each")
    return {
        f"layer{i}": mahalanobis.fit_values(training, jitter, partial(_positions_mean, layer=i)) for i in range(layers)
    }


def _positions_mean(block: Outputs, layer: int) -> np.ndarray:
    assert block.maps is not None
    x = np.asarray(block.maps[layer], np.float64)
    return x.mean(axis=(1, 2)) if x.ndim == 4 else x


def score(
    fitted: dict[str, Any], outputs: Outputs, *, jitter: float | None, weights: tuple[float, ...] | None
) -> np.ndarray:
    """−Σ_ℓ α_ℓ min_c d_ℓc, [n]."""
    if len(outputs.maps or ()) != len(fitted):
        raise UserError(f"{len(outputs.maps or ())} maps; the detector was fitted to {len(fitted)}")
    alphas = weights or (1.0,) * len(fitted)
    terms = [
        alpha * mahalanobis.nearest(fitted[f"layer{i}"], _positions_mean(outputs, i)) for i, alpha in enumerate(alphas)
    ]
    return -np.sum(terms, axis=0)
