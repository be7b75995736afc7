"""What a user is warned of: steps that do not fit, inputs of two scales, embeddings that stay bounded."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from preload_jax import guarantees
from preload_jax.errors import UserError
from preload_jax.models import Classifier
from preload_jax.models.classifier import grows
from preload_jax.training import fit as fitting
from preload_jax.training import memory
from preload_jax.training.stage import Settings

Variables = Mapping[str, Any]
# Random rays along which a network of the user's own is looked at.
_RAYS_LOOKED_AT = 16
# Times by which outliers may be larger or smaller than the images.
_SCALED_OTHERWISE = 20.0


def of_memory(model: Classifier, settings: Settings, shape: tuple[int, ...]) -> None:
    """Where what a step keeps is more than there is."""
    try:
        problem = memory.problem(model, shape, settings.batch_size * (1 + settings.method.sees_ood))
    except Exception:  # A network that cannot be asked is refused, with a reason, when it is trained.
        return
    if problem is not None:
        fitting.warn_user(f"{problem}: give a smaller batch_size, smaller images or another network")


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
        warnings.warn(
            "the network's embeddings stay bounded however far an input is, as after a layer norm: the OOD class does"
            " not win far away, and only the bound on the largest confidence holds. models.WithDistance adds a feature"
            " that grows with the distance from the training data",
            UserWarning,
            stacklevel=5,
        )


def of_channels_first(name: str, shape: tuple[int, ...]) -> None:
    """Where images [n, c, h, w] are given, as torch has them: a convolution would take a side for the channels."""
    if len(shape) == 3 and shape[0] in (1, 3) and shape[1] == shape[2] > 4:
        warnings.warn(
            f"{name} of shape [n, {', '.join(map(str, shape))}] look as torch has them, channels first; networks here"
            " take [n, height, width, channels]: move the axis, such as images.transpose(0, 2, 3, 1)",
            UserWarning,
            stacklevel=6,
        )


def of_two_scales(images: np.ndarray, outliers: np.ndarray, *, stacklevel: int = 5) -> None:
    """Warns where outliers of floating point are of another size than the images: the network would learn just that."""
    sizes = other_scales(images, outliers)
    if sizes is not None:
        warnings.warn(
            f"the largest entry of a training image is {sizes[0]:.3g} in the median, and of an outlier {sizes[1]:.3g};"
            " scale them alike, or the network learns to tell their scales",
            UserWarning,
            stacklevel=stacklevel,
        )


def other_scales(*both: np.ndarray) -> list[float] | None:
    """How large two arrays of floating-point inputs are, where one is many times as large as the other; else None."""
    if not all(np.issubdtype(x.dtype, np.floating) for x in both):
        return None
    # As large as most of them are, in the middle of some.
    sizes = [float(np.median(np.abs(x[:: max(1, len(x) // 1000)]).max(axis=tuple(range(1, x.ndim))))) for x in both]
    return sizes if min(sizes) > 0.0 and max(sizes) / min(sizes) > _SCALED_OTHERWISE else None
