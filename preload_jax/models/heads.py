"""Classification heads.

All heads compute in float32 whatever the backbone's precision.  The OOD logit, where there is one, is the last.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.errors import UserError, unknown
from preload_jax.models.guards import overflow_guard
from preload_jax.models.initializers import torch_bias_init, torch_kernel_init
from preload_jax.models.ood_logit import INITIAL_SCALES, SquareLogit, weight_floor

# Features are limited to this magnitude before the linear logits are formed, so that no sum of finite products
# overflows to inf - inf.  Trained networks on images in [0, 1] stay more than twenty orders of magnitude below it.
MAX_FEATURE = 1e30


_within = overflow_guard(jnp.clip)


class LinearHead(nn.Module):
    """z_c(x) = w_cᵀ G(x) + b_c     (equation 1 of the paper).

    Attributes:
        num_outputs: how many logits: K, or K + 1 with `none_class`.
        zero_bias: whether b starts at 0 (as the released WideResNet) or as torch's default does (its LeNet).
        none_class: whether the last logit is the OOD class, as in the "none class" baseline (NC).
        distance: whether the last feature is a distance, which the classes do not see; `Classifier` sets it for
            `WithDistance`.

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
    distance: bool = False

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
        embedding = features[..., :-1] if self.distance else features
        return linear_logits(embedding, self.num_outputs, self.zero_bias)


def linear_logits(features: Array, num_outputs: int, zero_bias: bool) -> Array:
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
        initial_scale: "inverse_width" starts from exp(w') ≈ 1/d.  The OOD logit of unit-sized features is then near 1
            for every width d.  "one" starts from exp(w') ≈ 1, as the released code does.  A short training from there
            calls everything OOD.
        exponent: the even power of G(x).
        zero_bias: how the biases of the K classes start, see `LinearHead`.
        min_weight: a floor f ≥ 0 under the OOD class's weights, f + exp(w').  With one, the largest confidence falls;
            it is ours, not the paper's.
        min_distance_weight: the floor under the distance's weight; None: as `min_weight`.
        distance: whether the last feature is the distance of `WithDistance`, which the OOD class alone sees;
            `Classifier` sets it.

    Raises:
        UserError: when it is called, for another initial scale, an odd exponent or a negative floor.

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
    min_weight: float = 0.0
    min_distance_weight: float | None = None
    distance: bool = False

    @property
    def has_ood_class(self) -> bool:
        """Whether the last logit is the OOD class: always."""
        return True

    @nn.compact
    def __call__(self, features: Float[Array, "*batch d"]) -> Float[Array, "*batch k"]:
        if self.initial_scale not in INITIAL_SCALES:
            raise UserError(unknown("initial scale", self.initial_scale, INITIAL_SCALES))
        embedding = features[..., :-1] if self.distance else features
        in_domain = linear_logits(embedding, self.num_classes, self.zero_bias)
        floor = weight_floor(
            features.shape[-1],
            min_weight=self.min_weight,
            min_distance_weight=self.min_distance_weight,
            distance=self.distance,
        )
        ood = SquareLogit(INITIAL_SCALES[self.initial_scale], self.exponent, name="ood")(features, floor)
        return jnp.concatenate([in_domain, ood[..., None]], axis=-1)


def head_options(head: nn.Module) -> dict[str, Any]:
    """The settings of a head that its parameters do not hold; files and `guarantees` need them beside the parameters.

    Args:
        head: any head.

    Returns:
        For a `SquareLogitHead` "exponent", and the floors that are set; an empty dictionary for another head.

    Example:
        >>> from preload_jax.models import SquareLogitHead, head_options
        >>> head_options(SquareLogitHead(3, exponent=4, min_weight=0.2))
        {'exponent': 4, 'min_weight': 0.2}
    """
    if not isinstance(head, SquareLogitHead):
        return {}
    options: dict[str, Any] = {"exponent": head.exponent}
    if head.min_weight:
        options["min_weight"] = head.min_weight
    if head.min_distance_weight is not None:
        options["min_distance_weight"] = head.min_distance_weight
    return options
