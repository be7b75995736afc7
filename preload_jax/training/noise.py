"""CEDA's and ACET's step: no class shall be confident on noise that is made in each step (Hein et al., 2019).

Half of the noise is permuted pixels of the batch's images, half is uniform.  All of it is blurred, by a Gaussian of
σ ~ U(1, 2.5) pixels, and stretched to the whole range again.  ACET looks for the most confident point near each.

Released code: one σ for all images of a batch; here each image has its own.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from preload_jax.data.noise import mirrored_taps
from preload_jax.errors import UserError
from preload_jax.training.adversarial import worst_near
from preload_jax.training.steps import Batch, Hyperparameters, Task, TrainState, gradient_step

# Of the blur, in pixels; the released code cuts the kernel at 7.
_SIGMA = (1.0, 2.5)
_RADIUS = 7


def noise_step(
    state: TrainState, batch: Batch, key: Array, *, task: Task, hyper: Hyperparameters
) -> tuple[TrainState, dict[str, Array]]:
    """`gradient_step` with noise as outliers: CEDA's, and with `task.adversarial_steps` ACET's.

    Raises:
        UserError: for inputs that are no images: there is no such noise of them.
    """
    if task.axis_name is not None:
        # Each device makes noise of its own.
        key = jax.random.fold_in(key, jax.lax.axis_index(task.axis_name))
    noise_key, attack_key, key = jax.random.split(key, 3)
    outliers = made_noise(noise_key, batch.images)
    if task.adversarial_steps:
        outliers = worst_near(state, outliers, attack_key, score=_largest_confidence, task=task, hyper=hyper)
    return gradient_step(state, batch._replace(outliers=outliers), key, task=task, hyper=hyper)


def _largest_confidence(logits: Float[Array, "n k"]) -> Float[Array, "n"]:
    return jnp.max(jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1), axis=-1)


def made_noise(key: Array, images: Num[Array, "n ..."]) -> Float[Array, "n h w c"]:
    """As many images of noise, each from 0 to 1, or in the range of the images where that is wider.

    Raises:
        UserError: for what is no batch of floating-point images.
    """
    if images.ndim != 4 or not jnp.issubdtype(images.dtype, jnp.floating):
        raise UserError(
            f"noise is made of images [n, h, w, channels], got {images.dtype} {list(images.shape)}; choose a method"
            " with outliers of your own"
        )
    order_key, uniform_key, sigma_key = jax.random.split(key, 3)
    n, height, width, channels = images.shape
    pixels = images.reshape(n, height * width, channels)
    order = jnp.argsort(jax.random.uniform(order_key, pixels.shape[:2]), axis=1)
    permuted = jnp.take_along_axis(pixels, order[:, :, None], axis=1).reshape(images.shape)
    # In turn, so that each device's share of a batch has both.
    is_permuted = (jnp.arange(n) % 2 == 0)[:, None, None, None]
    rough = jnp.where(is_permuted, permuted, jax.random.uniform(uniform_key, images.shape, images.dtype))
    sigma = jax.random.uniform(sigma_key, (n,), minval=_SIGMA[0], maxval=_SIGMA[1])
    stretched = _stretched(_blurred(rough, sigma)).astype(images.dtype)
    low, high = jnp.minimum(images.min(), 0.0), jnp.maximum(images.max(), 1.0)
    return low + (high - low) * stretched


def _blurred(images: Float[Array, "n h w c"], sigma: Float[Array, "n"]) -> Float[Array, "n h w c"]:
    """A Gaussian blur along both axes of an image, with mirrored borders: a matrix an axis."""
    offsets = np.arange(-_RADIUS, _RADIUS + 1)
    kernel = jnp.exp(-0.5 * jnp.square(jnp.asarray(offsets, sigma.dtype)[None] / sigma[:, None]))
    kernel = kernel / kernel.sum(axis=1, keepdims=True)
    rows, columns = (
        jnp.einsum("no,oij->nij", kernel, jnp.asarray(mirrored_taps(offsets, size), sigma.dtype))
        for size in images.shape[1:3]
    )
    return jnp.einsum("nij,nwv,njvc->niwc", rows, columns, images)


def _stretched(images: Float[Array, "n h w c"]) -> Float[Array, "n h w c"]:
    """From 0 to 1; an image of one value becomes 0."""
    axes = (1, 2, 3)
    low, high = images.min(axis=axes, keepdims=True), images.max(axis=axes, keepdims=True)
    extent = high - low
    return (images - low) / jnp.where(extent > 0, extent, 1.0)
