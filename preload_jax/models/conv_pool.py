"""A 5×5 convolution and the 2×2 max pooling after it, in the form that the platform runs fastest."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.export import is_symbolic_dim
from jaxtyping import Array, Float

from preload_jax.models import spectral

# From so many on a CPU takes less time by spectra.
_LEAST_IMAGES, _LEAST_CHANNELS = 32, 8


def conv_max_pool(x: Float[Array, "n h w c"], kernel: Float[Array, "5 5 c k"]) -> Float[Array, "n h2 w2 k"]:
    """`max_pool_2x2(convolve(x, kernel))`, up to rounding.

    Args:
        x: images or features, of any floating-point type; h and w are even.
        kernel: of the same type.
    """
    if x.shape[-1] == 1:
        # One channel gives a CPU's convolution too little to do at once: in blocks it takes less than half the time.
        return lax.platform_dependent(x, kernel, cpu=_in_blocks, tpu=_in_strides, default=_plainly)
    return lax.platform_dependent(x, kernel, cpu=_on_cpu(x), tpu=_in_windows, default=_plainly)


def convolve(x: Float[Array, "n h w c"], kernel: Float[Array, "i j c k"]) -> Float[Array, "n h w k"]:
    """The cross-correlation of x with a kernel, x being padded with zeros so that its size stays."""
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool_2x2(x: Float[Array, "n h w c"]) -> Float[Array, "n h2 w2 c"]:
    """Maximum over 2×2 windows that do not overlap; the first of equal maxima gets the gradient, as in torch.

    Its gradient needs no scatter, unlike `nn.max_pool`'s, and no count of equal maxima, unlike a reduction's.
    """
    n, h, w, c = x.shape
    return _max_of_four(x.reshape(n, h // 2, 2, w // 2, 2, c), (2, 4))


def _plainly(x: Array, kernel: Array) -> Array:
    return max_pool_2x2(convolve(x, kernel))


def _in_strides(x: Array, kernel: Array) -> Array:
    """With each pixel of a window an array of its own: a TPU's tiles hold pixels of a row, and would be taken apart."""
    y = convolve(x, kernel)
    return _largest(*(y[:, i::2, j::2] for i in (0, 1) for j in (0, 1)))


def _in_windows(x: Array, kernel: Array) -> Array:
    """With XLA's own pooling, whose gradient goes to the first of equal maxima, too.

    On a TPU its gradient is the fastest; for one channel it would make compilation take three times as long.
    """
    return lax.reduce_window(convolve(x, kernel), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _in_blocks(x: Array, kernel: Array) -> Array:
    """The same in blocks of 2×2 pixels, each of which becomes one place with four times the channels.

    The four values that pooling compares are then channels of one place.  Each of them sees 5×5 of the 6×6 pixels that
    3×3 blocks have, so the blocks' kernel is the given one at four offsets.
    """
    y = _convolve_blocks(x, kernel)
    return _max_of_four(y.reshape(*y.shape[:3], 2, 2, kernel.shape[-1]), (3, 4))


def _by_spectra(x: Array, kernel: Array) -> Array:
    y = spectral.convolve(x.transpose(1, 2, 0, 3), kernel)
    h, w, n, k = y.shape
    return _max_of_four(y.reshape(h // 2, 2, w // 2, 2, n, k), (1, 3)).transpose(2, 0, 1, 3)


def _on_cpu(x: Array) -> Callable[[Array, Array], Array]:
    """The form that takes a CPU less time: by spectra, but not for a few images, nor for a few channels.

    Several devices that share a batch would each compute all of it: the images' axis is not the first of those that
    become one, and XLA cannot divide it then.
    """
    if x.shape[-1] < _LEAST_CHANNELS:
        return _plainly
    if is_symbolic_dim(x.shape[0]):
        return _by_number
    return _by_spectra if x.shape[0] >= _LEAST_IMAGES and jax.device_count() == 1 else _plainly


def _by_number(x: Array, kernel: Array) -> Array:
    """In a program for any number of images: both forms, of which its compiler takes one, as a single device does."""
    return lax.cond(jnp.asarray(x.shape[0], jnp.int32) >= _LEAST_IMAGES, _by_spectra, _plainly, x, kernel)


@jax.custom_jvp
def _convolve_blocks(x: Float[Array, "n h w c"], kernel: Float[Array, "5 5 c k"]) -> Float[Array, "n h2 w2 k4"]:
    return convolve(_to_blocks(x), _block_kernel(kernel))


@_convolve_blocks.defjvp
def _convolve_blocks_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    # Plainly, since the gradient of a kernel is: in blocks it would cost more than the rest gains.
    return _convolve_blocks(*primals), _to_blocks(jax.jvp(convolve, primals, tangents)[1])


def _to_blocks(x: Float[Array, "n h w c"]) -> Float[Array, "n h2 w2 c4"]:
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h // 2, w // 2, 4 * c)


def _block_kernel(kernel: Float[Array, "5 5 c k"]) -> Float[Array, "3 3 c4 k4"]:
    c, k = kernel.shape[2:]
    offsets = [jnp.pad(kernel, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i in (0, 1) for j in (0, 1)]
    kernels = jnp.stack(offsets, axis=3).reshape(3, 2, 3, 2, c, 4 * k)
    return kernels.transpose(0, 2, 1, 3, 4, 5).reshape(3, 3, 4 * c, 4 * k)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _max_of_four(x: Array, axes: tuple[int, int]) -> Array:
    """The maximum over two axes of length 2."""
    return _largest(*_four(x, axes)).squeeze(axes)


@_max_of_four.defjvp
def _max_of_four_jvp(axes: tuple[int, int], primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    # XLA's CPU compiler would find pairwise maxima again for each of their uses in training, one of which is in another
    # order and takes ten times as long; it finds a reduction once.
    y = lax.platform_dependent(x, cpu=partial(jnp.max, axis=axes), default=partial(_max_of_four, axes=axes))
    row, column = (
        lax.broadcasted_iota(jnp.uint8, [2 if i == axis else 1 for i in range(x.ndim)], axis) for axis in axes
    )
    # The gradient of this sum is one comparison an element of x: nothing is put together from four parts.
    chosen = _place(x, axes) == 2 * row + column
    return y, jnp.where(chosen, dx, jnp.zeros_like(dx)).sum(axes)


def _place(x: Array, axes: tuple[int, int]) -> Array:
    """The first place of the maximum, row by row: 0 to 3; the axes stay, of length 1."""
    a, b, c, d = _four(x, axes)
    top_is_larger = _larger(a, b) >= _larger(c, d)
    return jnp.where(top_is_larger, jnp.where(a >= b, 0, 1), jnp.where(c >= d, 2, 3)).astype(jnp.uint8)


def _four(x: Array, axes: tuple[int, int]) -> list[Array]:
    return [lax.index_in_dim(lax.index_in_dim(x, i, axes[0]), j, axes[1]) for i in (0, 1) for j in (0, 1)]


def _largest(a: Array, b: Array, c: Array, d: Array) -> Array:
    return _larger(_larger(a, b), _larger(c, d))


def _larger(a: Array, b: Array) -> Array:
    return jnp.where(a >= b, a, b)
