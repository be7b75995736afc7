"""What `fit` and `attach` are given, looked at before anything is computed."""

import itertools
import zlib
from collections.abc import Callable, Mapping, Sized
from typing import Any

import numpy as np

from preload_jax.api import notices
from preload_jax.checks import as_array, check_images, check_labels
from preload_jax.devices import reading, sharing
from preload_jax.devices.batches import as_network_takes, of_type
from preload_jax.devices.variables import inputs_of
from preload_jax.errors import UserError
from preload_jax.models import Classifier, WithDistance
from preload_jax.models.distance import OF_INTEGERS
from preload_jax.training.data import TrainingData, some_of
from preload_jax.training.fit import LOOKED_AT
from preload_jax.training.iterables import READ_ONCE, Batches, Source, shuffled
from preload_jax.training.passes import Pass, Rows

_IMAGES, _OUTLIERS = "training images", "training outliers"


def training_data(
    model: Classifier,
    images: Any,
    labels: Any,
    outliers: Any,
    *,
    seed: int,
    check: Callable[[tuple[int, ...]], None] = lambda shape: None,
) -> TrainingData | Batches:
    """Arrays, or batches where one of the inputs comes in batches, after a look at their types.

    `check` is given one image's shape before anything is warned of: what is refused needs no warnings before it.

    Raises:
        UserError: for what the network does not take, or what does not fit each other.
    """
    if labels is None and hasattr(images, "ndim"):
        raise UserError("labels are missing; give an integer for each image, or batches of (images, labels)")
    reading.require_no_labels(outliers, _OUTLIERS)
    if labels is not None and _are_batches(images):
        raise UserError("training images are batches, and labels are given beside them; leave out labels")
    arrays = labels is not None and (outliers is None or reading.is_array(outliers))
    if not arrays or _is_list_of_batches(outliers, _axes(images)):
        return _batches(model, images, labels, outliers, seed, check)
    images, numbers = _inputs(model, images, _IMAGES), check_labels(labels)
    check(images.shape[1:])
    notices.of_range(_IMAGES, images)
    notices.of_classes(model, numbers)
    outliers = None if outliers is None else _inputs(model, outliers, _OUTLIERS)
    if outliers is not None:
        notices.of_range(_OUTLIERS, outliers)
        notices.of_two_scales(images, outliers)
    return TrainingData(images, numbers.astype(np.int32), outliers)


def _batches(
    model: Classifier, images: Any, labels: Any, outliers: Any, seed: int, check: Callable[[tuple[int, ...]], None]
) -> Batches:
    count = None
    if labels is None:
        source, count, some_images = _source(model, images, _IMAGES, reading.pair, check=check)
    else:
        array, numbers = _inputs(model, images, _IMAGES), check_labels(labels)
        check(array.shape[1:])
        if len(array) != len(numbers):
            raise UserError(f"{len(array)} images but {len(numbers)} labels; expected one label an image")
        source, count, some_images = shuffled(_IMAGES, array, numbers, seed=seed), len(array), array
    others = None
    if outliers is not None and reading.is_array(outliers) and not _is_list_of_batches(outliers, len(source.shape) + 1):
        some_outliers = _inputs(model, outliers, _OUTLIERS)
        others = shuffled(_OUTLIERS, some_outliers, None, seed=seed + 1)
    elif outliers is not None:
        others, _, some_outliers = _source(
            model, outliers, _OUTLIERS, lambda batch: (reading.inputs_of(batch), None), count=False
        )
    if others is not None and (others.dtype != source.dtype or len(others.shape) != len(source.shape)):
        raise UserError(
            f"training images are {source.dtype} {list(source.shape)} each and outliers {others.dtype}"
            f" {list(others.shape)}; expected one type, and the same number of axes"
        )
    notices.of_range(_IMAGES, some_images)
    if others is not None:
        notices.of_range(_OUTLIERS, some_outliers)
        notices.of_two_scales(some_images, some_outliers)
    return Batches(source, others, count)


def _are_batches(images: Any) -> bool:
    """Whether they cannot be an array: something that yields, or a list of pairs or dictionaries."""
    if not reading.is_array(images):
        return not hasattr(images, "__array__")
    first: Any = None if hasattr(images, "ndim") or not images else images[0]
    return isinstance(first, Mapping) or (reading.is_pair(first) and first[0].ndim > 0)


def _axes(images: Any) -> int:
    if isinstance(images, list | tuple):
        return 1 + np.ndim(images[0]) if images else 0
    return int(getattr(images, "ndim", 0))


def _is_list_of_batches(outliers: Any, axes: int) -> bool:
    """Whether a list holds batches, of so many axes, not inputs."""
    if not isinstance(outliers, list | tuple) or not outliers:
        return False
    first = outliers[0]
    return isinstance(first, dict | tuple) or getattr(first, "ndim", 0) == axes


def _source(
    model: Classifier,
    given: Any,
    name: str,
    read: Callable[[Any], tuple[Any, Any]],
    *,
    count: bool = True,
    check: Callable[[tuple[int, ...]], None] = lambda shape: None,
) -> tuple[Source, int, np.ndarray]:
    """The batches, each looked at when it comes, how many inputs a pass has (0 where nobody asks), and the first."""
    begin = reading.passes(given, name=name)
    said: int | None = None

    def rows(first: Any = None) -> Pass:
        def looked_at(number: int, batch: Any) -> Rows:
            inputs, labels = read(batch)
            inputs = _inputs(model, inputs, f"{name} of batch {number}" if number else name)
            labels = None if labels is None else check_labels(labels)
            if first is not None and (inputs.shape[1:], inputs.dtype) != (first.shape[1:], first.dtype):
                raise UserError(
                    f"{name} of batch {number} are {inputs.dtype} {list(inputs.shape[1:])} each, those of the first"
                    f" batch {first.dtype} {list(first.shape[1:])}; expected one type and shape"
                )
            return inputs, labels

        def whole(read: int) -> None:
            if said is not None and abs(read - said) >= len(first):
                raise UserError(
                    f"the loader of {name} says that it has {len(given)} batches of {len(first)}, and yields {read} of"
                    " them in all; give lambda: iter(loader), and they are counted"
                )

        return Pass(begin(), looked_at, whole)

    first, _ = next(rows(), (None, None))
    if first is None:
        raise UserError(f"no {name}: there are no batches; give at least one")
    check(first.shape[1:])
    said = _said(given, len(first)) if count else None
    total = said or 0
    if count and said is None:
        counted = [(len(inputs), np.unique(np.asarray(labels))) for inputs, labels in rows(first)]
        if not counted:
            raise UserError(f"the {name} {READ_ONCE}")
        total = sum(size for size, _ in counted)
        notices.of_classes(model, np.concatenate([labels for _, labels in counted]))
    return Source(lambda epoch, repeat: rows(first), first.shape[1:], first.dtype, name), total, first


def _said(given: Any, size: int) -> int | None:
    """How many inputs a loader of torch's kind says it has, up to its last batch; None for what must be counted.

    A length alone tells nothing: it may be that of the examples, and batches may be of many sizes.
    """
    if callable(given) or not isinstance(given, Sized) or getattr(given, "batch_size", None) != size:
        return None
    try:
        return len(given) * size
    except TypeError:  # torch's, of a data set without a length
        return None


def _inputs(model: Classifier, given: Any, name: str) -> np.ndarray:
    """Inputs of any rank, in a type that the network takes; uint8 images stay uint8."""
    array = as_array(given, name=name)
    type_given, array = array.dtype, as_network_takes(array)
    if array.ndim < 2 or not len(array):
        raise UserError(
            f"{name} are {array.dtype} {list(array.shape)}; expected at least one, uint8 [n, h, w, channels] in"
            " [0, 255] or numbers [n, …]"
        )
    check_images(array, name=name)
    if name == _IMAGES:
        notices.of_channels_first(name, array.shape[1:])
    if isinstance(model.backbone, WithDistance) and array.dtype == np.int32:
        raise UserError(OF_INTEGERS)
    return of_type(inputs_of(model, array.shape[1:]).dtype, array, given=type_given, name=name)


def require_like(data: TrainingData | Batches, images: np.ndarray, *, name: str) -> None:
    """Raises a UserError unless other inputs have the training images' shape, type and scale."""
    images, training = as_network_takes(images), some(data, LOOKED_AT)
    if images.shape[1:] != training.shape[1:]:
        raise UserError(
            f"{name} of shape [n, {', '.join(map(str, images.shape[1:]))}] do not fit the network; the training images"
            f" are [n, {', '.join(map(str, training.shape[1:]))}]"
        )
    if (images.dtype == np.uint8) != (training.dtype == np.uint8) or images.dtype.kind != training.dtype.kind:
        raise UserError(
            f"{name} are {images.dtype} and the training images {training.dtype}; expected one type: uint8 is divided"
            " by 255, other numbers are taken as they are"
        )
    check_images(images, name=name)
    # Of uint8 both are divided by 255.
    if images.dtype != np.uint8 and (sizes := notices.other_scales(training, images)) is not None:
        raise UserError(
            f"the largest entry of a training image is {sizes[0]:.3g} in the median, and that of the {name}"
            f" {sizes[1]:.3g}; scale them alike"
        )


def shape_of(data: TrainingData | Batches) -> tuple[int, ...]:
    """Of one input."""
    return data.images.shape if isinstance(data, Batches) else data.images.shape[1:]


def some(data: TrainingData | Batches, count: int) -> np.ndarray:
    """At most `count` of the inputs, spread over all; of batches the first."""
    return data.sample(count) if isinstance(data, Batches) else some_of(data.images, count)


def some_labelled(data: TrainingData | Batches, count: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `count` of the images, and their labels, as `some`; of batches those of the first."""
    if isinstance(data, Batches):
        images, labels = next(data.images.passes(0, 0))
        return images[:count], np.asarray(labels)[:count]
    return some_of(data.images, count), some_of(data.labels, count)


def shapes_in_bytes(data: TrainingData | Batches) -> list[tuple[int, ...]]:
    """Of an image, and of an outlier: see `training_data.steps_per_chunk`."""
    both = [x for x in (data.images, data.outliers) if x is not None]
    if isinstance(data, Batches):
        return [(*x.shape, x.dtype.itemsize) for x in both]
    return [(*x.shape[1:], x.dtype.itemsize) for x in both]


def fingerprint(data: TrainingData | Batches) -> dict[str, Any]:
    """What a stored training and the one that goes on with it must have in common of their data; for JSON.

    Of batches it is their form alone: loaders may yield them in another order each time.
    """
    if isinstance(data, Batches):
        forms = [None if x is None else [str(x.dtype), *x.shape] for x in (data.images, data.outliers)]
        return {"images": [data.num_images, *itertools.chain(forms[0] or [])], "outliers": forms[1]}
    return {
        "images": sharing.fingerprint(data.images),
        "labels": zlib.crc32(np.ascontiguousarray(data.labels).tobytes()),
        "outliers": None if data.outliers is None else sharing.fingerprint(data.outliers),
    }
