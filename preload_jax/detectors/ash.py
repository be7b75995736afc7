"""ASH (Djurisic et al., 2023) and SCALE (Xu et al., 2024): features pruned, or scaled by what pruning leaves.

For features ≥ 0, and for each input: M marks its largest entries, all but `percentile` percent of them.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import moments, shaping
from preload_jax.detectors.data import Outputs
from preload_jax.detectors.far_away import Ray
from preload_jax.errors import UserError


def _kept(width: int, percentile: float) -> int:
    """How many entries are kept."""
    moments.require_percentiles(percentile)
    return max(width - round(width * percentile / 100.0), 1)


def score(fitted: dict[str, Any], outputs: Outputs, *, percentile: float, kind: str) -> Float[Array, "n"]:
    """The energy of the shaped features; kind "p", "b", "s" or "scale"."""
    g = outputs.features
    kept = _kept(g.shape[-1], percentile)
    values, chosen = jax.lax.top_k(g, kept)
    rows = jnp.arange(len(g))[:, None]
    total, left = jnp.sum(g, axis=-1, keepdims=True), jnp.sum(values, axis=-1, keepdims=True)
    # An input whose features are all 0 has nothing to scale.
    ratio = jnp.where(left == 0.0, 1.0, total / jnp.where(left == 0.0, 1.0, left))
    if kind == "scale":
        return shaping.energy(fitted, g * jnp.exp(ratio))
    shaped = {"p": values, "b": jnp.broadcast_to(total / kept, values.shape), "s": values * jnp.exp(ratio)}[kind]
    return shaping.energy(fitted, jnp.zeros_like(g).at[rows, chosen].set(shaped))


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
