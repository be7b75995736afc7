"""The user's own data set as arrays in a .npz file."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preload_jax.data.readers import array_files
from preload_jax.data.splits import Arrays
from preload_jax.errors import DataError, what_instead

# (images, labels) of the training, validation and test split: ours, and those of Keras's and of MedMNIST's files.
_KEYS = (
    (("images", "labels"), ("val_images", "val_labels"), ("test_images", "test_labels")),
    (("x_train", "y_train"), ("x_val", "y_val"), ("x_test", "y_test")),
    (("train_images", "train_labels"), ("val_images", "val_labels"), ("test_images", "test_labels")),
)
_SPLITS = ("train", "validation", "test")
_MAX_CLASSES = 10_000
_COPIES = 3  # of the images, while they are divided into splits


@dataclass(frozen=True)
class Contents:
    """What a .npz file holds, without its images.

    Attributes:
      keys: (images, labels) of each split that is there.
      image_shape: (h, w, c).
      labels: int32 of each split.
      class_names: one a class, in the order of the labels.
    """

    keys: dict[str, tuple[str, str]]
    image_shape: tuple[int, int, int]
    labels: dict[str, np.ndarray]
    class_names: tuple[str, ...]


def describe(path: Path) -> Contents:
    """Checks a .npz file by its headers and labels; `class_names`, if it has them, are the names of the classes.

    Raises:
      DataError: for a file that does not hold labelled images.
    """
    if not os.path.isfile(path):
        raise DataError(f"{path}: {what_instead(path)}; expected a .npz with arrays 'images' and 'labels'")
    names = array_files.names_in(path)
    keys = _keys(path, names)
    wanted = [name for pair in keys.values() for name in pair]
    found = array_files.declared(path, [*wanted, *(["class_names"] if "class_names" in names else [])])
    for images_key, labels_key in keys.values():
        _check_declared(path, found, images_key, labels_key)
    shapes = {(*found[images].shape, 1)[1:4] for images, _ in keys.values()}
    if len(shapes) > 1:
        images, *others = [images for images, _ in keys.values()]
        raise DataError(f"{path}: {' and '.join(repr(key) for key in others)} and '{images}' differ in shape")
    content = array_files.read_npz(path, [name for name in found if name not in {image for image, _ in keys.values()}])
    labels = {split: content[label_key].reshape(-1) for split, (_, label_key) in keys.items()}
    class_names = _class_names(path, labels, content.get("class_names"))
    height, width, channels = shapes.pop()
    return Contents(
        keys, (height, width, channels), {split: part.astype(np.int32) for split, part in labels.items()}, class_names
    )


def read(path: Path, contents: Contents) -> dict[str, Arrays]:
    """The splits of a .npz file that `describe` described."""
    images = array_files.read_npz(path, [images for images, _ in contents.keys.values()], copies=_COPIES)
    return {
        split: Arrays(images=images[key].reshape(-1, *contents.image_shape), labels=contents.labels[split])
        for split, (key, _) in contents.keys.items()
    }


def _keys(path: Path, names: list[str]) -> dict[str, tuple[str, str]]:
    for pairs in _KEYS:
        if not set(pairs[0]) <= set(names):
            continue
        for images, labels in pairs:
            if (images in names) != (labels in names):
                there, missing = (images, labels) if images in names else (labels, images)
                raise DataError(f"{path}: has '{there}' but no '{missing}'")
        return {split: pair for split, pair in zip(_SPLITS, pairs, strict=True) if pair[0] in names}
    raise DataError(f"{path}: has {sorted(names)}; expected 'images' and 'labels'")


def _check_declared(path: Path, found: dict[str, array_files.Declared], images_key: str, labels_key: str) -> None:
    images, labels = found[images_key], found[labels_key]
    shape = (*images.shape, 1) if len(images.shape) == 3 else images.shape
    if images.dtype != np.uint8 or len(shape) != 4 or shape[-1] not in (1, 3) or 0 in shape[1:]:
        raise DataError(f"{path}: '{images_key}' is {images}; expected uint8 [n, h, w] or [n, h, w, 1 or 3]")
    if labels.dtype.kind not in "iu" or labels.shape[1:] not in ((), (1,)) or not labels.shape:
        raise DataError(f"{path}: '{labels_key}' is {labels}; expected integers [n]")
    if shape[0] != labels.shape[0] or shape[0] < 10:
        raise DataError(
            f"{path}: {shape[0]} images and {labels.shape[0]} labels; expected as many of each, at least 10"
        )


def _class_names(path: Path, labels: dict[str, np.ndarray], names: np.ndarray | None) -> tuple[str, ...]:
    """The classes' names, after a look at the labels: 0 to K - 1, each of them there unless K is told by the names."""
    present = np.unique(np.concatenate(list(labels.values())))
    low, high = int(present[0]), int(present[-1])
    if low < 0 or high >= _MAX_CLASSES:
        raise DataError(f"{path}: labels from {low} to {high}; expected 0 to K - 1")
    if len(np.unique(labels["train"])) < 2:
        raise DataError(f"{path}: only one class, {labels['train'][0]}; expected at least two")
    if names is None:
        if len(present) != high + 1:
            missing = next(label for label in range(high + 1) if label not in present)
            raise DataError(
                f"{path}: labels from {low} to {high}, but no image has label {missing}; expected 0 to K - 1: "
                f"number the {len(present)} classes 0 to {len(present) - 1}, or say with an array 'class_names' which "
                f"there are"
            )
        return tuple(map(str, range(high + 1)))
    if names.dtype.kind not in "US" or names.ndim != 1 or len(set(names.tolist())) != len(names):
        raise DataError(f"{path}: 'class_names' is {names.dtype} {list(names.shape)}; expected K different strings")
    if high >= len(names):
        raise DataError(f"{path}: labels from {low} to {high}, but {len(names)} 'class_names'")
    return tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names.tolist())
