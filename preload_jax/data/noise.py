"""Made OOD inputs: uniform noise, smooth noise, FarAway and FarAway-RD. NumPy, `rng` first; in blocks, too."""

import copy
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Float32, Int

from preload_jax.data.blocks import counts, joined
from preload_jax.errors import DataError

# Images whose random numbers are drawn together: an order each, and then a width and a contrast each.
_CHUNK = 1_000


def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32[np.ndarray, "n h w c"]:
    """Uniform noise u ~ U[0, 1), float32 of `shape` [n, h, w, c]."""
    return joined(uniform_blocks(rng, shape), shape, np.float32)


def uniform_blocks(rng: np.random.Generator, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """`uniform` in blocks."""
    for count in counts(shape):
        yield rng.random((count, *shape[1:]), dtype=np.float32)


def faraway(
    rng: np.random.Generator, shape: tuple[int, ...], *, distance: float = 10_000.0
) -> Float32[np.ndarray, "n h w c"]:
    """FarAway: t·u with u ~ U[0, 1) and t = `distance`, float32 of `shape` [n, h, w, c]."""
    return joined(faraway_blocks(rng, shape, distance=distance), shape, np.float32)


def faraway_blocks(
    rng: np.random.Generator, shape: tuple[int, ...], *, distance: float = 10_000.0
) -> Iterator[np.ndarray]:
    """`faraway` in blocks."""
    for block in uniform_blocks(rng, shape):
        yield np.float32(distance) * block


def faraway_rd(
    rng: np.random.Generator, shape: tuple[int, ...], *, distance: float = 10_000.0
) -> Float32[np.ndarray, "n h w c"]:
    """FarAway in random directions: u + t·v with u ~ U[0, 1), v uniform on the unit sphere and t = `distance`.

    Returns:
      float32 of `shape` [n, h, w, c]; every image is within √(h·w·c) of the sphere of radius t.
    """
    return joined(faraway_rd_blocks(rng, shape, distance=distance), shape, np.float32)


def faraway_rd_blocks(
    rng: np.random.Generator, shape: tuple[int, ...], *, distance: float = 10_000.0
) -> Iterator[np.ndarray]:
    """`faraway_rd` in blocks."""
    starts = copy.deepcopy(rng)
    # All directions are drawn after all starts: those are drawn once more, to be dropped.
    for _ in uniform_blocks(rng, shape):
        pass
    for start in uniform_blocks(starts, shape):
        direction = rng.standard_normal(start.shape, dtype=np.float32)
        norm = np.linalg.norm(direction.reshape(len(start), -1), axis=1)
        yield start + np.float32(distance) * direction / norm.reshape(-1, 1, 1, 1)


def smooth(
    rng: np.random.Generator,
    images: np.ndarray,
    *,
    sigma: tuple[float, float] = (1.0, 2.5),
    gamma: tuple[float, float] = (5.0, 30.0),
) -> Float32[np.ndarray, "n h w c"]:
    """Smooth noise (Hein et al., 2019): permuted pixels, blurred, with the contrast raised again.

    Each image x in [0, 1] gets one permutation of its pixels, shared by the channels; a Gaussian blur with
    σ ~ U(sigma); and sigmoid(γ(x − ½)) with γ ~ U(gamma).

    Args:
      rng: source of all randomness.
      images: uint8 [n, h, w, c], the in-domain images to start from.
      sigma: range of the blur's width in pixels.
      gamma: range of the contrast.

    Returns:
      float32 [n, h, w, c] in [0, 1].
    """
    return joined(smooth_blocks(rng, images, sigma=sigma, gamma=gamma), images.shape, np.float32)


def smooth_blocks(
    rng: np.random.Generator,
    images: np.ndarray,
    *,
    num_images: int | None = None,
    sigma: tuple[float, float] = (1.0, 2.5),
    gamma: tuple[float, float] = (5.0, 30.0),
) -> Iterator[np.ndarray]:
    """`smooth` in blocks, of `num_images` images: the first ones, or going round again where there are too few."""
    if images.ndim != 4 or images.dtype != np.uint8:
        raise DataError(f"smooth noise needs uint8 images [n, h, w, c], got {images.dtype} {list(images.shape)}")
    total = len(images) if num_images is None else num_images
    for first in range(0, total, _CHUNK):
        shape = (min(_CHUNK, total - first), *images.shape[1:])
        widths, contrasts, orders = _drawn(rng, shape, sigma, gamma)
        start = 0
        for order in orders:
            rows = slice(start, start := start + len(order))
            source = images[np.arange(first + rows.start, first + rows.stop) % len(images)]
            yield _smoothed(source, order, widths[rows], contrasts[rows])


def _drawn(
    rng: np.random.Generator, shape: tuple[int, ...], sigma: tuple[float, float], gamma: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, Iterator[np.ndarray]]:
    """The widths and contrasts of a chunk's images, and their pixels' orders in blocks, which are drawn before them."""
    again = copy.deepcopy(rng)
    for _ in _orders(rng, shape):
        pass
    widths = rng.uniform(sigma[0], sigma[1], size=(shape[0],))
    return widths, rng.uniform(gamma[0], gamma[1], (shape[0], 1, 1, 1)), _orders(again, shape)


def _orders(rng: np.random.Generator, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    pixels = np.arange(shape[1] * shape[2])
    for count in counts(shape):
        yield rng.permuted(np.tile(pixels, (count, 1)), axis=1)


def _smoothed(images: np.ndarray, order: np.ndarray, widths: np.ndarray, contrasts: np.ndarray) -> np.ndarray:
    n, height, width, channels = images.shape
    pixels = images.reshape(n, height * width, channels).astype(np.float64) / 255
    shuffled = np.take_along_axis(pixels, order[:, :, None], axis=1).reshape(images.shape)
    blurred = gaussian_blur(shuffled, widths)
    return (1 / (1 + np.exp(-contrasts * (blurred - 0.5)))).astype(np.float32)


def gaussian_blur(images: Float[np.ndarray, "n h w c"], sigma: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n h w c"]:
    """Blurs each image with its own width, as `scipy.ndimage.gaussian_filter(image, sigma)` does, but all at once.

    A blur with mirrored borders is linear, so along one axis it is a matrix; the image is multiplied by one matrix an
    axis.

    Args:
      images: float [n, h, w, c].
      sigma: widths in pixels [n].

    Returns:
      float64 [n, h, w, c].
    """
    n, height, width, channels = images.shape
    rows, columns, colours = (blur_matrices(sigma, size) for size in (height, width, channels))
    blurred = (rows @ images.reshape(n, height, width * channels)).reshape(images.shape)
    blurred = columns[:, None] @ blurred
    # Released code: the filter is applied to the whole [h, w, c] array, so it mixes the colour channels, too.
    return blurred @ colours.transpose(0, 2, 1)[:, None]


def blur_matrices(sigma: Float[np.ndarray, " n"], size: int) -> Float[np.ndarray, "n size size"]:
    """Matrices [n, size, size] of Gaussian blurs of widths `sigma` [n] along an axis of `size` pixels.

    The kernel is cut at 4 σ and the border is mirrored with the edge pixel repeated: SciPy's defaults.
    """
    radius = (4 * sigma + 0.5).astype(int)
    offsets = np.arange(-radius.max(initial=0), radius.max(initial=0) + 1)
    kernel = np.exp(-0.5 * (offsets / sigma[:, None]) ** 2)
    kernel[np.abs(offsets) > radius[:, None]] = 0
    kernel /= kernel.sum(axis=1, keepdims=True)
    return np.tensordot(kernel, mirrored_taps(offsets, size), axes=1)


def mirrored_taps(offsets: Int[np.ndarray, " k"], size: int) -> Float[np.ndarray, "k size size"]:
    """taps[k, i, j] = 1 where the k-th offset from pixel i lands on pixel j; borders are mirrored, pixel and all."""
    source = np.arange(size)[None, :] + offsets[:, None]
    source %= 2 * size
    source = np.where(source < size, source, 2 * size - 1 - source)
    return (source[:, :, None] == np.arange(size)).astype(np.float64)
