"""The batches of one compiled call: gathered from the stored images, augmented, and turned into floats."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array

from preload_jax.devices import sharding
from preload_jax.devices.batches import to_float
from preload_jax.training import augment
from preload_jax.training import data as training_data
from preload_jax.training.augment import Augmentations
from preload_jax.training.data import Chunk, TrainingData
from preload_jax.training.steps import Batch


def raw_batches(
    data: TrainingData | Chunk, step: Array, order_key: Array, batch_size: int, mesh: Mesh | None
) -> tuple[Array, Callable[[Array], TrainingData]]:
    """The number of the first batch, and number → that batch's images as they are stored."""
    if isinstance(data, Chunk):
        return jnp.zeros_like(step), lambda i: TrainingData(
            data.images[i], data.labels[i], None if data.outliers is None else data.outliers[i]
        )
    steps_per_epoch = len(data.images) // batch_size
    epoch, first = step // steps_per_epoch, step % steps_per_epoch
    num_outliers = None if data.outliers is None else len(data.outliers)
    orders = training_data.epoch_orders(
        order_key, epoch, len(data.images), num_outliers, needed=steps_per_epoch * batch_size
    )

    images, outliers = _as_rows(data.images), None if data.outliers is None else _as_rows(data.outliers)

    def take(i: Array) -> TrainingData:
        at = jax.tree.map(lambda order: jax.lax.dynamic_slice_in_dim(order, i * batch_size, batch_size), orders)
        # Each device gathers its own share, from the whole data that it has.
        rows, outlier_rows = sharding.constrain(at, mesh, sharding.AXIS)
        return TrainingData(images(rows), data.labels[rows], None if outliers is None else outliers(outlier_rows))

    return first, take


def _as_rows(images: Array) -> Callable[[Array], Array]:
    """Numbers → those of the images.

    A TPU stores images of few channels with their number as the innermost dimension, and would gather single bytes.  As
    rows an image lies together; the barrier keeps XLA from making rows anew in each step.  Elsewhere it costs nothing.
    """
    rows = jax.lax.optimization_barrier(images.reshape(len(images), -1))
    return lambda at: rows[at].reshape(-1, *images.shape[1:])


def make_batch(key: Array, raw: TrainingData, augmentations: Augmentations) -> Batch:
    """Augments a batch, as it is stored, and turns uint8 into floats in [0, 1]."""
    in_key, ood_key = jax.random.split(key)
    images = augment.augment_in_domain(in_key, raw.images, policy=augmentations.in_domain)
    outliers = None
    if raw.outliers is not None:
        outliers = to_float(
            augment.augment_outliers(
                ood_key, raw.outliers, policy=augmentations.outliers, image_shape=raw.images.shape[1:]
            )
        )
    floats = to_float(images)
    if outliers is not None and augmentations.rays is not None:
        # A key of its own, so that without rays nothing else changes.
        ray_key = jax.random.fold_in(ood_key, 1)
        outliers = augment.with_rays(ray_key, outliers, floats, rays=augmentations.rays)
    return Batch(floats, raw.labels, outliers)
