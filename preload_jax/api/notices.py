"""What a user is warned of: steps that do not fit, inputs of two scales, embeddings that stay bounded."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from preload_jax import guarantees
from preload_jax.checks import unit_of, unlike_images
from preload_jax.devices import forward
from preload_jax.errors import UserError, warn_user
from preload_jax.models import Classifier
from preload_jax.models.classifier import grows
from preload_jax.rows import spread
from preload_jax.training import memory
from preload_jax.training.stage import Settings

Variables = Mapping[str, Any]
# Random rays along which a network of the user's own is looked at.
_RAYS_LOOKED_AT = 16
# Times by which outliers may be larger or smaller than the images, before that is said, and other images are refused.
_TOLD, _REFUSED = 8.0, 20.0
# The largest value of uint8 images below which they are no images of 256 levels, such as digits of 0 … 16.
_FEW_LEVELS = 32
# The largest number of normalised images.
_NORMALISED = 20.0
# Inputs of which ranges and sizes are taken, at most.
_LOOKED_AT = 2000
# Classes that a message names.
_NAMED = 10
# How far above chance a network is that knows anything, of the way to 1; and images that are too few to say.
_NEAR_CHANCE, _FEW = 0.2, 20


def of_memory(model: Classifier, settings: Settings, shape: tuple[int, ...]) -> None:
    """Where what a step keeps is more than there is."""
    try:
        problem = memory.problem(model, shape, settings.batch_size * (1 + settings.method.sees_ood))
    except Exception:  # A network that cannot be asked is refused, with a reason, when it is trained.
        return
    if problem is not None:
        warn_user(f"{problem}: give a smaller batch_size, smaller images or another network")


def of_bounded_embeddings(model: Classifier, variables: Variables, shape: tuple[int, ...]) -> None:
    """Embeddings that stay bounded along every ray leave the OOD class nothing to grow with: a Python warning says so.

    Of most of the library's own networks it is known that they do not.
    """
    if grows(model.backbone):
        return
    directions = np.random.default_rng(0).normal(size=(_RAYS_LOOKED_AT, *shape))
    try:
        found = guarantees.embedding_behaviour(model, variables, directions, batch_size=_RAYS_LOOKED_AT)
    except UserError:  # An operation without a rule: nothing is known, so nothing is said.
        return
    if found.always_bounded:
        warn_user(
            "the network's embeddings stay bounded however far an input is, as after a layer norm: the OOD class does"
            " not win far away, and only the bound on the largest confidence holds. models.WithDistance adds a feature"
            " that grows with the distance from the training data"
        )


def of_channels_first(name: str, shape: tuple[int, ...]) -> None:
    """Where images [n, c, h, w] are given, as torch has them: a convolution would take a side for the channels."""
    if len(shape) == 3 and shape[0] in (1, 3) and shape[1] == shape[2] > 4:
        warn_user(
            f"{name} of shape [n, {', '.join(map(str, shape))}] look as torch has them, channels first; networks here"
            " take [n, height, width, channels]: move the axis, such as images.transpose(0, 2, 3, 1)"
        )


def of_range(name: str, images: np.ndarray) -> None:
    """Where images [n, h, w, c] are not of a scale that networks here are made for, by some of them.

    Those are [0, 1], and normalised images.  Inputs of another rank are tables or features, and of any size.
    """
    if images.ndim != 4:
        return
    some = _some(images)
    low, high = float(some.min()), float(some.max())
    if images.dtype == np.uint8 and 0.0 < high < _FEW_LEVELS:
        warn_user(
            f"{name} are uint8 and at most {high:.0f}, and the network sees them divided by 255; scale them to 0 … 255,"
            " or give floating point in [0, 1]"
        )
    elif np.issubdtype(images.dtype, np.floating) and unlike_images(low, high) and not _normalised(low, high):
        warn_user(
            f"{name} run from {low:.4g} to {high:.4g}; networks here are made for [0, 1] (uint8 is divided by 255)."
            " Scale them. If your network is made for such numbers, give it all images like these, in evaluation, too"
        )


def _normalised(low: float, high: float) -> bool:
    """Whether images may have been made to have mean 0 and deviation 1."""
    return low < 0.0 and max(-low, high) <= _NORMALISED


def of_classes(model: Classifier, labels: np.ndarray) -> None:
    """Where classes have no image: nothing is learned of them."""
    num_classes = getattr(model.head, "num_classes", None)
    if num_classes is None or not len(labels):
        return
    missing = np.setdiff1d(np.arange(num_classes), labels)
    if len(missing):
        names = ", ".join(map(str, missing[:_NAMED])) + (", …" if len(missing) > _NAMED else "")
        warn_user(f"{len(missing)} of {num_classes} classes have no training image: {names}. Is num_classes right?")


def of_chance(model: Classifier, variables: Variables, images: np.ndarray, labels: np.ndarray) -> None:
    """Where a trained network is right about its training images no more often than chance.

    Chance is how often its answers and the labels would agree if neither knew of the other, at their own frequencies.
    A network is near it that reaches less than `_NEAR_CHANCE` of the way from there to 1, and is not above it by three
    standard errors.  Labels of one class alone, as of a sorted batch, tell nothing.
    """
    if len(images) < _FEW:
        return
    logits, _ = forward.predict(model, variables, images, batch_size=len(images))
    k, count = model.head.num_classes, len(images)
    said = logits[:, :k].argmax(axis=1)
    shares = [np.bincount(each, minlength=k) / count for each in (said, labels)]
    if len(shares[1]) > k or shares[1].max() == 1.0:  # A label that is no class is refused where it is trained on.
        return
    accuracy, chance = float((said == labels).mean()), float(np.dot(*shares))
    above = accuracy - chance
    if above < min(_NEAR_CHANCE * (1.0 - chance), 3.0 * math.sqrt(chance * (1.0 - chance) / count)):
        of_scale = "Are the images scaled as they were when it was trained"
        if images.dtype == np.uint8:
            of_scale = "It sees uint8 images divided by 255: does it divide by 255 itself, too"
        warn_user(
            f"the network is right about {100 * accuracy:.0f} % of {count} training images, which is chance."
            f" {of_scale}? Or are the labels in another order?"
        )


def of_two_scales(images: np.ndarray, outliers: np.ndarray) -> None:
    """Warns where outliers are of another size than the images: the network would learn just that."""
    sizes = other_scales(images, outliers, times=_TOLD)
    if sizes is not None:
        warn_user(
            f"the largest entry of a training image is {sizes[0]:.3g} in the median, and of an outlier {sizes[1]:.3g},"
            " as the network sees them; scale them alike, or the network learns to tell their scales"
        )


def other_scales(*both: np.ndarray, times: float = _REFUSED) -> list[float] | None:
    """How large two arrays are to the network, where one is so many times as large as the other; else None.

    Integers, such as tokens, have no size.
    """
    if not all(np.issubdtype(x.dtype, np.floating) or x.dtype == np.uint8 for x in both):
        return None
    # As large as most of them are, in the middle of some.
    largest = [np.abs(_some(x)).max(axis=tuple(range(1, x.ndim))) / unit_of(x) for x in both]
    sizes = [float(np.median(x)) for x in largest]
    return sizes if min(sizes) > 0.0 and max(sizes) / min(sizes) > times else None


def _some(images: np.ndarray) -> np.ndarray:
    return images[spread(len(images), _LOOKED_AT)]
