"""What needs no download: scikit-learn's 1,797 handwritten digits and its two photos."""

from collections.abc import Iterator

import numpy as np

from preload_jax.data.blocks import counts, joined
from preload_jax.data.images import crop_boxes, resized_crops, to_channels
from preload_jax.data.splits import Arrays, stratified_split

PHOTOS = {"train": "china.jpg", "test": "flower.jpg"}
_DIGITS_TEST_SIZE = 500


def digits() -> tuple[Arrays, Arrays]:
    """The UCI handwritten digits as (train, test): 1,297 and 500 images, uint8 [n, 8, 8, 1], ten balanced classes."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    # The published pixels are counts from 0 to 16.
    images = np.rint(raw.images * (255 / 16)).astype(np.uint8)[..., None]
    data = Arrays(images=images, labels=raw.target.astype(np.int32))
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
    from sklearn.datasets import load_sample_image

    num_images, height, width, channels = shape
    photo = Image.fromarray(load_sample_image(PHOTOS[which]))
    boxes, start = crop_boxes(rng, photo, num_crops=num_images), 0
    for count in counts(shape):
        crops = resized_crops(photo, boxes[start : start + count], size=(height, width))
        start += count
        yield to_channels(crops, channels)
