"""The logit of the OOD class: its formula, its limits in float32, its parameters and where they start."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.checks import as_array, is_real, require_number
from preload_jax.errors import UserError
from preload_jax.models.guards import overflow_guard
from preload_jax.models.initializers import torch_bias_init, torch_kernel_init

# exp(w') is limited to exp(±80): the largest and smallest weights whose square logit float32 can hold.
MAX_LOG_WEIGHT = 80.0


def square_logit(
    features: Float[Array, "*batch d"],
    raw_weights: Float[Array, "d"],
    bias: Float[Array, ""],
    *,
    exponent: int = 2,
    floor: Float[Array, "d"] | Float[np.ndarray, "d"] | None = None,
) -> Float[Array, "*batch"]:
    """Logit of the extra, out-of-distribution class.

    z_{K+1}(x) = exp(w')ᵀ G(x)² + b     (equation 4 of the paper, with w = exp(w') > 0 as in its supplement)

    With a floor f ≥ 0 the weights are f + exp(w').

    Args:
        features: embeddings G(x), any leading shape, any floating-point type; computed in float32.
        raw_weights: w', unconstrained; the weights that multiply G(x)² are exp(w').
        bias: b.
        exponent: an even integer ≥ 2; theorem 1 holds for each.
        floor: f, added to the weights; None for none, as in the paper.

    Returns:
        The logit in float32, clipped to the largest finite float: finite features never give inf or NaN.

    Raises:
        UserError: when the exponent is odd or smaller than 2, and for other shapes, complex numbers and masked arrays.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import square_logit
        >>> float(square_logit(jnp.array([3.0, -1.0]), jnp.zeros(2), jnp.array(-1.0)))
        9.0
        >>> bool(jnp.isfinite(square_logit(jnp.full(2, 1e30), jnp.zeros(2), jnp.zeros(()))))
        True
    """
    check_exponent(exponent)
    features, raw_weights, bias = (
        _single(name, values) for name, values in (("features", features), ("raw_weights", raw_weights), ("bias", bias))
    )
    floor = None if floor is None else _single("floor", floor)
    d = features.shape[-1] if features.ndim else None
    if raw_weights.shape != (d,) or bias.shape or (floor is not None and floor.shape not in ((), (d,))):
        others = "" if floor is None else f", floor {list(floor.shape)}"
        raise UserError(
            f"features {list(features.shape)}, raw_weights {list(raw_weights.shape)}, bias {list(bias.shape)}{others};"
            " expected features [n, d], raw_weights [d] and one number as bias"
        )
    largest = float(jnp.finfo(jnp.float32).max)
    # Limited so that its power stays finite; where it is limited the gradient is zero, not NaN.
    magnitude = _at_most(jnp.abs(features), (1.0 - 1e-6) * largest ** (1.0 / exponent))
    # lax.clamp, not jnp.clip: its gradient selects where the other multiplies by 0, which makes NaN of an overflow.
    # Its limits need the type named: with x64 enabled a Python number would be float64 for it.
    limit = jnp.float32(MAX_LOG_WEIGHT)
    weights = jnp.exp(jax.lax.clamp(-limit, raw_weights, limit))
    weights = weights if floor is None else weights + floor
    # All terms are >= 0: the sum may reach inf, which the clip brings back, but never inf - inf.
    weighted_sum = jnp.matmul(magnitude**exponent, weights, precision="highest")
    return _within(weighted_sum + bias, -largest, largest)


def _single(name: str, values: Any) -> Array:
    """In float32; traced where it was."""
    if not isinstance(values, jax.Array):
        values = as_array(values, name=name)
    if not is_real(values.dtype):
        raise UserError(f"{name} of type {values.dtype}; expected real numbers")
    return jnp.asarray(values, jnp.float32)


_at_most = overflow_guard(jnp.minimum)
_within = overflow_guard(jnp.clip)


def check_exponent(exponent: int) -> None:
    """Raises a UserError unless the exponent is an even integer ≥ 2."""
    if not (isinstance(exponent, Real) and exponent >= 2 and exponent % 2 == 0):
        raise UserError(f"exponent must be an even integer >= 2, got {exponent!r}")


def weight_floor(
    width: int, *, min_weight: float, min_distance_weight: float | None, distance: bool
) -> Float[np.ndarray, "d"] | None:
    """What is added to exp(w'): `min_weight`, and for the distance, the last of `width` features, its own minimum.

    None where all is 0.

    Raises:
        UserError: for a minimum that is negative or not finite.
    """
    last = min_weight if min_distance_weight is None else min_distance_weight
    for name, value in (("min_weight", min_weight), ("min_distance_weight", last)):
        require_number(name, value, at_least=0.0)
    floor = np.full(width, min_weight, np.float64)
    if distance:
        floor[-1] = last
    return floor if floor.any() else None


class SquareLogit(nn.Module):
    """The OOD class's parameters w' [d] and b [], and its logit."""

    init_offset: Callable[[int], float]
    exponent: int

    @nn.compact
    def __call__(
        self, features: Float[Array, "*batch d"], floor: Float[np.ndarray, "d"] | None = None
    ) -> Float[Array, "*batch"]:
        d = features.shape[-1]

        def init_raw_weights(key: Array) -> Array:
            return torch_kernel_init(key, (d, 1))[:, 0] + self.init_offset(d)

        raw_weights = self.param("raw_weights", init_raw_weights)
        bias = self.param("bias", torch_bias_init(d), ())
        return square_logit(features, raw_weights, bias, exponent=self.exponent, floor=floor)


def _offset_one(d: int) -> float:
    return 0.0


def _offset_inverse_width(d: int) -> float:
    return -math.log(d)


# What is added to w' at initialisation, as a function of the embedding's width.
INITIAL_SCALES: dict[str, Callable[[int], float]] = {"one": _offset_one, "inverse_width": _offset_inverse_width}
