"""What `fit` and `attach` are given, looked at before anything is computed."""

import warnings
import zlib
from typing import Any

import numpy as np

from preload_jax.checks import as_array, check_images, check_labels
from preload_jax.devices.batches import as_network_takes, of_type
from preload_jax.devices.variables import inputs_of
from preload_jax.errors import UserError
from preload_jax.models import Classifier, WithDistance
from preload_jax.models.distance import OF_INTEGERS
from preload_jax.training.data import TrainingData

# Times by which outliers may be larger or smaller than the images.
_SCALED_OTHERWISE = 20.0


def training_data(model: Classifier, images: Any, labels: Any, outliers: Any) -> TrainingData:
    """The arrays as training takes them, after a look at their types (`loop.check_data` looks at the rest)."""
    images, numbers = _inputs(model, images, "training images"), check_labels(labels)
    outliers = None if outliers is None else _inputs(model, outliers, "training outliers")
    if outliers is not None:
        _warn_if_scaled_otherwise(images, outliers)
    return TrainingData(images, numbers.astype(np.int32), outliers)


def _inputs(model: Classifier, given: Any, name: str) -> np.ndarray:
    """Inputs of any rank, in a type that the network takes; uint8 images stay uint8."""
    array = as_network_takes(as_array(given, name=name))
    if array.ndim < 2 or not len(array):
        raise UserError(
            f"{name} are {array.dtype} {list(array.shape)}; expected at least one, uint8 [n, h, w, channels] in"
            " [0, 255] or numbers [n, …]"
        )
    check_images(array, name=name)
    if isinstance(model.backbone, WithDistance) and array.dtype == np.int32:
        raise UserError(OF_INTEGERS)
    return of_type(inputs_of(model, array.shape[1:]).dtype, array, name=name)


def _warn_if_scaled_otherwise(images: np.ndarray, outliers: np.ndarray) -> None:
    """Warns where outliers of floating point are of another size than the images: the network would learn just that."""
    if not np.issubdtype(images.dtype, np.floating) or not np.issubdtype(outliers.dtype, np.floating):
        return
    # As large as most of them are, in the middle of some.
    sizes = [
        float(np.median(np.abs(x[:: max(1, len(x) // 1000)]).max(axis=tuple(range(1, x.ndim)))))
        for x in (images, outliers)
    ]
    if min(sizes) > 0.0 and max(sizes) / min(sizes) > _SCALED_OTHERWISE:
        warnings.warn(
            f"the largest entry of a training image is {sizes[0]:.3g} in the median, and of an outlier {sizes[1]:.3g};"
            " scale them alike, or the network learns to tell their scales",
            UserWarning,
            stacklevel=5,
        )


def fingerprint(images: np.ndarray) -> list[int]:
    """The shape, and a checksum of some images all over the array: it may be larger than memory."""
    some = np.ascontiguousarray(images[:: max(1, len(images) // 64)])
    return [*images.shape, zlib.crc32(some.tobytes())]
