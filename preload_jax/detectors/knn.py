"""The distance to the k-th nearest training feature (Sun et al., 2022)."""

import math
from typing import Any

import numpy as np

from preload_jax.detectors import bank
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.far_away import Ray
from preload_jax.devices import threads
from preload_jax.errors import UserError
from preload_jax.rows import spread

Fitted = dict[str, Any]
# Rows that tell where the bank lies and how large it is.
_SAMPLE = 1001
# Products whose rounding may change a distance by more than this share of it are computed anew, and how many units in
# the last place a product may lose.
_TOLERANCE, _ULPS = 1e-4, 16.0
# Rows that a thread moves at once.
_ROWS = 512
# Differences with the whole bank, in numbers.
_DIFFERENCES = 1 << 22


def fit(training: Training, *, k: int, normalize: bool) -> Fitted:
    """The training features, on the unit sphere if `normalize`, less an origin and over a scale, [n, d]; and both.

    Distances come from products, which lose the digits that the vectors have in common: so the bank's median is the
    origin, and the scale makes it of size 1.  Medians, so that a few features of another size change neither.

    Raises:
        UserError: where there are fewer than k.
    """
    stored = bank.collect(training, lambda block: bank.unit(block.features) if normalize else block.features)
    if not 1 <= k <= len(stored):
        raise UserError(f"k = {k}; expected 1 to {len(stored)}, the number of training examples")
    some = stored[spread(len(stored), _SAMPLE)].astype(np.float64)
    origin = np.median(some, axis=0)
    sizes = np.abs(some - origin).max(axis=1)
    scale = float(np.median(sizes[sizes > 0.0])) if (sizes > 0.0).any() else 1.0
    # A power of two, which rounds nothing.
    scale = 2.0 ** round(math.log2(scale))
    origin = origin.astype(stored.dtype)
    factor = np.asarray(1.0 / scale, stored.dtype)

    def moved(part: np.ndarray) -> tuple[np.ndarray]:
        with np.errstate(over="ignore"):
            np.subtract(part, origin, out=part)
            np.multiply(part, factor, out=part)
            return (0.5 * np.einsum("nd,nd->n", part, part),)

    (half_squares,) = threads.in_parts(moved, stored, rows=_ROWS)
    return {"bank": stored, "origin": origin, "scale": np.float64(scale), "half_squares": half_squares}


def score(fitted: Fitted, outputs: Outputs, *, k: int, normalize: bool) -> np.ndarray:
    """−‖g − g_(k)‖, [n], of normalised features if `normalize`."""
    return _at(fitted, bank.unit(outputs.features) if normalize else outputs.features, k)


def limit(fitted: Fitted, ray: Ray, *, k: int, normalize: bool) -> np.ndarray:
    """Normalised: the score at s / ‖s‖.  Raw: −∞ where s ≠ 0, for every training feature is left behind."""
    if normalize:
        return _at(fitted, ray.direction, k)
    return np.where(ray.moving, -np.inf, _at(fitted, ray.constants, k))


def _at(fitted: Fitted, x: np.ndarray, k: int) -> np.ndarray:
    """The score of vectors as the bank was before it was moved and scaled."""
    with np.errstate(over="ignore", invalid="ignore"):
        moved = ((x - fitted["origin"]) / fitted["scale"]).astype(fitted["bank"].dtype)
        found = np.asarray(_distances(fitted, moved, k), np.float64)
        return -(found * fitted["scale"])


def _distances(fitted: Fitted, x: np.ndarray, k: int) -> np.ndarray:
    """To the k-th nearest of the bank, in its units: by products where they tell, else by more exact ones."""
    found = np.full(len(x), np.nan)
    unsure = np.arange(len(x))
    stored, half_squares = fitted["bank"], fitted["half_squares"]
    for dtype in dict.fromkeys((stored.dtype, np.dtype(np.float64))):
        if stored.dtype != dtype:
            stored = stored.astype(dtype)
            half_squares = 0.5 * np.einsum("nd,nd->n", stored, stored)
        queries = x[unsure].astype(dtype)
        found[unsure], sure = _by_products(queries, stored, half_squares, k)
        unsure = unsure[~sure]
        if not len(unsure):
            return found
    for row in unsure:
        found[row] = _by_differences(x[row].astype(np.float64), stored, k)
    return found


def _by_products(x: np.ndarray, stored: np.ndarray, half_squares: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The distances, and of which of them products can tell: q·b − ‖b‖²/2 ranks as −‖q − b‖² does, but for rounding."""
    values, which = bank.nearest(x, stored, k, half_squares)
    last = np.asarray(which[:, -1])
    distances = bank.norms(x - stored[last])
    squares = np.einsum("nd,nd->n", x, x, dtype=np.float64)
    # Those that compete for the k-th place lie as far away as it does, at most.
    reach = np.sqrt(squares) + distances
    lost = _ULPS * float(np.finfo(x.dtype).eps) * (np.sqrt(squares) * reach + 0.5 * reach**2)
    sure = np.isfinite(np.asarray(values[:, -1])) & (lost <= _TOLERANCE * distances.astype(np.float64) ** 2)
    return distances, sure


def _by_differences(x: np.ndarray, stored: np.ndarray, k: int) -> float:
    """The same for one query, in float64 without products."""
    rows = max(1, _DIFFERENCES // stored.shape[1])
    found = [bank.norms(stored[i : i + rows] - x) for i in range(0, len(stored), rows)]
    return float(np.partition(np.concatenate(found), k - 1)[k - 1])
