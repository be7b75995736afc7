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
    mask = _largest(g, kept)
    values = jnp.where(mask, g, 0.0)
    total, left = jnp.sum(g, axis=-1, keepdims=True), jnp.sum(values, axis=-1, keepdims=True)
    # An input whose features are all 0 has nothing to scale.
    ratio = jnp.where(left == 0.0, 1.0, total / jnp.where(left == 0.0, 1.0, left))
    shaped = {
        "p": lambda: values,
        "b": lambda: jnp.where(mask, total / kept, 0.0),
        "s": lambda: values * jnp.exp(ratio),
        "scale": lambda: g * jnp.exp(ratio),
    }
    return shaping.energy(fitted, shaped[kind]())


def _largest(g: Array, kept: int) -> Array:
    """M: where the largest entries of each row are, exactly `kept` of them, the first ones among equals."""
    least = _kth_largest(g, kept)[:, None]
    more, equal = g > least, g == least
    wanted = kept - jnp.sum(more, axis=-1, keepdims=True)
    too_many = jnp.any(jnp.sum(equal, axis=-1, keepdims=True) > wanted)
    return more | jax.lax.cond(too_many, lambda: equal & (jnp.cumsum(equal, axis=-1) <= wanted), lambda: equal)


def _kth_largest(g: Array, k: int) -> Array:
    """By halving the interval of the bits, as integers in the floats' order: sorting would take much longer."""
    bits = g.dtype.itemsize * 8
    signed, unsigned = (jnp.dtype(f"{kind}{bits // 8}") for kind in "iu")
    x = jax.lax.bitcast_convert_type(g, signed)
    sign = jnp.asarray(1 << (bits - 1), unsigned)
    order = jax.lax.bitcast_convert_type(jnp.where(x < 0, ~x, x), unsigned)
    order = jnp.where(x < 0, order, order | sign)

    def halve(_: Any, interval: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = interval
        middle = low + (high - low) // 2
        enough = jnp.sum(order >= middle[:, None], axis=-1) >= k
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    ends = jnp.zeros(len(g), unsigned), jnp.full(len(g), jnp.iinfo(unsigned).max, unsigned)
    low, _ = jax.lax.fori_loop(0, bits, halve, ends)
    positive = jax.lax.bitcast_convert_type(low & ~sign, g.dtype)
    return jnp.where(low >= sign, positive, jax.lax.bitcast_convert_type(~low, g.dtype))


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
