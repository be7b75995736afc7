"""What needs no download: scikit-learn's 1,797 handwritten digits and its two photos."""

import numpy as np

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
    from PIL import Image
    from sklearn.datasets import load_sample_image

    from preload_jax.data.images import random_resized_crops, to_channels

    height, width, channels = image_shape
    photo = Image.fromarray(load_sample_image(PHOTOS[which]))
    return to_channels(random_resized_crops(rng, photo, num_crops=num_images, size=(height, width)), channels)
