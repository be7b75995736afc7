"""Toy problems that can be seen whole: networks trained on points of the plane or the line, in seconds on a CPU."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax import methods, models
from preload_jax.devices import forward
from preload_jax.models import Classifier
from preload_jax.training import loop, steps
from preload_jax.training.stage import Numbers, Settings, stages

_STEPS = 1_500
_BATCH = 128


@dataclass(frozen=True)
class Trained:
    """A method's network on a toy problem."""

    method: str
    model: Classifier
    variables: dict[str, Any]

    def logits(self, points: np.ndarray) -> np.ndarray:
        """Logits [n, K] or [n, K+1] of points [n, d]."""
        return forward.predict(self.model, self.variables, _images(points), batch_size=10_000)[0]

    def probabilities(self, points: np.ndarray) -> np.ndarray:
        """Probabilities of all logits, [n, K] or [n, K+1]."""
        logits = self.logits(points).astype(np.float64)
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        return shifted / shifted.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Problem:
    """Points of two classes and outliers around them."""

    points: np.ndarray
    labels: np.ndarray
    outliers: np.ndarray


def plane(*, seed: int = 0, num_points: int = 400) -> Problem:
    """Two interleaved half moons, and outliers on a ring around them."""
    from sklearn.datasets import make_moons

    points, labels = make_moons(num_points, noise=0.1, random_state=seed)
    points = (points - points.mean(axis=0)) * 2.0
    rng = np.random.default_rng(seed)
    angles, radii = rng.uniform(0, 2 * np.pi, num_points), rng.uniform(4.5, 6.0, num_points)
    outliers = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)
    return Problem(points.astype(np.float32), labels.astype(np.int32), outliers.astype(np.float32))


def line(*, seed: int = 0, num_points: int = 200) -> Problem:
    """Two clusters on the line, and outliers on both sides."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, num_points)
    points = np.where(labels, 2.0, -2.0) + rng.normal(0, 0.4, num_points)
    outliers = rng.choice([-1.0, 1.0], num_points) * rng.uniform(5.0, 7.0, num_points)
    return Problem(points[:, None].astype(np.float32), labels.astype(np.int32), outliers[:, None].astype(np.float32))


def train(problem: Problem, method_name: str, *, seed: int = 0, num_steps: int = _STEPS) -> Trained:
    """Trains a method with the library's own step and losses; points are images of one row."""
    method = methods.get(method_name)
    model = models.make_classifier("mlp", method.head, num_classes=2, widths=(64, 64))
    images, outliers = _images(problem.points), _images(problem.outliers)
    settings = Settings(
        method, Numbers(num_steps, "adam", learning_rate=1e-2, weight_decay=1e-4), batch_size=_BATCH, seed=seed
    )
    (stage,) = stages(model, settings, num_images=_BATCH)
    state = stage.init_state(loop.init_variables(model, images.shape[1:], key=jax.random.key(seed)))
    state = _run(
        state,
        (jnp.asarray(images), jnp.asarray(problem.labels), jnp.asarray(outliers) if method.uses_outliers else None),
        jax.random.key(seed + 1),
        stage.hyper,
        task=stage.task,
        step=stage.step,
        num_steps=num_steps,
    )
    return Trained(method_name, model, jax.device_get(state.variables))


def _images(points: np.ndarray) -> np.ndarray:
    return points[:, None, :, None].astype(np.float32)


def _run_steps(
    state: Any, data: Any, key: Any, hyper: steps.Hyperparameters, *, task: steps.Task, step: Any, num_steps: int
) -> Any:
    """Many steps as one compiled call; `training.run_steps` takes uint8 images, and points are not."""
    images, labels, outliers = data

    def body(state: Any, step_key: Any) -> Any:
        rows_key, ood_key, update_key = jax.random.split(step_key, 3)
        rows = jax.random.randint(rows_key, (_BATCH,), 0, len(images))
        ood = None if outliers is None else outliers[jax.random.randint(ood_key, (_BATCH,), 0, len(outliers))]
        state, _ = step(state, steps.Batch(images[rows], labels[rows], ood), update_key, task=task, hyper=hyper)
        return state, None

    return jax.lax.scan(body, state, jax.random.split(key, num_steps))[0]


_run = jax.jit(_run_steps, static_argnames=("task", "step", "num_steps"))
