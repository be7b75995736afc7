"""Training: many steps as one compiled call, on one device or many, over data on the device or streamed to it.

`run_steps` is the compiled call.  `Plan` says how a stage is cut into such calls, and `fit_stage` runs them and hands a
report to the caller after each, who shows progress, saves and stops as it likes.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from preload_jax.devices import compilation, programs, sharding
from preload_jax.devices.variables import inputs_of, plain
from preload_jax.errors import UserError
from preload_jax.models import Classifier
from preload_jax.training import batches, frozen
from preload_jax.training import data as training_data
from preload_jax.training.augment import Augmentations
from preload_jax.training.data import Chunk, TrainingData
from preload_jax.training.iterables import Batches
from preload_jax.training.plan import Plan
from preload_jax.training.steps import Hyperparameters, Task, TrainState, gradient_step


@dataclass(frozen=True)
class Report:
    """What one compiled call did.

    Attributes:
        state: after it; consumed by the next call, so copy what must outlive that.
        step: steps taken in the stage so far.
        epoch: the epoch (from 0) that the call belongs to.
        losses, accuracies: of each step of the call, [steps].
        ends_epoch: whether the epoch is complete (or the stage is).
        place: in the data, after the call, which JSON can keep; None where they do not say.
        validation: of `api.fit` with validation images, at the end of an epoch: their accuracy, ECE, Brier score,
            log-likelihood and MMC.
    """

    state: TrainState
    step: int
    epoch: int
    losses: np.ndarray
    accuracies: np.ndarray
    ends_epoch: bool
    place: Any = None
    validation: Mapping[str, float] | None = None


class NonFiniteLossError(RuntimeError):
    """The loss became NaN or infinite, or what a step made of the parameters did.

    Attributes:
        step: the first such step, from 0.
        last_finite: the last finite loss; None when there was none.
        learning_rate: at that step.
    """

    def __init__(self, step: int, last_finite: float | None, learning_rate: float, *, what: str = "loss is"):
        self.step, self.last_finite, self.learning_rate = step, last_finite, learning_rate
        last = (
            "there was no finite loss before it" if last_finite is None else f"the last finite loss was {last_finite:g}"
        )
        super().__init__(
            f"the {what} not finite at step {step}; {last}, the learning rate {learning_rate:.3g}."
            " Lower the learning rate, or look at the images for values that are not finite"
        )


def init_variables(model: Classifier, image_shape: tuple[int, ...], *, key: Array) -> dict[str, Any]:
    """Randomly initialised {"params", "batch_stats"} of a classifier for inputs of that shape, such as (h, w, c)."""
    images = jnp.zeros_like(inputs_of(model, image_shape))
    # Within another program, which may ask for shapes alone, it is a part of that.
    init = model.init if isinstance(images, jax.core.Tracer) else compilation.jit(model.init, rare=True)
    variables = plain(init(key, images))
    return {"params": variables["params"], "batch_stats": variables.get("batch_stats", {})}


def add_ood_head(variables: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any]:
    """A network with a linear head → the same network with the OOD class of fresh variables beside it (PreLoad-FT)."""
    head = {**variables["params"].get("head", {}), "ood": fresh["params"]["head"]["ood"]}
    # A distance's mean and scale are new as well; other statistics that are missing are missed, not made up.
    made = fresh["batch_stats"].get("backbone", {})
    distance = {name: value for name, value in made.items() if name.startswith("distance_")}
    stats = dict(variables["batch_stats"])
    if distance and isinstance(stats.get("backbone", {}), Mapping):
        stats["backbone"] = {**distance, **stats.get("backbone", {})}
    return {**variables, "params": {**variables["params"], "head": head}, "batch_stats": stats}


def fit_stage(
    state: TrainState,
    data: TrainingData | Batches,
    *,
    key: Array,
    task: Task,
    step: Callable[..., Any],
    hyper: Hyperparameters,
    plan: Plan,
    augmentations: Augmentations = Augmentations(),  # noqa: B008
    last_loss: float | None = None,
    mesh: Mesh | None = None,
    before_features: Callable[[int, int], None] = lambda done, total: None,
    place: Any = None,
) -> Generator[Report, None, None]:
    """Runs a stage from `state.step` to its end, yielding a report after each compiled call.

    Everything random depends on `key` and the step alone: a stage continued from a saved state replays what it would
    have done, on any number of devices.  `last_loss` is the loss before the first step, for the error's message.
    Where a frozen network's features are computed once, before the first step, `before_features` is told before each
    batch of how many of all images they are known; it may raise.  `place` is what the last report before `state.step`
    had: batches from outside go on there without being read again.  Data of NumPy arrays are streamed by a thread,
    which ends with this iterator: close it (`contextlib.closing`) where you leave it early.

    Raises:
        UserError: when the data do not fit each other or the network, or the batch the devices.
        NonFiniteLossError: at the first call with a loss, or at whose end a parameter, is not finite, before it is
            reported.
    """
    if isinstance(data, TrainingData):
        check_data(data, num_logits=_num_logits(state.params))
    sharding.check_batch_size(plan.batch_size, mesh)
    state = sharding.replicate(state, mesh)
    done, last_finite = int(state.step), last_loss
    # Batches from outside may change from epoch to epoch: their features are not kept.
    if (
        isinstance(data, TrainingData)
        and done < plan.total_steps
        and frozen.saves_work(state, data, task=task, step=step, plan=plan, augmentations=augmentations)
    ):
        data, task = frozen.head_only(state, data, task=task, plan=plan, mesh=mesh, before_batch=before_features)
        augmentations = Augmentations()
    now = programs.key_of_training(task.model)
    with contextlib.closing(_sources(data, plan, start=done, key=key, mesh=mesh, state=state, place=place)) as sources:
        while num_steps := plan.steps_from(done):
            epoch = done // plan.steps_per_epoch
            given, place = next(sources)
            state, metrics = run_steps(
                state,
                given,
                key,
                hyper,
                task=task,
                # Here and not in the step: XLA's CPU compiler runs convolutions inside a condition many times slower.
                step=gradient_step if done < plan.warmup_steps else step,
                num_steps=num_steps,
                batch_size=plan.batch_size,
                augmentations=augmentations,
                mesh=mesh,
                now=now,
            )
            losses, accuracies = np.asarray(metrics["loss"]), np.asarray(metrics["accuracy"])
            _check_finite(losses, bool(metrics["finite"]), done, last_finite, hyper, task)
            done, last_finite = done + num_steps, float(losses[-1])
            ends_epoch = done % plan.steps_per_epoch == 0 or done == plan.total_steps  # The next begins its data anew.
            yield Report(state, done, epoch, losses, accuracies, ends_epoch, None if ends_epoch else place)


def _sources(
    data: TrainingData | Batches,
    plan: Plan,
    *,
    start: int,
    key: Array,
    mesh: Mesh | None,
    state: TrainState,
    place: Any,
) -> Generator[tuple[TrainingData | Chunk, Any], None, None]:
    """What each compiled call takes its images from, and the place after it."""
    if isinstance(data, Batches):
        yield from data.stream(plan, start=start, mesh=mesh, num_logits=_num_logits(state.params), place=place)
    elif data.on_host:
        with contextlib.closing(training_data.stream(data, plan, start=start, key=_keys(key)[0], mesh=mesh)) as chunks:
            yield from ((chunk, None) for chunk in chunks)
    else:
        yield from itertools.repeat((data, None))


def _keys(key: Array) -> tuple[Array, Array]:
    """A stage's keys: of the epochs' orders (two, of images and of outliers), and of the steps."""
    image_key, outlier_key, step_key = jax.random.split(key, 3)
    return jnp.stack([image_key, outlier_key]), step_key


def _check_finite(
    losses: np.ndarray,
    params_are_finite: bool,
    start: int,
    last_finite: float | None,
    hyper: Hyperparameters,
    task: Task,
) -> None:
    bad = np.flatnonzero(~np.isfinite(losses))
    if params_are_finite and not len(bad):
        return
    # Where all losses are finite it is the last update that spoilt the parameters.
    what, first = ("loss is", int(bad[0])) if len(bad) else ("parameters are", len(losses) - 1)
    fraction = (start + first) / task.total_steps
    learning_rate = 0.5 * float(hyper.learning_rate) * (1.0 + math.cos(math.pi * fraction))
    before = losses[: first + (not len(bad))]
    raise NonFiniteLossError(start + first, float(before[-1]) if len(before) else last_finite, learning_rate, what=what)


def check_data(data: TrainingData, *, num_logits: int) -> None:
    """Raises a UserError unless images, labels and outliers fit each other and a network of so many logits."""
    for name, images in (("images", data.images), ("outliers", data.outliers)):
        if images is not None and (images.ndim < 2 or not len(images)):
            raise UserError(
                f"training {name} are {images.dtype} {list(images.shape)}; expected n ≥ 1 of them, [n, …]: uint8 images"
                " [n, h, w, channels], or numbers as the network takes them"
            )
    if data.outliers is not None and data.outliers.ndim != data.images.ndim:
        raise UserError(
            f"training images are {list(data.images.shape)} and outliers {list(data.outliers.shape)}; expected the same"
            " number of axes"
        )
    if data.outliers is not None and data.outliers.dtype != data.images.dtype:
        raise UserError(
            f"training images are {data.images.dtype} and outliers {data.outliers.dtype}; expected one type: uint8 is"
            " divided by 255, other numbers are taken as they are"
        )
    if data.labels.shape != data.images.shape[:1] or not jnp.issubdtype(data.labels.dtype, jnp.integer):
        raise UserError(
            f"labels are {data.labels.dtype} {list(data.labels.shape)}; expected integers, one for each of"
            f" {len(data.images)} images"
        )
    low, high = int(data.labels.min()), int(data.labels.max())
    if low < 0 or high >= num_logits:
        raise UserError(
            f"labels run from {low} to {high}; expected 0 to {num_logits - 1}, for a head of {num_logits} logits"
        )


def _num_logits(params: Any) -> int:
    """Outputs of the linear part of the head."""
    return params["head"]["linear"]["bias"].shape[0]


@partial(
    compilation.jit,
    static_argnames=("task", "step", "num_steps", "batch_size", "augmentations", "mesh", "now"),
    donate_argnames="state",
)
def run_steps(
    state: TrainState,
    data: TrainingData | Chunk,
    key: Array,
    hyper: Hyperparameters,
    *,
    task: Task,
    step: Callable[..., Any],
    num_steps: int,
    batch_size: int,
    augmentations: Augmentations,
    mesh: Mesh | None = None,
    now: str = "",
) -> tuple[TrainState, dict[str, Array]]:
    """`num_steps` steps from `state.step`, within one epoch, as one `lax.scan`.

    Args:
        state: donated.
        data: all images, on the device, or a chunk with those of these steps.
        key: of the stage; shuffles are folded from the epoch, a step's randomness from the step.
        hyper: the stage's numbers.
        task, step: what a step does, see `steps`.
        num_steps: must not cross the end of an epoch.
        batch_size, augmentations: of in-domain images, and again of OOD images.
        mesh: devices that share each batch; all else is on each of them.
        now: of a model with a function in it, a key of what that computes now; the cache alone reads it.

    Returns:
        The state after, and {"loss", "accuracy"} of each step, [num_steps], and "finite": whether all parameters are.
    """
    order_key, step_key = _keys(key)
    first, raw_batch = batches.raw_batches(data, state.step, order_key, batch_size, mesh)

    def body(state: TrainState, i: Array) -> tuple[TrainState, dict[str, Array]]:
        batch_key, update_key = jax.random.split(jax.random.fold_in(step_key, state.step))
        batch = batches.make_batch(batch_key, sharding.constrain(raw_batch(i), mesh, sharding.AXIS), augmentations)
        batch = sharding.constrain(batch, mesh, sharding.AXIS)
        return sharding.constrain(step(state, batch, update_key, task=task, hyper=hyper), mesh)

    if num_steps == 1:
        # No loop around one step: XLA's CPU compiler runs convolutions inside a loop many times slower.
        state, metrics = body(state, first)
        metrics = jax.tree.map(lambda x: x[None], metrics)
    else:
        state, metrics = jax.lax.scan(body, state, first + jnp.arange(num_steps, dtype=first.dtype))
    finite = jnp.all(jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params)]))
    return state, {**metrics, "finite": finite}
