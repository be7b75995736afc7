"""The distance to the k-th nearest training feature (Sun et al., 2022)."""

from typing import Any

import numpy as np

from preload_jax.detectors import bank
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.far_away import Ray
from preload_jax.errors import UserError

Fitted = dict[str, Any]


def fit(training: Training, *, k: int, normalize: bool) -> Fitted:
    """The training features, on the unit sphere if `normalize`, [n, d]; otherwise half their squared norms, too.

    Raises:
        UserError: where there are fewer than k.
    """
    stored = bank.collect(training, lambda block: bank.unit(block.features) if normalize else block.features)
    if not 1 <= k <= len(stored):
        raise UserError(f"k = {k}; expected 1 to {len(stored)}, the number of training examples")
    if normalize:
        return {"bank": stored}
    # Squared distances lose the digits that the origin's distance has: the mean is the origin.
    origin = stored.mean(axis=0, dtype=np.float64).astype(stored.dtype)
    stored = np.subtract(stored, origin, out=stored)
    return {"bank": stored, "origin": origin, "half_squares": 0.5 * np.einsum("nd,nd->n", stored, stored)}


def score(fitted: Fitted, outputs: Outputs, *, k: int, normalize: bool) -> np.ndarray:
    """−‖g − g_(k)‖, [n], of normalised features if `normalize`."""
    x = bank.unit(outputs.features) if normalize else outputs.features - fitted["origin"]
    return -_distance(fitted, x.astype(fitted["bank"].dtype), k)


def _distance(fitted: Fitted, x: np.ndarray, k: int) -> np.ndarray:
    _, found = bank.nearest(x, fitted["bank"], k, fitted.get("half_squares"))
    # The products rank; the distance is computed anew, for 2 − 2·product would lose its digits where it is small.
    difference = x - fitted["bank"][np.asarray(found[:, -1])]
    largest = np.abs(difference).max(axis=1, keepdims=True)
    scaled = difference / np.where(largest > 0.0, largest, 1.0)
    return largest[:, 0] * np.sqrt(np.einsum("nd,nd->n", scaled, scaled))


def limit(fitted: Fitted, ray: Ray, *, k: int, normalize: bool) -> np.ndarray:
    """Normalised: the score at s / ‖s‖.  Raw: −∞ where s ≠ 0, for every training feature is left behind."""
    if normalize:
        return _at(fitted, ray.direction, k)
    return np.where(ray.moving, -np.inf, _at(fitted, ray.constants - fitted["origin"], k))


def _at(fitted: Fitted, x: np.ndarray, k: int) -> np.ndarray:
    return -_distance(fitted, x.astype(fitted["bank"].dtype), k)
