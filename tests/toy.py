"""A small, fast problem that the training tests share: two-dimensional classes and a ring of outliers, as images."""

from functools import cache

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import experimental

from preload_jax import methods, models
from preload_jax.devices import forward
from preload_jax.training import loop, optimizers, stage, steps
from preload_jax.training.data import TrainingData

SHAPE = (4, 4, 1)

# JAX 0.6 has it elsewhere.
enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else experimental.enable_x64


@cache
def data(num_images=256, num_classes=3):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, num_classes, num_images)
    centres = rng.integers(40, 216, (num_classes, *SHAPE))
    images = np.clip(centres[labels] + rng.normal(0, 8, (num_images, *SHAPE)), 0, 255).astype(np.uint8)
    outliers = rng.integers(0, 256, (300, *SHAPE), dtype=np.uint8)
    return TrainingData(jnp.asarray(images), jnp.asarray(labels, jnp.int32), jnp.asarray(outliers))


def batch(num_images):
    """The first images and as many outliers, in [0, 1]."""
    found = data()
    images, outliers = (forward.to_float(x[:num_images]) for x in (found.images, found.outliers))
    return steps.Batch(images, found.labels[:num_images], outliers)


def model(head="square_logit", num_classes=3):
    return models.make_classifier("mlp", head, num_classes=num_classes, initial_scale="inverse_width", widths=(16, 16))


def task(name, *, total_steps, trainable="all", optimizer="adam", **options):
    """The static part of a stage of a method."""
    row = methods.get(name)
    return steps.Task(
        model=options.pop("model", None) or model(row.head),
        objective=stage.OBJECTIVES[row.objective],
        optimizer=optimizers.Optimizer(optimizer, clip_norm=row.clip_norm),
        total_steps=total_steps,
        trainable=trainable,
        adversarial_steps=dict(row.own).get("adversarial_steps", 0),
        **options,
    )


def step(name):
    """A method's step."""
    return stage.STEPS[methods.get(name).step][0]


def start(name, task, *, shape=SHAPE, variables=None):
    """The state of a method at a stage's first step; random weights where none are given."""
    if variables is None:
        variables = loop.init_variables(task.model, shape, key=jax.random.key(0))
    return steps.init_state(variables, task=task, init_memory=stage.STEPS[methods.get(name).step][1])


def hyper(name, learning_rate=1e-2, *, ood_weight=1.0, margin_in=-3.0, margin_ood=-1.0, **others):
    """A method's numbers."""
    row = methods.get(name)
    objective = stage.objective_numbers(row, ood_weight, margin_in, margin_ood)
    return steps.Hyperparameters(learning_rate, objective=objective, own=stage.step_numbers(row), **others)


class NoisyBackbone(nn.Module):
    """What training mode changes, in little: batch statistics, and dropout after them."""

    dropout: float = 0.3
    axis_name: str | None = None

    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.Dense(8, name="dense")(images.reshape(len(images), -1))
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9, axis_name=self.axis_name, name="bn")(x)
        return nn.Dropout(self.dropout, deterministic=not train)(nn.relu(x))


def noisy_model(**options):
    return models.Classifier(NoisyBackbone(**options), models.LinearHead(3))
