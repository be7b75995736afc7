"""Made OOD inputs: uniform noise, smooth noise, FarAway and FarAway-RD. NumPy, `rng` first."""

import numpy as np
from jaxtyping import Float, Float32, Int

from preload_jax.errors import DataError

_CHUNK = 1_000  # images blurred at once: bounds the memory of the per-image blur matrices


def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32[np.ndarray, "n h w c"]:
    """Uniform noise u ~ U[0, 1), float32 of `shape` [n, h, w, c]."""
    return rng.random(shape, dtype=np.float32)


def faraway(
    rng: np.random.Generator, shape: tuple[int, ...], *, distance: float = 10_000.0
) -> Float32[np.ndarray, "n h w c"]:
    """FarAway: t·u with u ~ U[0, 1) and t = `distance`, float32 of `shape` [n, h, w, c]."""
    return np.float32(distance) * uniform(rng, shape)


def faraway_rd(
    rng: np.random.Generator, shape: tuple[int, ...], *, distance: float = 10_000.0
) -> Float32[np.ndarray, "n h w c"]:
    """FarAway in random directions: u + t·v with u ~ U[0, 1), v uniform on the unit sphere and t = `distance`.

    Returns:
      float32 of `shape` [n, h, w, c]; every image is within √(h·w·c) of the sphere of radius t.
    """
    start = uniform(rng, shape)
    direction = rng.standard_normal(shape, dtype=np.float32)
    norm = np.linalg.norm(direction.reshape(shape[0], -1), axis=1)
    return start + np.float32(distance) * direction / norm.reshape(-1, 1, 1, 1)


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
    if images.ndim != 4 or images.dtype != np.uint8:
        raise DataError(f"smooth noise needs uint8 images [n, h, w, c], got {images.dtype} {list(images.shape)}")
    parts = [_smooth_chunk(rng, images[i : i + _CHUNK], sigma, gamma) for i in range(0, len(images), _CHUNK)]
    return np.concatenate(parts) if parts else np.zeros(images.shape, np.float32)


def _smooth_chunk(
    rng: np.random.Generator, images: np.ndarray, sigma: tuple[float, float], gamma: tuple[float, float]
) -> np.ndarray:
    n, height, width, channels = images.shape
    pixels = images.reshape(n, height * width, channels).astype(np.float64) / 255
    order = rng.permuted(np.tile(np.arange(height * width), (n, 1)), axis=1)
    shuffled = np.take_along_axis(pixels, order[:, :, None], axis=1).reshape(images.shape)
    blurred = gaussian_blur(shuffled, rng.uniform(sigma[0], sigma[1], size=(n,)))
    contrast = rng.uniform(gamma[0], gamma[1], (n, 1, 1, 1))
    return (1 / (1 + np.exp(-contrast * (blurred - 0.5)))).astype(np.float32)


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
