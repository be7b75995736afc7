"""Image files of any size, brought to a network's shape, with what had to be done to each."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preload_jax.data.images import to_shape
from preload_jax.data.readers import image_files
from preload_jax.data.readers.array_files import open_npy
from preload_jax.data.readers.bounds import require_memory
from preload_jax.data.readers.image_files import SUFFIXES
from preload_jax.errors import DataError, what_instead


@dataclass(frozen=True)
class SingleImage:
    """One image.

    Attributes:
      name: its file, with [row] for one of several in a .npy file.
      image: uint8, or floating point in [0, 1] from a .npy file, [h, w, c].
      changes: what was done to it, in words; empty where nothing was.
    """

    name: str
    image: np.ndarray
    changes: tuple[str, ...]


def read(paths: Sequence[Path], image_shape: tuple[int, int, int]) -> list[SingleImage]:
    """Reads image files and .npy files of images.

    An image of another shape is prepared as the images are that a network is trained and tested on (`to_shape`):
    resized with antialiasing, the whole of it, so that another aspect ratio is squashed, and turned grey or into three
    equal channels.  Images of floating-point numbers must have the network's shape.

    Args:
      paths: files that Pillow reads, or .npy: uint8 or floating point [h, w], [h, w, c] or [n, h, w, c].
      image_shape: (height, width, channels) of the network's images.

    Raises:
      DataError: naming the first file that is missing, unreadable or of another kind.
    """
    if not paths:
        raise DataError("no images; give at least one file")
    found = []
    for path in paths:
        if not os.path.isfile(path):  # Unlike Path's, this takes any name.
            if os.path.isdir(path):
                raise DataError(f"{path} is a folder; give the images in it, such as {path}/*.png")
            raise DataError(f"{path}: {what_instead(path)}; expected an image")
        if path.suffix == ".npy":
            found += of_array(str(path), open_npy(path), image_shape)
            continue
        images, changes = _of_picture(path)
        for row, image in enumerate(images):
            name = str(path) if len(images) == 1 else f"{path}[{row}]"
            found.append(_fitted(name, image, image_shape, changes))
    return found


def _of_picture(path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path}: not an image by its name; expected one of {', '.join(sorted(SUFFIXES))} or .npy")
    picture = image_files.read(path)
    image = np.asarray(picture.image)
    return image.reshape(1, *image.shape[:2], -1), picture.changes


def of_array(name: str, array: np.ndarray, image_shape: tuple[int, int, int]) -> list[SingleImage]:
    """Images out of an array, as `read` takes them out of a .npy file; `name` is what they are called.

    Raises:
      DataError: as `read`.
    """
    images = _checked(name, array)
    names = [name if len(images) == 1 else f"{name}[{row}]" for row in range(len(images))]
    return [_fitted(each, image, image_shape) for each, image in zip(names, images, strict=True)]


def _checked(path: object, array: np.ndarray) -> np.ndarray:
    """The array as images [n, h, w, c]."""
    found = f"{path}: {array.dtype} {list(array.shape)}"
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim == 3:
        array = array[None]
    is_number = array.dtype == np.uint8 or np.issubdtype(array.dtype, np.floating)
    if not is_number or array.ndim != 4 or array.shape[-1] not in (1, 3) or not array.size:
        raise DataError(f"{found}; expected uint8 or floating point [h, w], [h, w, 1 or 3] or [n, h, w, 1 or 3]")
    require_memory(path, array.size, copies=1 if array.dtype == np.uint8 else 5)
    if array.dtype == np.uint8:
        return np.asarray(array)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(array, np.float32)
    if not np.isfinite(values).all():
        raise DataError(f"{path}: holds NaN, infinity or more than 32 bits can hold; expected numbers in [0, 1]")
    return values


def _fitted(
    name: str, image: np.ndarray, image_shape: tuple[int, int, int], before: tuple[str, ...] = ()
) -> SingleImage:
    if image.shape == image_shape:
        return SingleImage(name, image, before)
    if image.dtype != np.uint8:
        raise DataError(f"{name}: floating point {list(image.shape)}; expected {list(image_shape)}, or uint8")
    height, width, channels = image_shape
    fitted, changes = to_shape(image[None], image_shape)[0], list(before)
    if image.shape[:2] != (height, width):
        how = "resized" if image.shape[0] * width == image.shape[1] * height else "squashed"
        changes.append(f"{how} from {_size(image)} to {_size(fitted)}")
    if image.shape[-1] != channels:
        changes.append("turned grey" if channels == 1 else "given three equal channels")
    return SingleImage(name, fitted, tuple(changes))


def _size(image: np.ndarray) -> str:
    return f"{image.shape[1]}×{image.shape[0]}"
