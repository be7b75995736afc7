"""Size and colour of images: Pillow's antialiased resizing, grey and colour, random crops. uint8 in, uint8 out."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import UInt8

from preload_jax.data.readers import image_files
from preload_jax.data.readers.bounds import require_memory
from preload_jax.errors import DataError

_BLOCK = 1_000  # images turned grey at once, in 32 bits


def to_shape(images: UInt8[np.ndarray, "n _ _ _"], image_shape: tuple[int, int, int]) -> UInt8[np.ndarray, "n h w c"]:
    """Brings images [n, h, w, c] to `image_shape`: resized (squashed, not cropped), then grey or three channels."""
    height, width, channels = image_shape
    return to_channels(resize(images, (height, width)), channels)


def resize(images: UInt8[np.ndarray, "n _ _ c"], size: tuple[int, int]) -> UInt8[np.ndarray, "n h w c"]:
    """Resizes images [n, h, w, c] to `size` = (height, width) with Pillow's antialiased bilinear filter."""
    from PIL import Image

    height, width = size
    if images.shape[1:3] == (height, width):
        return images
    require_memory(f"{len(images):,} images", len(images) * height * width * images.shape[3])
    result = np.empty((len(images), height, width, images.shape[3]), np.uint8)
    for row, image in enumerate(images):
        pillow = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
        result[row] = image_files.to_array(pillow, size)
    return result


def to_channels(images: UInt8[np.ndarray, "n h w _"], channels: int) -> UInt8[np.ndarray, "n h w c"]:
    """Turns RGB into grey (ITU-R 601 luma, rounded as Pillow does) or grey into three equal channels."""
    found = images.shape[-1]
    if found == channels:
        return images
    require_memory(f"{len(images):,} images", images[..., 0].size * channels)
    if (found, channels) == (1, 3):
        return np.repeat(images, 3, axis=-1)
    if (found, channels) == (3, 1):
        # Pillow's fixed-point weights of convert("L").
        weights, result = np.array([19595, 38470, 7471], np.uint32), np.empty((*images.shape[:-1], 1), np.uint8)
        for start in range(0, len(images), _BLOCK):
            luma = images[start : start + _BLOCK].astype(np.uint32) @ weights
            result[start : start + _BLOCK, ..., 0] = (luma + 0x8000) >> 16
        return result
    raise DataError(f"cannot turn images of {found} channels into {channels}; expected 1 or 3")


def random_resized_crops(
    rng: np.random.Generator,
    image: Any,
    *,
    num_crops: int,
    size: tuple[int, int],
    scale: tuple[float, float] = (0.02, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> UInt8[np.ndarray, "n h w c"]:
    """Random crops of one photo, each resized with antialiasing.

    Args:
      rng: source of the crops.
      image: a PIL image in mode RGB or L.
      num_crops: number of crops.
      size: (height, width) of the result in pixels.
      scale: range of a crop's share of the photo's area; uniform in the logarithm, so that every scale is seen.
      ratio: range of a crop's width over its height, uniform in the logarithm.

    Returns:
      uint8 [num_crops, height, width, c], c = 1 for mode L, else 3.
    """
    boxes = crop_boxes(rng, image, num_crops=num_crops, scale=scale, ratio=ratio)
    return resized_crops(image, boxes, size=size)


def crop_boxes(
    rng: np.random.Generator,
    image: Any,
    *,
    num_crops: int,
    scale: tuple[float, float] = (0.02, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> np.ndarray:
    """The boxes of `random_resized_crops`, (left, top, right, bottom) in pixels, [n, 4]."""
    area = image.width * image.height * np.exp(rng.uniform(np.log(scale[0]), np.log(scale[1]), num_crops))
    aspect = np.exp(rng.uniform(np.log(ratio[0]), np.log(ratio[1]), num_crops))
    crop_width = np.clip(np.sqrt(area * aspect), 1, image.width)
    crop_height = np.clip(np.sqrt(area / aspect), 1, image.height)
    left = rng.random(num_crops) * (image.width - crop_width)
    top = rng.random(num_crops) * (image.height - crop_height)
    boxes = np.stack([left, top, left + crop_width, top + crop_height], axis=1)
    # Rounding may put an edge a hair outside, which Pillow refuses.
    return np.clip(boxes, 0, [image.width, image.height, image.width, image.height])


def resized_crops(image: Any, boxes: np.ndarray, *, size: tuple[int, int]) -> UInt8[np.ndarray, "n h w c"]:
    """A photo's crops, each resized with antialiasing; by all cores, for Pillow resizes one by one but side by side."""
    from PIL import Image

    height, width = size
    crops = np.empty((len(boxes), height, width, 1 if image.mode == "L" else 3), np.uint8)
    image.load()  # by one thread, before several share it

    def fill(rows: np.ndarray) -> None:
        for row in rows:
            resized = image.resize((width, height), Image.Resampling.BILINEAR, box=tuple(boxes[row]))
            crops[row] = np.asarray(resized).reshape(crops[row].shape)

    count = os.cpu_count() or 1
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(fill, np.array_split(np.arange(len(boxes)), count)))
    return crops
