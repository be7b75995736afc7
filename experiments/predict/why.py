"""Why an image is called OOD, or should be looked at: in words, for each image."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from preload_jax import guarantees
from preload_jax.decisions import reasons as words
from preload_jax.decisions.answers import Predictions
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
    beyond = _beyond_radius(model, variables, images)
    return words.reasons(images, said, thresholds=[threshold] * len(images), beyond=beyond)


def _beyond_radius(model: Classifier, variables: Mapping[str, Any], images: Sequence[np.ndarray]) -> list[str]:
    """What is certified of each image farther from the training data than the input radius; "" for the others."""
    if not isinstance(model.backbone, WithDistance) or not isinstance(model.head, SquareLogitHead):
        return [""] * len(images)
    radius = guarantees.input_radius(model, variables, _CONFIDENCE)
    found = []
    for image in images:
        distance = radius.distances(image[None])[0] / radius.scale
        found.append(words.beyond_radius(distance, radius=radius.relative, confidence=_CONFIDENCE))
    return found
