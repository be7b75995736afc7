"""Augmentation on the device: f(key, images) on uint8 or float images, NHWC; the value range never changes.

Everything here runs inside the compiled training step, on one batch at a time.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, UInt8

from preload_jax.data.specs import Augmentation
from preload_jax.errors import UserError

PadMode = Literal["constant", "edge", "reflect"]
# Beyond as many places for a crop in one direction a TPU slices, too.
_MOST_SHIFTS = 64


@dataclass(frozen=True)
class Rays:
    """Outliers made while training: a training image plus t·u, u of length 1 in a random direction.  Not the paper's.

    They close the stretch of medium distances where a network can be confident before the OOD class takes over; what
    that costs is in docs/guarantees.md.

    Attributes:
        share: of the outliers in a batch that are replaced by such images, between 0 and 1.
        low, high: t is log-uniform between them, in Euclidean distance of images in [0, 1].
    """

    share: float = 0.25
    low: float = 3.0
    high: float = 100.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise UserError(f"the share of rays among outliers must be between 0 and 1, got {self.share}")
        if not 0.0 < self.low <= self.high < float("inf"):
            raise UserError(f"distances of rays must be positive, the lower one first, got {self.low} and {self.high}")


@dataclass(frozen=True)
class Augmentations:
    """The augmentation of both kinds of images; None leaves images alone.

    Attributes:
        in_domain: of training images.
        outliers: of auxiliary OOD images.
        rays: replaces some of the outliers, see `Rays`.
    """

    in_domain: Augmentation | None = None
    outliers: Augmentation | None = None
    rays: Rays | None = None

    def are_random(self, image_shape: tuple[int, ...], outlier_shape: tuple[int, ...] | None) -> bool:
        """Whether they make anything random of images of these shapes (h, w, c), of outliers where there are any."""
        if self.in_domain is not None or self.rays is not None:
            return True
        return self.outliers is not None and outlier_shape is not None and _are_cropped(outlier_shape, image_shape)


def luma(images: UInt8[Array, "n h w 3"]) -> UInt8[Array, "n h w 1"]:
    """0.299 R + 0.587 G + 0.114 B in 16-bit fixed point: what Pillow's conversion to "L" gives, to the last bit."""
    red, green, blue = jnp.split(images.astype(jnp.int32), 3, axis=-1)
    return ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16).astype(jnp.uint8)


def random_flip(key: Array, images: Num[Array, "n h w c"]) -> Num[Array, "n h w c"]:
    """Mirrors each image left to right with probability ½."""
    flipped = jax.random.bernoulli(key, shape=(len(images), 1, 1, 1))
    return jnp.where(flipped, images[:, :, ::-1], images)


def random_crop(
    key: Array, images: Num[Array, "n h w c"], *, size: tuple[int, int], pad: int, mode: PadMode
) -> Num[Array, "n h2 w2 c"]:
    """A window of `size` (height, width) at a random place of each image, `pad` pixels being added on every side.

    Raises:
        UserError: where it does not fit.
    """
    padded = jnp.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode=mode)
    if padded.shape[1] < size[0] or padded.shape[2] < size[1]:
        raise UserError(
            f"a crop of {size[0]}×{size[1]} does not fit into images of {images.shape[1]}×{images.shape[2]} with {pad}"
            " pixels added on every side; give larger images"
        )
    room = jnp.array([padded.shape[1] - size[0] + 1, padded.shape[2] - size[1] + 1])[None]
    corners = jax.random.randint(key, (len(images), 2), 0, room)

    by_slices = partial(_crop_by_slices, size=size)
    if max(padded.shape[1] - size[0], padded.shape[2] - size[1]) > _MOST_SHIFTS:
        return by_slices(padded, corners)
    return jax.lax.platform_dependent(padded, corners, tpu=partial(_crop_by_shifts, size=size), default=by_slices)


def _crop_by_slices(images: Num[Array, "n h w c"], corners: Int[Array, "n 2"], *, size: tuple[int, int]) -> Array:
    def crop(image: Array, corner: Array) -> Array:
        return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), (*size, image.shape[-1]))

    return jax.vmap(crop)(images, corners)


def _crop_by_shifts(images: Num[Array, "n h w c"], corners: Int[Array, "n 2"], *, size: tuple[int, int]) -> Array:
    """The same by choosing among the few shifts there are, for all images at once: a TPU slices one after the other."""
    for axis, length in zip((1, 2), size, strict=True):
        shifted = [
            jax.lax.slice_in_dim(images, i, i + length, axis=axis) for i in range(images.shape[axis] - length + 1)
        ]
        corner = corners[:, axis - 1, None, None, None]
        images = jax.lax.select_n(jnp.broadcast_to(corner, shifted[0].shape), *shifted)
    return images


def augment_in_domain(key: Array, images: Num[Array, "n ..."], *, policy: Augmentation | None) -> Num[Array, "n ..."]:
    """The policy's flip and crop, applied to each image with the policy's probability; the shape stays."""
    if policy is None:
        return images
    _require_images(images, "flips and crops are")
    chosen_key, change_key = jax.random.split(key)
    changed = _flip_and_crop(change_key, images, policy, size=(images.shape[1], images.shape[2]))
    chosen: Bool[Array, "n 1 1 1"] = jax.random.bernoulli(chosen_key, policy.probability, (len(images), 1, 1, 1))
    return jnp.where(chosen, changed, images)


def augment_outliers(
    key: Array, images: Num[Array, "n ..."], *, policy: Augmentation | None, image_shape: tuple[int, ...]
) -> Num[Array, "m ..."]:
    """Auxiliary OOD inputs → inputs of the in-domain set's shape; those that are no images need to have it.

    Larger images are cropped (and all are flipped) as the policy says, colour turns grey where the in-domain set is
    grey, and grey is repeated over three channels where it is not.  Grey images that have the in-domain shape already
    are left alone: a crop of them would only add a border.

    Raises:
        UserError: where that does not make the in-domain shape of them.
    """
    if images.ndim != 4 or len(image_shape) != 3:
        if policy is not None:
            _require_images(images, "flips and crops are")
        if images.shape[1:] != image_shape:
            raise UserError(f"outliers of shape {list(images.shape[1:])}; expected {list(image_shape)}, as the others")
        return images
    height, width, channels = image_shape
    if policy is not None and _are_cropped(images.shape[1:], image_shape):
        images = _flip_and_crop(key, images, policy, size=(height, width))
    if images.shape[-1] == 3 and channels == 1:
        images = luma(images)
    elif images.shape[-1] == 1 and channels == 3:
        images = jnp.repeat(images, 3, axis=-1)
    if images.shape[1:] != image_shape:
        raise UserError(
            f"OOD images of shape {list(images.shape[1:])} cannot be made {list(image_shape)}; give images of that"
            " height and width, grey or in colour"
        )
    return images


def with_rays(
    key: Array, outliers: Num[Array, "n ..."], images: Num[Array, "m ..."], *, rays: Rays
) -> Float[Array, "n ..."]:
    """Some of the outliers replaced by images plus t·u, in [0, 1] and far beyond.

    Raises:
        UserError: for integers, such as tokens: there is nothing between them.
    """
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise UserError("rays start from images; inputs that are integers have none: leave rays out")
    chosen_key, image_key, direction_key, distance_key = jax.random.split(key, 4)
    n = len(outliers)
    each = (n, *[1] * (outliers.ndim - 1))
    start = images[jax.random.randint(image_key, (n,), 0, len(images))]
    u = jax.random.normal(direction_key, outliers.shape, outliers.dtype)
    u = u / jnp.sqrt(jnp.sum(jnp.square(u), axis=tuple(range(1, u.ndim)), keepdims=True))
    log_t = jax.random.uniform(
        distance_key, each, outliers.dtype, minval=math.log(rays.low), maxval=math.log(rays.high)
    )
    chosen = jax.random.bernoulli(chosen_key, rays.share, each)
    return jnp.where(chosen, start + jnp.exp(log_t) * u, outliers)


def _require_images(images: Array, what: str) -> None:
    if images.ndim != 4:
        raise UserError(f"{what} for images [n, h, w, channels], got {list(images.shape)}; leave the augmentation out")


def _are_cropped(outlier_shape: tuple[int, ...], image_shape: tuple[int, ...]) -> bool:
    """Whether a policy is applied to outliers of this shape."""
    return outlier_shape != image_shape or image_shape[-1] != 1


def _flip_and_crop(key: Array, images: Array, policy: Augmentation, *, size: tuple[int, int]) -> Array:
    flip_key, crop_key = jax.random.split(key)
    if policy.flip:
        images = random_flip(flip_key, images)
    return random_crop(crop_key, images, size=size, pad=policy.pad, mode=policy.mode)
