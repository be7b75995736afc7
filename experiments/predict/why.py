"""Why an image is called OOD, or should be looked at: in words, for each image."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from preload_jax import guarantees
from preload_jax.api import Predictions
from preload_jax.checks import outside_unit_range
from preload_jax.models import Classifier, SquareLogitHead, WithDistance

# Confidence that no class can exceed beyond the certified radius.
_CONFIDENCE = 0.5


def reasons(
    model: Classifier,
    variables: Mapping[str, Any],
    images: Sequence[np.ndarray],
    said: Predictions,
    threshold: float | None,
) -> list[list[str]]:
    """For each image what speaks for its being OOD; an empty list for nothing.

    Args:
        model, variables: the network.
        images: of its shape, uint8 or floating point in [0, 1].
        said: its answer.
        threshold: below which scores are called OOD; None where the OOD class decides.
    """
    found: list[list[str]] = [[] for _ in images]
    distances = _beyond_radius(model, variables, images)
    for i, image in enumerate(images):
        called = said.is_ood is None or said.is_ood[i]
        if called and said.ood_probability is not None and said.ood_probability[i] > said.probabilities[i].max():
            found[i].append("the OOD class is the most probable of all")
        if threshold is not None and said.score[i] < threshold:
            found[i].append(f"the score is below {threshold:.4g}")
        if distances[i]:
            found[i].append(distances[i])
        if image.dtype != np.uint8 and outside_unit_range(image.min(), image.max()):
            found[i].append(
                f"its pixels run from {image.min():.4g} to {image.max():.4g}, those of the training images from 0 to 1"
            )
    return found


def _beyond_radius(model: Classifier, variables: Mapping[str, Any], images: Sequence[np.ndarray]) -> list[str]:
    """What is certified of each image farther from the training data than the input radius; "" for the others."""
    if not isinstance(model.backbone, WithDistance) or not isinstance(model.head, SquareLogitHead):
        return [""] * len(images)
    radius = guarantees.input_radius(model, variables, _CONFIDENCE)
    found = []
    for image in images:
        distance = radius.distances(image[None])[0] / radius.scale
        found.append(
            f"it is {distance:.3g} typical distances from the training data, beyond the certified"
            f" {radius.relative:.3g}: no class can be more confident than {100 * _CONFIDENCE:g} %"
            if distance >= radius.relative
            else ""
        )
    return found
