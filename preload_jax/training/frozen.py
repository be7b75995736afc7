"""The frozen network's features, computed once for a stage that trains w' and b alone (stage 1 of PreLoad-FT).

In evaluation mode G(x) depends on x alone.  Where no augmentation changes images at random, one pass over them takes
the place of the backbone in every step.  The features are kept as images of one pixel with d channels, so that order,
streaming, devices and steps are those of every other stage.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Num

from preload_jax.devices import forward, sharding
from preload_jax.models.classifier import Classifier, OnePixel
from preload_jax.models.heads import SquareLogitHead
from preload_jax.training import augment, steps
from preload_jax.training import data as training_data
from preload_jax.training.augment import Augmentations
from preload_jax.training.data import TrainingData
from preload_jax.training.plan import Plan
from preload_jax.training.steps import Task, TrainState


def saves_work(
    state: TrainState,
    data: TrainingData,
    *,
    task: Task,
    step: Callable[..., Any],
    plan: Plan,
    augmentations: Augmentations,
) -> bool:
    """Whether a stage's features can be computed once, and whether they should.

    They can where w' and b alone are trained, by the plain step, and no image changes from epoch to epoch.  They should
    where the pass is over fewer images than all steps together take, and features fit a quarter of the memory.  The
    whole stage is looked at, not what is left of it: a run that goes on has to decide as it did before.
    """
    known = type(task.model) is Classifier and type(task.model.head) is SquareLogitHead
    plain = task.trainable == "ood_head" and step is steps.gradient_step and known
    outlier_shape = None if data.outliers is None else data.outliers.shape[1:]
    if not plain or augmentations.are_random(data.images.shape[1:], outlier_shape):
        return False
    num_images = len(data.images) + (0 if data.outliers is None else len(data.outliers))
    # Of several processes each passes over all images, but trains on its share of a batch.
    if num_images * jax.process_count() >= plan.total_steps * _images_per_step(data, plan):
        return False
    bytes_each = 4 * state.params["head"]["linear"]["kernel"].shape[0]
    a_call = plan.steps_from(0) * _images_per_step(data, plan)
    on_device = training_data.CALLS_ON_DEVICE * a_call if data.on_host else num_images
    return all(
        memory is None or 4 * bytes_each * count <= memory
        for count, memory in ((num_images, _host_memory()), (on_device, training_data.device_memory()))
    )


def _images_per_step(data: TrainingData, plan: Plan) -> int:
    return plan.batch_size * (1 if data.outliers is None else 2)


def _host_memory() -> int | None:
    """Bytes; None where the system does not say."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None


def head_only(
    state: TrainState,
    data: TrainingData,
    *,
    task: Task,
    plan: Plan,
    mesh: Mesh | None,
    before_batch: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[TrainingData, Task]:
    """Features in place of images, where those were, and the task with a network that takes them.

    The state serves both networks: the new one's head has the same place among the parameters.  `before_batch` is told
    how many of all images are done, and ends the pass by raising.
    """
    # Each process needs all features, and makes them with its own devices.
    own = None if mesh is None else sharding.make_mesh(len(mesh.local_devices), local=True)
    variables = jax.tree.map(lambda x: sharding.put(np.asarray(x), own), state.variables)
    # As many images at a time as in a step: what trains with such batches has the memory.
    size = _images_per_step(data, plan) // jax.process_count()
    num_outliers = 0 if data.outliers is None else len(data.outliers)

    def features(images: Any, before: int) -> Any:
        parts = []
        for start in range(0, len(images), size):
            before_batch(before + start, num_outliers + len(data.images))
            batch = np.asarray(_fit_channels(images[start : start + size], image_shape=data.images.shape[1:]))
            _, of_batch = forward.predict(task.model, variables, batch, batch_size=size, features=True, mesh=own)
            parts.append(np.asarray(of_batch, np.float32)[:, None, None])
        joined = np.concatenate(parts)
        return joined if data.on_host else sharding.put(joined, mesh)

    outliers = None if data.outliers is None else features(data.outliers, 0)
    found = TrainingData(features(data.images, num_outliers), data.labels, outliers)
    return found, replace(task, model=task.model.clone(backbone=OnePixel()))


@partial(jax.jit, static_argnames="image_shape")
def _fit_channels(images: Num[Array, "n ..."], *, image_shape: tuple[int, ...]) -> Num[Array, "n ..."]:
    # Without a policy nothing is random, and the key unused.
    return augment.augment_outliers(jax.random.key(0), images, policy=None, image_shape=image_shape)
