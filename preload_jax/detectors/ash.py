"""ASH (Djurisic et al., 2023) and SCALE (Xu et al., 2024): features pruned, or scaled by what pruning leaves.

For features ≥ 0, and for each input: M marks its largest entries, all but `percentile` percent of them.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax.detectors import moments, shaping
from preload_jax.detectors.data import Outputs
from preload_jax.detectors.far_away import Ray
from preload_jax.detectors.largest import log_sum_exp
from preload_jax.devices import threads
from preload_jax.errors import UserError

# Rows that a thread works on at once: they stay in the cache.
_ROWS = 512


def _kept(width: int, percentile: float) -> int:
    """How many entries are kept."""
    moments.require_percentiles(percentile)
    return max(width - round(width * percentile / 100.0), 1)


def score(fitted: dict[str, Any], outputs: Outputs, *, percentile: float, kind: str) -> Float[np.ndarray, "n"]:
    """The energy of the shaped features; kind "p", "b", "s" or "scale"."""
    g = outputs.features
    kept = _kept(g.shape[1], percentile)
    with np.errstate(over="ignore"):
        kernel, bias = (fitted[name].astype(g.dtype) for name in ("kernel", "bias"))

    def of_rows(g: np.ndarray) -> tuple[np.ndarray]:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return (log_sum_exp(_products(g, kernel, kept, kind) + bias),)

    return threads.in_parts(of_rows, g, rows=_ROWS)[0]


def _products(g: np.ndarray, kernel: np.ndarray, kept: int, kind: str) -> np.ndarray:
    """Wᵀg̃ of the shaped features; what scales all features of an input scales it."""
    if kind == "b":
        return (_largest(g, kept).astype(g.dtype) @ kernel) * (g.sum(axis=1, keepdims=True) / kept)
    if kind == "p":
        return (g * _largest(g, kept)) @ kernel
    if kind == "s":
        values = g * _largest(g, kept)
        return (values @ kernel) * _factor(g, values)
    return (g @ kernel) * _factor(g, _partitioned(g, kept)[:, -kept:])


def _factor(g: np.ndarray, left: np.ndarray) -> np.ndarray:
    """exp(Σ g / Σ_M g), [n, 1]; e for an input whose features are all 0, which has nothing to scale."""
    total, left = g.sum(axis=1, keepdims=True), left.sum(axis=1, keepdims=True)
    return np.exp(np.divide(total, left, out=np.ones_like(total), where=left != 0.0))


def _partitioned(g: np.ndarray, kept: int) -> np.ndarray:
    """Each row with its `kept` largest entries last, and the smallest of these before the others."""
    return np.partition(g, g.shape[1] - kept, axis=1)


def _largest(g: np.ndarray, kept: int) -> np.ndarray:
    """M: where the largest entries of each row are, exactly `kept` of them, the first ones among equals."""
    least = _partitioned(g, kept)[:, -kept, None]
    mask = g >= least
    many = np.flatnonzero(np.count_nonzero(mask, axis=1) > kept)
    more, equal = g[many] > least[many], g[many] == least[many]
    mask[many] = more | (equal & (equal.cumsum(axis=1) <= kept - more.sum(axis=1, keepdims=True)))
    return mask


def limit(fitted: dict[str, Any], ray: Ray, *, percentile: float, kind: str) -> np.ndarray:
    """M is that of the largest slopes (and constants among equal ones), from some t on; then the head decides.

    B: each kept entry is (t·Σs + Σa)/|M|.  S and SCALE: the exponent r(t) = (t·Σs + Σa)/(t·Σ_M s + Σ_M a) tends to
    Σs/Σ_M s, positively; the score's sign is that of P's, or of the energy's.

    Raises:
        UserError: for S and SCALE where features become negative.
    """
    s, a = ray.slopes, ray.constants
    if kind in ("s", "scale") and ((s < 0.0) | ((s == 0.0) & (a < 0.0))).any():
        raise UserError("features become negative along a ray; the limits of ASH-S and SCALE are for features >= 0")
    kept = _kept(s.shape[1], percentile)
    order = np.lexsort((a, s), axis=1)[:, ::-1][:, :kept]
    mask = np.zeros(s.shape)
    np.put_along_axis(mask, order, 1.0, axis=1)
    if kind == "p":
        return shaping.limit(fitted, s * mask, a * mask)
    if kind == "b":
        slope, constant = s.sum(axis=1, keepdims=True) / kept, a.sum(axis=1, keepdims=True) / kept
        return shaping.limit(fitted, slope * mask, constant * mask)
    (slope, left), (rest, left_rest) = (
        (x.sum(axis=1, keepdims=True), (x * mask).sum(axis=1, keepdims=True)) for x in (s, a)
    )
    moving = left != 0.0
    top, bottom = np.where(moving, slope, rest), np.where(moving, left, left_rest)
    ratio = np.where(bottom == 0.0, 1.0, top / np.where(bottom == 0.0, 1.0, bottom))
    # r(t) = ratio + (Σa − ratio·Σ_M a)/(t·Σ_M s) + …: times t·s that leaves a constant behind.
    drift = np.where(moving, (rest - ratio * left_rest) / np.where(moving, left, 1.0), 0.0)
    factor, shown = np.exp(ratio), mask if kind == "s" else np.ones_like(mask)
    return shaping.limit(fitted, factor * s * shown, factor * (a + drift * s) * shown)
