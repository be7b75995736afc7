"""What is proved about a network by its head: its largest confidence, and how far away none is confident."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.runs import records
from preload_jax import guarantees
from preload_jax.guarantees import ConfidenceBound, DensityRadius, InputRadius
from preload_jax.models import CCUHead, Classifier, LaplaceHead, MCDropout, WithDistance

AnyInputRadius = InputRadius | DensityRadius


def input_radius(model: Classifier, variables: Mapping[str, Any], confidence: float) -> AnyInputRadius | None:
    """The distance from the training data beyond which no class is confident; None of a network that has none."""
    if isinstance(model.head, CCUHead):
        return guarantees.density_radius(model, variables, confidence)
    return guarantees.input_radius(model, variables, confidence) if isinstance(model.backbone, WithDistance) else None


def bound(model: Classifier, variables: Mapping[str, Any], options: Mapping[str, Any]) -> ConfidenceBound:
    """The largest confidence of each class; of draws of a network no more is known than of each of them."""
    if isinstance(model.head, LaplaceHead):
        return guarantees.laplace_bound(variables)
    found = guarantees.confidence_bound(variables["params"]["head"], **options)
    if isinstance(model.head, CCUHead):
        return replace(found, reason=f"near the data, where outliers are far less likely: {found.reason}")
    return replace(found, reason=f"of each draw: {found.reason}") if isinstance(model, MCDropout) else found


def input_radius_as_dict(found: AnyInputRadius | None) -> dict[str, Any] | None:
    """The radius in input space, for JSON."""
    if found is None:
        return None
    own = {"in_metric": records.finite(found.in_metric)} if isinstance(found, DensityRadius) else {}
    return {
        "radius": records.finite(found.radius),
        "typical_distances": records.finite(found.relative),
        "typical_distance": found.scale,
        **own,
    }
