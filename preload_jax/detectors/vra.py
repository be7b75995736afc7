"""VRA: the energy of features between two percentiles (Xu et al., 2023)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import moments, shaping
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.far_away import Ray
from preload_jax.errors import UserError


def fit(training: Training, *, low: float, high: float, below: str) -> dict[str, Any]:
    """The percentiles α and β of all training features together.

    Raises:
        UserError: when the percentiles are out of order, or `below` is neither "zero" nor "low".
    """
    if below not in ("zero", "low"):
        raise UserError(f"unknown below {below!r}; expected one of zero, low")
    moments.require_percentiles(low, high)
    least, most = moments.percentiles(training, [low, high])
    return {"least": least, "most": most}


def score(fitted: dict[str, Any], outputs: Outputs, *, low: float, high: float, below: str) -> Float[Array, "n"]:
    """log Σ_c exp(Wᵀg̃ + b)_c with g̃ = 0 (or α) where g < α, and min(g, β) elsewhere."""
    g = outputs.features
    lowest = jnp.asarray(fitted["least"] if below == "low" else 0.0, g.dtype)
    g = jnp.where(g < jnp.asarray(fitted["least"]), lowest, jnp.minimum(g, jnp.asarray(fitted["most"], g.dtype)))
    return shaping.energy(fitted, g)


def limit(fitted: dict[str, Any], ray: Ray, *, low: float, high: float, below: str) -> np.ndarray:
    """Every feature ends at a bound or rests: the score of those, whatever the sign of features."""
    s, a = ray.slopes, ray.constants
    lowest = fitted["least"] if below == "low" else 0.0
    rest = np.where(a < fitted["least"], lowest, np.minimum(a, fitted["most"]))
    ends = np.where(s > 0.0, fitted["most"], np.where(s < 0.0, lowest, rest))
    return shaping.limit(fitted, np.zeros_like(s), ends)
