"""What needs no download: scikit-learn's 1,797 handwritten digits and its two photos.

Its files are read where it is installed.  `sklearn.datasets` has functions for that, which take a second to import.
"""

import gzip
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from preload_jax.data.blocks import counts, joined
from preload_jax.data.images import crop_boxes, resized_crops, to_channels
from preload_jax.data.splits import Arrays, stratified_split
from preload_jax.errors import DataError

PHOTOS = {"train": "china.jpg", "test": "flower.jpg"}
_DIGITS_TEST_SIZE = 500


def digits() -> tuple[Arrays, Arrays]:
    """The UCI handwritten digits as (train, test): 1,297 and 500 images, uint8 [n, 8, 8, 1], ten balanced classes."""
    with gzip.open(_bundled("data/digits.csv.gz"), "rt") as file:
        table = np.loadtxt(file, delimiter=",")  # 64 pixels and the label in each row
    # The published pixels are counts from 0 to 16.
    images = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    data = Arrays(images=images, labels=table[:, -1].astype(np.int32))
    train_rows, test_rows = stratified_split(data.labels, test_size=_DIGITS_TEST_SIZE)
    return data.take(train_rows), data.take(test_rows)


def photo_crops(
    rng: np.random.Generator, which: str, *, num_images: int, image_shape: tuple[int, int, int]
) -> np.ndarray:
    """Random crops of one bundled photo, at many scales, shrunk to the size of the in-domain images.

    Args:
      rng: source of the crops.
      which: "train" (a Chinese temple) or "test" (a flower): two photos, so that none is both trained and tested on.
      num_images: number of crops.
      image_shape: (h, w, c) of the crops.

    Returns:
      uint8 [num_images, h, w, c].
    """
    shape = num_images, *image_shape
    return joined(photo_crop_blocks(rng, which, shape), shape, np.uint8)


def photo_crop_blocks(rng: np.random.Generator, which: str, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """`photo_crops` of `shape` [n, h, w, c], in blocks."""
    from PIL import Image

    num_images, height, width, channels = shape
    with Image.open(_bundled(f"images/{PHOTOS[which]}")) as file:
        photo = file.convert("RGB")
    boxes, start = crop_boxes(rng, photo, num_crops=num_images), 0
    for count in counts(shape):
        crops = resized_crops(photo, boxes[start : start + count], size=(height, width))
        start += count
        yield to_channels(crops, channels)


def _bundled(name: str) -> Path:
    """Where a file of `sklearn.datasets` is.

    Raises:
      DataError: where scikit-learn is not installed, or has no such file.
    """
    found = find_spec("sklearn")
    path = Path("sklearn" if found is None or found.origin is None else found.origin).parent / "datasets" / name
    if not path.is_file():
        raise DataError(f"no {path}, which comes with scikit-learn; install scikit-learn>=1.5 again")
    return path
