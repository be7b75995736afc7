"""The user's own data set as arrays in a .npz file."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preload_jax.data.readers import array_files
from preload_jax.data.split_names import SPLITS, split_meant
from preload_jax.data.splits import Arrays
from preload_jax.errors import DataError, what_instead

# What people call arrays: images, x_train, Train_Images, labels_test, y, … in any case.
_IMAGES, _LABELS = r"images?|imgs?|x", r"labels?|y"
_LABELS_OF = {"images": "labels", "image": "label", "imgs": "labels", "img": "label", "x": "y"}
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
      unused: the names of other arrays.
    """

    keys: dict[str, tuple[str, str]]
    image_shape: tuple[int, int, int]
    labels: dict[str, np.ndarray]
    class_names: tuple[str, ...]
    unused: tuple[str, ...] = ()


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
    class_names = _class_names(path, keys, labels, content.get("class_names"))
    unused = tuple(name for name in names if name not in found)
    height, width, channels = shapes.pop()
    of_splits = {split: part.astype(np.int32) for split, part in labels.items()}
    return Contents(keys, (height, width, channels), of_splits, class_names, unused)


def read(path: Path, contents: Contents) -> dict[str, Arrays]:
    """The splits of a .npz file that `describe` described."""
    images = array_files.read_npz(path, [images for images, _ in contents.keys.values()], copies=_COPIES)
    return {
        split: Arrays(images=images[key].reshape(-1, *contents.image_shape), labels=contents.labels[split])
        for split, (key, _) in contents.keys.items()
    }


def _keys(path: Path, names: list[str]) -> dict[str, tuple[str, str]]:
    found: dict[tuple[str, str], str] = {}
    # Beside the documented pair single letters may be anything, such as coordinates.
    letters = ("x", "y") if {"images", "labels"} <= set(names) else ()
    for name in names:
        if meant := _meant(name) if name.lower() not in letters else None:
            if meant in found:
                raise DataError(
                    f"{path}: '{found[meant]}' and '{name}' are both the {meant[0]} {meant[1]}; expected one: leave the"
                    f" other out, or give it another name"
                )
            found[meant] = name
    if not {("train", "images"), ("train", "labels")} <= set(found):
        raise DataError(f"{path}: has {sorted(names)}; expected 'images' and 'labels'")
    for (split, kind), name in found.items():
        other = "labels" if kind == "images" else "images"
        if (split, other) not in found:
            raise DataError(
                f"{path}: has {sorted(names)}; '{name}' is read as {kind} of the {split} split, of which there are no"
                f" {other}: add '{_partner(name)}', or give '{name}' another name"
            )
    splits = [split for split in SPLITS if (split, "images") in found]
    return {split: (found[split, "images"], found[split, "labels"]) for split in splits}


def _meant(name: str) -> tuple[str, str] | None:
    """(one of `SPLITS`, "images" or "labels") that the name of an array means; None for another name."""
    for kind, words in (("images", _IMAGES), ("labels", _LABELS)):
        for pattern in (rf"(?:{words})[_ .-]?(?P<split>.*)", rf"(?P<split>.*?)[_ .-]?(?:{words})"):
            match = re.fullmatch(pattern, name, re.IGNORECASE)
            if match and (split := split_meant(match["split"]) if match["split"] else "train"):
                return split, kind
    return None


def _partner(name: str) -> str:
    """What the labels of images are called, and the images of labels."""
    words = {**_LABELS_OF, **{label: image for image, label in reversed(_LABELS_OF.items())}}
    at_ends = sorted(words, key=len, reverse=True)
    pattern = rf"^(?:{'|'.join(at_ends)})|(?:{'|'.join(at_ends)})$"
    return re.sub(pattern, lambda match: words[match[0]], name.lower(), count=1)


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


def _class_names(
    path: Path, keys: dict[str, tuple[str, str]], labels: dict[str, np.ndarray], names: np.ndarray | None
) -> tuple[str, ...]:
    """The classes' names, after a look at the labels: 0 to K - 1, each trained unless the names say what K is."""
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
        for split, part in labels.items():
            if len(untrained := np.setdiff1d(part, labels["train"])):
                raise DataError(
                    f"{path}: class {untrained[0]} of '{keys[split][1]}' has no images in '{keys['train'][0]}'; leave "
                    f"its images out, or say with an array 'class_names' which classes there are"
                )
        return tuple(map(str, range(high + 1)))
    if names.dtype.kind not in "US" or names.ndim != 1 or len(set(names.tolist())) != len(names):
        raise DataError(f"{path}: 'class_names' is {names.dtype} {list(names.shape)}; expected K different strings")
    if high >= len(names):
        raise DataError(f"{path}: labels from {low} to {high}, but {len(names)} 'class_names'")
    return tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names.tolist())
