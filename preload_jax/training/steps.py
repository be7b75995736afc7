"""One training step: what it acts on, and the plain gradient step that most methods use.

A step is `f(state, batch, key, *, task, hyper)` → (state, metrics); methods with a step of their own (DOE) have the
same signature.  Under `jax.pmap` or `jax.shard_map` give the task an `axis_name`, over which gradients and BN
statistics are averaged; under plain jit a batch that is sharded over devices needs none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Int, Num

from preload_jax.losses import Number
from preload_jax.models import Classifier
from preload_jax.training import optimizers

TRAINABLE = ("all", "ood_head")


class Hyperparameters(NamedTuple):
    """The numbers of a stage; traced, so that another value needs no new compilation.

    Attributes:
        learning_rate: at the first step; it falls to 0 along a cosine.
        weight_decay: coupled, on every trained parameter.
        objective: what the objective takes by name: `ood_weight`, `margin_in`, …
        perturbation_decay: β of DOE's averaged perturbation.
        own: what a step of the method's own takes by name: `mixup_alpha`, …
    """

    learning_rate: Number = 0.1
    weight_decay: Number = 5e-4
    objective: dict[str, Number] = {}  # noqa: RUF012  (never written to)
    perturbation_decay: Number = 0.6
    own: dict[str, Number] = {}  # noqa: RUF012


class Batch(NamedTuple):
    """Inputs [n, …] as the network takes them (images in [0, 1]), labels [n], outliers [m, …] likewise or None."""

    images: Num[Array, "n ..."]
    labels: Int[Array, "n"]
    outliers: Num[Array, "m ..."] | None


@struct.dataclass
class TrainState:
    """Everything that training changes, as one pytree.

    Attributes:
        step: steps taken in this stage, int32 [].
        params: the model's parameters.
        batch_stats: its BN statistics.
        opt_state: the optimiser's moments, of the trainable parameters alone.
        memory: what a method carries from step to step beside that (DOE's perturbation); empty for the others.
    """

    # Unannotated by shape: a pytree is also a container for other things, such as shardings.
    step: Any
    params: Any
    batch_stats: Any
    opt_state: Any
    memory: Any

    @property
    def variables(self) -> dict[str, Any]:
        """The model's variables, as `model.apply` takes them."""
        return {"params": self.params, "batch_stats": self.batch_stats}


@dataclass(frozen=True)
class Task:
    """The static part of a stage: everything that, changed, needs another compilation.

    Attributes:
        model: the classifier.
        objective: one of `losses`' combined objectives.
        optimizer: an `Optimizer`, whose learning rate falls to 0 along a cosine; or any Optax transformation, which
            brings its own.
        total_steps: the stage's length, over which the cosine falls.
        trainable: "all", or "ood_head": w' and b alone, features and BN statistics frozen (BN in evaluation mode).
        adversarial_steps: of the search for worse OOD images (ACET).
        axis_name: of a `jax.pmap` or `jax.shard_map`; None under plain jit.
    """

    model: Classifier
    objective: Callable[..., Array]
    optimizer: optimizers.Optimizer | optax.GradientTransformation
    total_steps: int
    trainable: str = "all"
    adversarial_steps: int = 0
    axis_name: str | None = None

    def __post_init__(self) -> None:
        if self.trainable not in TRAINABLE:
            raise ValueError(f"unknown trainable part {self.trainable!r}; expected one of {list(TRAINABLE)}")
        if self.total_steps < 1:
            raise ValueError(f"total_steps must be at least 1, got {self.total_steps}")


def init_state(
    variables: Mapping[str, Any], *, task: Task, init_memory: Callable[[Any], Any] = lambda params: {}
) -> TrainState:
    """The state at a stage's first step: the given variables, fresh moments, the method's own memory.

    Variables of a network without batch normalisation may lack "batch_stats".
    """
    trained = select(variables["params"], task.trainable)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        # Copies: the state is donated to the compiled call, the caller's variables must survive it.
        params=jax.tree.map(jnp.array, variables["params"]),
        batch_stats=jax.tree.map(jnp.array, variables.get("batch_stats", {})),
        opt_state=optimizers.init(task.optimizer, trained),
        memory=init_memory(trained),
    )


class Forward(NamedTuple):
    """One concatenated forward pass: logits of both halves and the BN statistics after it."""

    logits_in: Array
    logits_ood: Array | None
    batch_stats: Any


def forward(params: Any, batch_stats: Any, batch: Batch, key: Array, *, model: Classifier, train: bool) -> Forward:
    """Logits of the in-domain and the OOD images from one pass over both, so that BN sees both."""
    images = batch.images if batch.outliers is None else _join(batch.images, batch.outliers)
    variables = {"params": params, "batch_stats": batch_stats}
    # `train` is BN's and dropout's mode; in evaluation mode nothing is mutable and the key is unused.
    if train:
        logits, updates = model.apply(variables, images, train=True, rngs={"dropout": key}, mutable=["batch_stats"])
        batch_stats = updates.get("batch_stats", {})
    else:
        logits = model.apply(variables, images)
    if batch.outliers is None:
        return Forward(logits, None, batch_stats)
    return Forward(*_part(logits, len(batch.images)), batch_stats)


def _join(images: Array, outliers: Array) -> Array:
    """Both in one array: in turn where they are equally many, else one after the other.

    In turn, each device's share of the whole is its shares of the two: devices have no images to exchange.
    """
    if len(images) != len(outliers):
        return jnp.concatenate([images, outliers])
    return jnp.stack([images, outliers], axis=1).reshape(-1, *images.shape[1:])


def _part(logits: Array, n: int) -> tuple[Array, Array]:
    """The logits of the n images and those of the outliers, joined by `_join`."""
    if len(logits) != 2 * n:
        return logits[:n], logits[n:]
    both = logits.reshape(n, 2, -1)
    return both[:, 0], both[:, 1]


def select(params: Any, trainable: str) -> Any:
    """The part of the parameters that is trained."""
    return params if trainable == "all" else params["head"]["ood"]


def with_trained(params: Any, trained: Any, trainable: str) -> Any:
    """The parameters with their trained part replaced."""
    return trained if trainable == "all" else {**params, "head": {**params["head"], "ood": trained}}


def gradient_step(
    state: TrainState, batch: Batch, key: Array, *, task: Task, hyper: Hyperparameters
) -> tuple[TrainState, dict[str, Array]]:
    """One optimiser step down the gradient of the task's objective.

    Example of a step that you spread over devices yourself, with `axis_name`:
        >>> import jax, jax.numpy as jnp
        >>> from jax.sharding import Mesh, PartitionSpec as P
        >>> from preload_jax import losses, make_classifier
        >>> from preload_jax.training import loop, optimizers, steps
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,))
        >>> sgd, numbers = optimizers.Optimizer("sgd"), steps.Hyperparameters(learning_rate=0.1)
        >>> task = steps.Task(model, losses.extra_class, sgd, total_steps=10, axis_name="devices")
        >>> state = steps.init_state(loop.init_variables(model, (4, 4, 1), key=jax.random.key(0)), task=task)
        >>> images = jax.random.uniform(jax.random.key(1), (2 * jax.device_count(), 4, 4, 1))
        >>> batch = steps.Batch(images, jnp.arange(len(images)) % 3, 1.0 - images)
        >>> def step(state, batch):
        ...     return steps.gradient_step(state, batch, jax.random.key(2), task=task, hyper=numbers)
        >>> devices = Mesh(jax.devices(), ("devices",))
        >>> spread = jax.shard_map(step, mesh=devices, in_specs=(P(), P("devices")), out_specs=P())
        >>> state, metrics = jax.jit(spread)(state, batch)
        >>> int(state.step), metrics["loss"].shape
        (1, ())
    """
    return step_down(state, batch, key, task=task, hyper=hyper, numbers=hyper.objective)


def step_down(
    state: TrainState, batch: Batch, key: Array, *, task: Task, hyper: Hyperparameters, numbers: Mapping[str, Any]
) -> tuple[TrainState, dict[str, Array]]:
    """`gradient_step`, the objective taking these numbers by name."""

    def loss_fn(trained: Any) -> tuple[Array, Forward]:
        params = with_trained(state.params, trained, task.trainable)
        out = forward(params, state.batch_stats, batch, key, model=task.model, train=task.trainable == "all")
        loss = task.objective(out.logits_in, batch.labels, out.logits_ood, **numbers)
        return average(loss, task.axis_name), out

    (loss, out), gradients = jax.value_and_grad(loss_fn, has_aux=True)(select(state.params, task.trainable))
    state = descend(state, gradients, task=task, hyper=hyper)
    state = replace(state, step=state.step + 1, batch_stats=average(out.batch_stats, task.axis_name))
    return state, step_metrics(loss, out.logits_in, batch.labels, axis_name=task.axis_name)


def descend(state: TrainState, gradients: Any, *, task: Task, hyper: Hyperparameters) -> TrainState:
    """One optimiser update at the learning rate of `state.step`, which is left as it is."""
    trained = select(state.params, task.trainable)
    gradients = average(gradients, task.axis_name)
    # Optax's arithmetic mixes types (Adam's count is an integer), which a strict setting of the user's would refuse.
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = optimizers.updates(
            task.optimizer,
            gradients,
            state.opt_state,
            trained,
            weight_decay=hyper.weight_decay,
            learning_rate=optax.cosine_decay_schedule(hyper.learning_rate, task.total_steps)(state.step),
        )
        trained = jax.tree.map(lambda p, u: (p + u).astype(p.dtype), trained, updates)
    # With x64 enabled a weight decay may be float64, which the moments must not become: a scan carries them.
    opt_state = jax.tree.map(lambda new, old: new.astype(old.dtype), opt_state, state.opt_state)
    return replace(state, params=with_trained(state.params, trained, task.trainable), opt_state=opt_state)


def step_metrics(loss: Array, logits_in: Array, labels: Array, *, axis_name: str | None) -> dict[str, Array]:
    """Loss and in-domain training accuracy of one step."""
    accuracy = jnp.mean(jnp.argmax(logits_in, axis=-1).astype(jnp.int32) == labels.astype(jnp.int32))
    return average({"loss": loss, "accuracy": accuracy}, axis_name)


def average(tree: Any, axis_name: str | None) -> Any:
    """The mean over a pmap's or shard_map's devices; the tree itself without one.

    A loss is averaged before its gradient is taken, and the gradient after it: `shard_map` (with `check_vma`) sums the
    devices' gradients of what they all have by itself, `pmap` does not, and so it is the mean under both.
    """
    return tree if axis_name is None else jax.lax.pmean(tree, axis_name)
