"""A convolution by spectra: matrix products alone, and fewer of them than the convolution takes.

The spectrum of a convolution is, frequency by frequency, the product of the spectra.  Of the 25 products that a 5×5
kernel takes for each pixel and pair of channels about two stay.  For so few pixels a discrete Fourier transform is a
product with a matrix, first along h, then along w.  A product of complex numbers takes three real ones (Gauss):

    (a + ib)(c + id) = (ac - bd) + i((a + b)(c + d) - ac - bd).

The sums before and after them are part of the transforms' matrices, so that what is left is

    y = C((A x)(B k)):

linear maps A, B and C around one product of an [n, c] and a [c, k] matrix for each frequency and each of the three
terms.  The gradients are the same with transposed maps.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

_EXACT = lax.Precision.HIGHEST


def convolve(x: Float[Array, "h w n c"], kernel: Float[Array, "i j c k"]) -> Float[Array, "h w n k"]:
    """The cross-correlation of x with a kernel of odd size, x being padded with zeros so that its size stays.

    Pixels come first, so that matrices lie in memory as the products want them.  Rounding errors are relative to the
    largest value of an image, not to each pixel's: half precision is too coarse for that and computed in float32.
    """
    dtype = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    (h, w, n, _), (i, j, _, k) = x.shape, kernel.shape
    x_rows, kernel_rows, y_rows = (jnp.asarray(matrix, dtype) for matrix in _along_h(h, i))
    x_columns, kernel_columns, y_columns = (jnp.asarray(matrix, dtype) for matrix in _along_w(w, j))
    y_spectrum = lax.batch_matmul(
        _spectrum(x.astype(dtype), x_rows, x_columns),
        _spectrum(kernel.astype(dtype), kernel_rows, kernel_columns),
        precision=_EXACT,
    )
    halfway = _each(y_columns, y_spectrum.reshape(len(y_spectrum), -1, n * k))
    y = jnp.matmul(y_rows, halfway.reshape(y_rows.shape[1], -1), precision=_EXACT)
    return y.reshape(h, w, n, k).astype(x.dtype)


def _spectrum(
    x: Float[Array, "h w n c"], rows: Float[Array, "u2 h"], columns: Float[Array, "v3 w2"]
) -> Float[Array, "u v3 n c"]:
    """At each frequency (u, v) the factors of Gauss's three terms."""
    h, w, n, c = x.shape
    halfway = jnp.matmul(rows, x.reshape(h, -1), precision=_EXACT)
    return _each(columns, halfway.reshape(-1, 2 * w, n * c)).reshape(len(rows) // 2, -1, n, c)


def _each(matrix: Float[Array, "a b"], x: Float[Array, "u b q"]) -> Float[Array, "u a q"]:
    """The matrix times each of x's.  `jnp.matmul` would move u behind a, and back."""
    return lax.batch_matmul(jnp.broadcast_to(matrix, (len(x), *matrix.shape)), x, precision=_EXACT)


# Each axis has three maps: of an image's pixels, of a kernel's taps, and back to pixels.  Complex numbers are pairs of
# real ones, which follow u and precede w: so each map finds what it adds up side by side.


@cache
def _along_h(size: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    circle, pixels, offsets = _places(size, taps)
    # Of real numbers half of the frequencies say all: each stands for its conjugate, too, unless it is its own.
    u = np.arange(circle // 2 + 1)
    share = np.where(2 * u % circle == 0, 1, 2)[:, None] / circle

    def pairs(z: np.ndarray) -> np.ndarray:
        return np.stack([z.real, z.imag], 1).reshape(-1, z.shape[-1])

    waves = _waves(u, pixels, circle)
    return pairs(waves), pairs(_waves(u, offsets, circle)), pairs(share * waves).T


@cache
def _along_w(size: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    circle, pixels, offsets = _places(size, taps)
    v = np.arange(circle)

    def factors(z: np.ndarray) -> np.ndarray:
        of_pairs = np.concatenate([z, 1j * z], 1)
        return np.concatenate([of_pairs.real, of_pairs.imag, of_pairs.real + of_pairs.imag])

    waves = _waves(v, pixels, circle)
    back = waves.conj().T / circle
    of_terms = np.concatenate([(1 - 1j) * back, (-1 - 1j) * back, 1j * back], 1)
    return factors(waves), factors(_waves(v, offsets, circle)), np.concatenate([of_terms.real, of_terms.imag])


def _places(size: int, taps: int) -> tuple[int, np.ndarray, np.ndarray]:
    """A circle just so long that what wraps around is cut off; the pixels' places on it; the taps'."""
    return size + taps // 2, np.arange(size), taps // 2 - np.arange(taps)


def _waves(frequencies: np.ndarray, places: np.ndarray, circle: int) -> np.ndarray:
    return np.exp(-2j * np.pi * np.outer(frequencies, places) / circle)
