"""What is proved about a network by its head: its largest confidence, how far away none is confident, and for JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from preload_jax.checks import finite_or_none, require_share
from preload_jax.errors import UserError
from preload_jax.guarantees.behaviour import nonnegative_embeddings
from preload_jax.guarantees.bounds import ConfidenceBound, confidence_bound
from preload_jax.guarantees.density_radius import DensityRadius, density_radius
from preload_jax.guarantees.input_radius import InputRadius
from preload_jax.guarantees.input_radius import input_radius as distance_radius
from preload_jax.guarantees.mixtures import laplace_bound
from preload_jax.guarantees.radius import SafeRadius, safe_radius
from preload_jax.models import (
    CCUHead,
    Classifier,
    LaplaceHead,
    LinearHead,
    MCDropout,
    RGPRHead,
    SquareLogitHead,
    WithDistance,
    head_options,
)

AnyInputRadius = InputRadius | DensityRadius

_HOLDS_FOR = {
    "parameters": "float32, as the file holds them",
    "largest_confidence": (
        "whatever precision the backbone computes in: it is over all embeddings. Computed in float64 and rounded"
        " outwards; the head's own float32 logits may differ from it by about 1e-6 of their size"
    ),
    "safe_radius": "as largest_confidence, of the embedding that the backbone computed",
    "input_radius": (
        "float32, in which the head, and the distance or the densities, compute on every platform. Computed in float64,"
        " and rounded up for that"
    ),
}


def program_certificate(
    model: Classifier,
    variables: Mapping[str, Any],
    image_shape: tuple[int, ...],
    *,
    class_names: Sequence[str] | None = None,
    confidence: float = 0.5,
) -> dict[str, Any]:
    """What follows from a network's parameters alone, for JSON, as `formats.save_program` takes it (`certificate=`).

    It gathers `confidence_bound` (`laplace_bound` of a Laplace approximation), `safe_radius`, and `input_radius` or
    `density_radius` of a network that has one.

    Args:
        model: a `Classifier` of one of the library's heads, with any backbone.
        variables: its variables.
        image_shape: of one input, such as (28, 28, 1).
        class_names: of the K classes; None: "0", "1", …
        confidence: that no class exceeds beyond the radii, between 0 and 1, both excluded.

    Returns:
        {"holds_for": part → for which precision, "largest_confidence", "safe_radius", "input_radius" (None of a network
        without one), "along_directions": None}.  Null stands for infinity: for a radius, that there is none.

    Raises:
        UserError: for a head or a `Classifier` of one's own, variables of another model, names that are not K, or a
            confidence outside (0, 1).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "square_logit", num_classes=2, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> found = guarantees.program_certificate(model, variables, (4, 4, 1), class_names=("cat", "dog"))
        >>> [row["name"] for row in found["largest_confidence"]["classes"]], found["input_radius"]
        (['cat', 'dog'], None)
    """
    confidence = require_share("confidence", confidence)
    _require_known(model)
    # It says where the variables are another model's.
    nonnegative = nonnegative_embeddings(model, variables, image_shape)
    names = [str(c) for c in range(model.head.num_classes)] if class_names is None else list(class_names)
    if isinstance(class_names, str) or len(names) != model.head.num_classes:
        raise UserError(f"class_names are {class_names!r}; expected {model.head.num_classes} names, one for each class")
    options: dict[str, Any] = {**head_options(model.head), "nonnegative": nonnegative}
    radius = safe_radius(variables["params"]["head"], confidence, **options)
    apart = input_radius_as_dict(input_radius(model, variables, confidence))
    found: dict[str, Any] = {
        "largest_confidence": largest_confidence(bound(model, variables, options), radius, class_names=names),
        "safe_radius": {"confidence": confidence, "radius": finite_or_none(radius.radius)},
        "input_radius": None if apart is None else {"confidence": confidence, **apart},
    }
    holds_for = {name: text for name, text in _HOLDS_FOR.items() if found.get(name, True)}
    return {"holds_for": holds_for, **found, "along_directions": None}


def input_radius(model: Classifier, variables: Mapping[str, Any], confidence: float) -> AnyInputRadius | None:
    """The distance from the training data beyond which no class is confident; None of a network that has none."""
    if isinstance(model.head, CCUHead):
        return density_radius(model, variables, confidence)
    if not isinstance(model.backbone, WithDistance) or not isinstance(model.head, SquareLogitHead):
        return None
    return distance_radius(model, variables, confidence)


def bound(model: Classifier, variables: Mapping[str, Any], options: Mapping[str, Any]) -> ConfidenceBound:
    """The largest confidence of each class; of draws of a network no more is known than of each of them."""
    if isinstance(model.head, LaplaceHead):
        return laplace_bound(variables)
    found = confidence_bound(variables["params"]["head"], **options)
    if isinstance(model.head, CCUHead):
        return replace(found, reason=f"near the data, where outliers are far less likely: {found.reason}")
    return replace(found, reason=f"of each draw: {found.reason}") if isinstance(model, MCDropout) else found


def largest_confidence(bound: ConfidenceBound, radius: SafeRadius, *, class_names: Sequence[str]) -> dict[str, Any]:
    """Of each class over all embeddings, for JSON."""
    classes = [
        {
            "name": name,
            "largest_confidence": float(bound.confidence[c]),
            "largest_log_odds": finite_or_none(bound.log_odds[c]),
            "attained_log_odds": finite_or_none(bound.attained_log_odds[c]),
            "closed_form_confidence": float(bound.closed_form[c]),
            "closed_form_log_odds": finite_or_none(bound.closed_form_log_odds[c]),
            "kkt_residual": float(bound.kkt_residual[c]),
            "safe_radius": finite_or_none(radius.class_radii[c]),
        }
        for c, name in enumerate(class_names)
    ]
    return {"reason": bound.reason, "classes": classes}


def input_radius_as_dict(found: AnyInputRadius | None) -> dict[str, Any] | None:
    """The radius in input space, for JSON."""
    if found is None:
        return None
    own = {"in_metric": finite_or_none(found.in_metric)} if isinstance(found, DensityRadius) else {}
    return {
        "radius": finite_or_none(found.radius),
        "typical_distances": finite_or_none(found.relative),
        "typical_distance": found.scale,
        **own,
    }


def _require_known(model: Any) -> None:
    # One's own subclass may compute anything of the same parameters.
    heads = (LinearHead, SquareLogitHead, LaplaceHead, RGPRHead, CCUHead)
    known = type(getattr(model, "head", None)) in heads
    if not known or type(model) not in (Classifier, MCDropout):
        got = type(model if known else getattr(model, "head", model)).__name__
        raise UserError(f"expected a Classifier with one of the library's heads, got {got}")
