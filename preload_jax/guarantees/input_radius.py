"""How far from the training data is far, in input space: for a classifier whose OOD class sees the distance."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from preload_jax.checks import require_share, require_unmasked
from preload_jax.decisions.reasons import distances
from preload_jax.errors import UserError
from preload_jax.guarantees.head_parameters import HeadParameters, known_nonnegative, read_head
from preload_jax.models import Classifier, MCDropout, SquareLogitHead, WithDistance, features_nonnegative, head_options
from preload_jax.models.classifier import MAX_INPUT
from preload_jax.models.distance import is_measured
from preload_jax.short_repr import short_repr

# A classifier's norms, and the logits near the radius, are float32.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class InputRadius:
    """‖x − center‖₂ ≥ radius implies P(c | x) ≤ confidence for all c ≤ K, whatever the backbone.

    Attributes:
        confidence: the confidence asked for.
        radius: in units of the classifier's inputs, images in [0, 1]; inf if there is none.
        relative: radius / scale, which counts in typical distances.
        class_log_odds: A_c, [k]: the largest log-odds of each class at distance 0 from the center, by the closed form.
        center: μ, of the shape of one image.
        scale: m, the typical distance.
        nonnegative: whether embeddings were taken to be ≥ 0.

    Example: see `input_radius`.
    """

    confidence: float
    radius: float
    relative: float
    class_log_odds: Float[np.ndarray, "k"]
    center: Float[np.ndarray, "..."]
    scale: float
    nonnegative: bool

    __repr__ = short_repr

    def distances(self, images: Num[Array, "n ..."] | Num[np.ndarray, "n ..."]) -> Float[np.ndarray, "n"]:
        """‖x − μ‖₂ of each image, uint8 or in [0, 1] or beyond, in the radius's unit.

        Raises:
            UserError: for images that `predict` would refuse.
        """
        return distances(images, self.center)

    def share_beyond(self, images: Num[Array, "n ..."] | Num[np.ndarray, "n ..."]) -> float:
        """The share of images, uint8 or in [0, 1] or beyond, whose distance from the center is at least the radius."""
        return float(np.mean(self.distances(images) >= self.radius))


def input_radius(
    model: Classifier, variables: Mapping[str, Any], confidence: float, *, nonnegative: bool | None = None
) -> InputRadius:
    """The distance from the training mean beyond which no class can reach a confidence, for any backbone.

    Where the OOD class alone sees κ·r(x), r(x) = ‖x − μ‖ / m, as one more feature with the weight v_r,

        P(c | x) ≤ sigmoid(A_c − v_r (κ r(x))^e),     A_c = max_g Σ_j w_cj g_j − v_j g_j^e + b_c − b_o,

    for e = 2 A_c = Σ_j max(w_cj, 0)² / (4 v_j) + b_c − b_o; `|w_cj|` takes the place of max(w_cj, 0)
    where embeddings may be negative.  So the radius is
    m · (max_c max(A_c − log(p / (1 − p)), 0) / v_r)^(1/e) / κ, rounded up by 1e-5 of it for the
    network's float32.  Ours, not the paper's.

    Args:
        model: a `Classifier` of a `WithDistance` and a `SquareLogitHead`.
        variables: its variables.
        confidence: between 0 and 1, both excluded.
        nonnegative: whether the backbone's features are ≥ 0; None: `models.features_nonnegative`, and where that does
            not know they may be negative.

    Raises:
        UserError: for another model, a confidence outside (0, 1), parameters that are not finite, or a center and scale
            that nobody has measured, as in the variables of `model.init`.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, models
        >>> images = np.random.default_rng(0).random((50, 4, 4, 1), np.float32)
        >>> backbone = models.WithDistance(models.MLP(widths=(6,)), **models.typical_distance(images))
        >>> model = models.Classifier(backbone, models.SquareLogitHead(3, min_weight=0.2))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> found = guarantees.input_radius(model, variables, 0.5)
        >>> far = found.center + 1.01 * found.radius * np.eye(16)[:5].reshape(5, 4, 4, 1)
        >>> probabilities = jax.nn.softmax(model.apply(variables, jnp.asarray(far, jnp.float32)))
        >>> found.share_beyond(far), bool((probabilities[:, :3] <= 0.5).all())
        (1.0, True)
    """
    confidence = require_share("confidence", confidence)
    kinds = type(model), type(model.backbone), type(model.head)
    # One's own subclass may compute anything of the same parameters.
    if kinds[0] not in (Classifier, MCDropout) or kinds[1:] != (WithDistance, SquareLogitHead):
        names = [kind.__name__ for kind in kinds]
        within = "" if kinds[0] is Classifier else f" in a {names[0]}"
        raise UserError(
            "expected a classifier of a WithDistance and a SquareLogitHead, got"
            f" {names[1]} and {names[2]}{within}: no other has a radius in input space"
        )
    backbone: Any = model.backbone
    nonnegative = known_nonnegative(features_nonnegative(backbone) if nonnegative is None else nonnegative)
    if not is_measured(variables):
        raise UserError(
            "the distance's center and scale are not measured, as after model.init: a radius in typical distances would"
            " mean nothing; train the network (fit measures both), or give WithDistance(…,"
            " **models.typical_distance(images)) before init"
        )
    center, scale = distance_constants(backbone, variables)
    head = read_head(variables["params"]["head"], **head_options(model.head))
    if head.distance_weight is None:
        raise UserError("the head's ood/raw_weights have no entry for the distance; train the head with it")
    log_odds = closed_form(head, nonnegative=nonnegative)
    excess = max(float(log_odds.max()) - math.log(confidence) + math.log1p(-confidence), 0.0)
    relative = (excess / head.distance_weight) ** (1.0 / head.exponent) / backbone.weight * (1.0 + _ROUNDING)
    return InputRadius(
        confidence,
        *_within_float32(relative, center, scale, weight=backbone.weight, exponent=head.exponent),
        class_log_odds=log_odds,
        center=center,
        scale=scale,
        nonnegative=nonnegative,
    )


def closed_form(head: HeadParameters, *, nonnegative: bool) -> Float[np.ndarray, "k"]:
    """A_c of each class, rounded up: the largest z_c − z_o over all embeddings, (1 − 1/e) Σ_j w_cj g_j + b_c − b_o."""
    if head.square_weights is None:
        raise UserError("a linear head has no closed form: its confidence has no bound below 1")
    e = head.exponent
    weights = np.maximum(head.weights, 0.0) if nonnegative else np.abs(head.weights)
    terms = (1.0 - 1.0 / e) * weights * (weights / (e * head.square_weights)) ** (1.0 / (e - 1))
    total = terms.sum(axis=1)
    rounding = np.abs(total) + np.abs(head.bias) + abs(head.ood_bias)
    return total + head.bias - head.ood_bias + (weights.shape[1] + 16) * np.finfo(np.float64).eps * rounding


def distance_constants(backbone: WithDistance, variables: Mapping[str, Any]) -> tuple[np.ndarray, float]:
    """μ and m as the network uses them: the variables' where they are there, else the module's; measured or not."""
    kept = variables.get("batch_stats", {}).get("backbone", {})
    center, scale = kept.get("distance_center", backbone.center), kept.get("distance_scale", backbone.scale)
    if center is None or scale is None:
        raise UserError("neither the variables nor the WithDistance have a center and a scale; give them")
    require_unmasked(center, scale)
    size = abs(float(np.asarray(scale)))  # As the network takes it.
    if not np.isfinite(np.asarray(center)).all() or not 0.0 < size < math.inf:
        raise UserError(
            f"the distance's center must be finite and its scale a positive number, got {float(np.asarray(scale))}"
        )
    return np.asarray(center, np.float64), size


def _within_float32(
    relative: float, center: np.ndarray, scale: float, *, weight: float, exponent: int
) -> tuple[float, float]:
    """(radius, relative), or infinity where a classifier's own limits in float32 come before it."""
    radius = relative * scale
    largest_power = float(jnp.finfo(jnp.float32).max) ** (1.0 / exponent)
    reached = radius + float(np.linalg.norm(center)) < MAX_INPUT and weight * relative < largest_power / 2.0
    return (radius, relative) if reached else (math.inf, math.inf)
