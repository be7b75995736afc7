"""Why an input is called OOD, or should be looked at: in words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax.checks import as_points, in_units, outside_unit_range
from preload_jax.decisions.answers import Predictions
from preload_jax.decisions.rule import Rule


def reasons(
    images: Sequence[np.ndarray],
    said: Predictions,
    *,
    thresholds: Sequence[float | None],
    beyond: Sequence[str],
) -> list[list[str]]:
    """For each image what speaks for its being OOD; an empty list for nothing.

    Args:
        images: uint8 or floating point in [0, 1].
        said: the network's answer.
        thresholds: of each, below which its score is called OOD; None where the OOD class decides.
        beyond: of each, what `beyond_radius` says; "" for nothing.
    """
    found: list[list[str]] = [[] for _ in images]
    for i, image in enumerate(images):
        threshold = thresholds[i]
        called = said.is_ood is None or said.is_ood[i]
        if called and said.ood_probability is not None and said.ood_probability[i] > said.probabilities[i].max():
            found[i].append("the OOD class is the most probable of all")
        if threshold is not None and said.score[i] < threshold:
            found[i].append(f"the score is below {threshold:.4g}")
        if beyond[i]:
            found[i].append(beyond[i])
        if image.dtype != np.uint8 and outside_unit_range(image.min(), image.max()):
            found[i].append(
                f"its pixels run from {image.min():.4g} to {image.max():.4g}, those of the training images from 0 to 1"
            )
    return found


def thresholds(said: Predictions, *, rule: Rule | None, threshold: float | None) -> list[float | None]:
    """Below which score each input is called OOD; None where the OOD class decides."""
    if rule is None:
        return [threshold] * len(said.label)
    return [rule.threshold(int(label)) if rule.by_class else rule.threshold() for label in said.label]


def distances(images: Any, center: np.ndarray) -> Float[np.ndarray, "n"]:
    """‖x − center‖₂ of each image, uint8 in [0, 255] or in [0, 1] or beyond, in units of [0, 1].

    Raises:
        UserError: for images of another shape than the center's, and those that `predict` would refuse.
    """
    points = as_points(images, shape=center.shape)
    rows = (in_units(points) - center).reshape(len(points), -1)
    return np.asarray(np.linalg.norm(rows, axis=1))


def beyond_radius(distance: float, *, radius: float, confidence: float) -> str:
    """What is certified of an image that is farther from the training data than the input radius; "" for the others.

    Args:
        distance, radius: in typical distances.
        confidence: that no class can exceed beyond the radius.
    """
    if not distance >= radius:
        return ""
    return (
        f"it is {distance:.3g} typical distances from the training data, beyond the certified {radius:.3g}: no class"
        f" can be more confident than {100 * confidence:g} %"
    )
