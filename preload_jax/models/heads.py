"""Classification heads and the classifier that joins a backbone to one.

All heads compute in float32 whatever the backbone's precision.  The OOD logit, where there is one, is the last.
"""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.models.guards import overflow_guard
from preload_jax.models.initializers import torch_bias_init, torch_kernel_init

# Features are limited to this magnitude before the linear logits are formed, so that no sum of finite products
# overflows to inf - inf.  Trained networks on images in [0, 1] stay more than twenty orders of magnitude below it.
MAX_FEATURE = 1e30
# exp(w') is limited to exp(±80): the largest and smallest weights whose square logit float32 can hold.
MAX_LOG_WEIGHT = 80.0


def square_logit(
    features: Float[Array, "*batch d"],
    raw_weights: Float[Array, "d"],
    bias: Float[Array, ""],
    *,
    exponent: int = 2,
) -> Float[Array, "*batch"]:
    """Logit of the extra, out-of-distribution class.

    z_{K+1}(x) = exp(w')ᵀ G(x)² + b     (equation 4 of the paper, with w = exp(w') > 0 as in its supplement)

    Args:
        features: embeddings G(x), any leading shape, any floating-point type; computed in float32.
        raw_weights: w', unconstrained; the weights that multiply G(x)² are exp(w').
        bias: the offset b.
        exponent: an even integer ≥ 2; theorem 1 holds for each.

    Returns:
        The logit in float32, clipped to the largest finite float: finite features never give inf or NaN.

    Raises:
        ValueError: when the exponent is odd or smaller than 2.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import square_logit
        >>> float(square_logit(jnp.array([3.0, -1.0]), jnp.zeros(2), jnp.array(-1.0)))
        9.0
        >>> bool(jnp.isfinite(square_logit(jnp.full(2, 1e30), jnp.zeros(2), jnp.zeros(()))))
        True
    """
    if exponent < 2 or exponent % 2:
        raise ValueError(f"exponent must be an even integer >= 2, got {exponent}")
    largest = float(jnp.finfo(jnp.float32).max)
    # Limited so that its power stays finite; where it is limited the gradient is zero, not NaN.
    magnitude = _at_most(jnp.abs(features.astype(jnp.float32)), (1.0 - 1e-6) * largest ** (1.0 / exponent))
    # lax.clamp, not jnp.clip: its gradient selects where the other multiplies by 0, which makes NaN of an overflow.
    # Its limits need the type named: with x64 enabled a Python number would be float64 for it.
    limit = jnp.float32(MAX_LOG_WEIGHT)
    weights = jnp.exp(jax.lax.clamp(-limit, raw_weights.astype(jnp.float32), limit))
    # All terms are >= 0: the sum may reach inf, which the clip brings back, but never inf - inf.
    weighted_sum = jnp.matmul(magnitude**exponent, weights, precision="highest")
    return _within(weighted_sum + bias.astype(jnp.float32), -largest, largest)


_at_most = overflow_guard(jnp.minimum)
_within = overflow_guard(jnp.clip)


class LinearHead(nn.Module):
    """z_c(x) = w_cᵀ G(x) + b_c     (equation 1 of the paper).

    Attributes:
        num_outputs: K; or K + 1 with `none_class`.
        zero_bias: whether b starts at 0 (as the released WideResNet) or as torch's default does (its LeNet).
        none_class: whether the last output is the OOD class, as in the "none class" baseline (NC).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import LinearHead
        >>> head, features = LinearHead(num_outputs=3), jnp.ones((5, 8))
        >>> head.apply(head.init(jax.random.key(0), features), features).shape
        (5, 3)
    """

    num_outputs: int
    zero_bias: bool = True
    none_class: bool = False

    @property
    def has_ood_class(self) -> bool:
        """Whether the last logit is the OOD class."""
        return self.none_class

    @property
    def num_classes(self) -> int:
        """K, which never counts the OOD class."""
        return self.num_outputs - self.none_class

    @nn.compact
    def __call__(self, features: Float[Array, "*batch d"]) -> Float[Array, "*batch k"]:
        return _linear_logits(features, self.num_outputs, self.zero_bias)


def _linear_logits(features: Array, num_outputs: int, zero_bias: bool) -> Array:
    """A dense layer named "linear" in the calling module: every head keeps the K classes' parameters at one path."""
    features = _within(features.astype(jnp.float32), -MAX_FEATURE, MAX_FEATURE)
    return nn.Dense(
        num_outputs,
        dtype=jnp.float32,
        # GPUs and TPUs would otherwise round float32 products to tf32 or bfloat16.
        precision="highest",
        kernel_init=torch_kernel_init,
        bias_init=nn.initializers.zeros if zero_bias else torch_bias_init(features.shape[-1]),
        name="linear",
    )(features)


class SquareLogitHead(nn.Module):
    """K linear logits and, last, the square logit of the OOD class: PreLoad's head (equations 1 and 4).

    Attributes:
        num_classes: K; the head returns K + 1 logits.
        initial_scale: "inverse_width" starts from exp(w') ≈ 1/d: the OOD logit of unit-sized features is then
            near 1 whatever the width d; "one" from exp(w') ≈ 1 as the released code does, from which a short
            training never leaves "everything is OOD".
        exponent: the even power of G(x).
        zero_bias: of the K classes, see `LinearHead`.

    Raises:
        ValueError: when it is called, for another initial scale or an odd exponent.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import SquareLogitHead
        >>> head, features = SquareLogitHead(num_classes=3), jnp.ones((5, 8))
        >>> variables = head.init(jax.random.key(0), features)
        >>> head.apply(variables, features).shape, variables["params"]["ood"]["raw_weights"].shape
        ((5, 4), (8,))
    """

    num_classes: int
    initial_scale: str = "inverse_width"
    exponent: int = 2
    zero_bias: bool = True

    @property
    def has_ood_class(self) -> bool:
        """Whether the last logit is the OOD class: always."""
        return True

    @nn.compact
    def __call__(self, features: Float[Array, "*batch d"]) -> Float[Array, "*batch k"]:
        if self.initial_scale not in INITIAL_SCALES:
            raise ValueError(f"unknown initial scale {self.initial_scale!r}; expected one of {list(INITIAL_SCALES)}")
        in_domain = _linear_logits(features, self.num_classes, self.zero_bias)
        ood = SquareLogit(INITIAL_SCALES[self.initial_scale], self.exponent, name="ood")(features)
        return jnp.concatenate([in_domain, ood[..., None]], axis=-1)


class SquareLogit(nn.Module):
    """The OOD class's parameters w' [d] and b [], and its logit."""

    init_offset: Callable[[int], float]
    exponent: int

    @nn.compact
    def __call__(self, features: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        d = features.shape[-1]

        def init_raw_weights(key: Array) -> Array:
            return torch_kernel_init(key, (d, 1))[:, 0] + self.init_offset(d)

        raw_weights = self.param("raw_weights", init_raw_weights)
        bias = self.param("bias", torch_bias_init(d), ())
        return square_logit(features, raw_weights, bias, exponent=self.exponent)


def _offset_one(d: int) -> float:
    return 0.0


def _offset_inverse_width(d: int) -> float:
    return -math.log(d)


# What is added to w' at initialisation, as a function of the embedding's width.
INITIAL_SCALES: dict[str, Callable[[int], float]] = {"one": _offset_one, "inverse_width": _offset_inverse_width}
