"""Fitting a classifier: what `api.fit` and the commands have in common, from first weights to last."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax.errors import FlaxError
from jax.sharding import Mesh

from preload_jax import digests
from preload_jax.devices import forward
from preload_jax.devices.variables import inputs_of, plain, require_hashable, require_own
from preload_jax.errors import UserError, reason
from preload_jax.methods import Method
from preload_jax.models import CCUHead, Classifier, LaplaceHead, RGPRHead
from preload_jax.models.mixtures import EnsembleHead
from preload_jax.training import data as training_data
from preload_jax.training import memory, run, stage, starting
from preload_jax.training.data import TrainingData
from preload_jax.training.iterables import Batches
from preload_jax.training.prepared import prepared
from preload_jax.training.run import Callbacks, Store
from preload_jax.training.stage import Settings, Stage

# Steps of one compiled call.  XLA's CPU backend runs convolutions inside a compiled loop many times slower, so networks
# that have any take one step a call there.
_STEPS_PER_CALL = 10_000
_STEPS_PER_CALL_ON_CPU = 200
# Training images that the network is asked about at the end.
LOOKED_AT = 256
# Of a digest.
_DIGITS = 16

Variables = Mapping[str, Any]


def fit(
    model: Classifier,
    settings: Settings,
    *,
    image_shape: tuple[int, ...],
    num_images: int,
    load_data: Callable[[], TrainingData | Batches],
    variables: Variables | None = None,
    streamed: Sequence[tuple[int, ...]] = (),
    num_stages: int | None = None,
    store: Store | None = None,
    mesh: Mesh | None = None,
    callbacks: Callbacks = Callbacks(),  # noqa: B008
    identity: Mapping[str, Any] | None = None,
    checked: bool = False,
) -> dict[str, Any]:
    """Trains a classifier by a method, from where the store left it, and returns its variables.

    Args:
        model: in training precision.
        settings: method and numbers.
        image_shape: of one training image.
        num_images: how many there are.
        load_data: gives the images, when the first step needs them.
        variables: where to start; None: random weights.  A method that fine-tunes needs them.
        streamed: shapes, in bytes, of the inputs that calls may stream from host memory; empty where all are on the
            device.
        num_stages: only so many of the method's stages.
        store, mesh, callbacks, identity: see `run.train`; the variables given belong to the identity.
        checked: whether `check_start` has been asked, which traces the network.

    Raises:
        UserError: when method, network, start and data do not belong together, or the stored training is another.
        loop.NonFiniteLossError: when the loss becomes NaN or infinite.
    """
    if not checked:
        check_network(model, settings.method, image_shape)
    load_data = functools.cache(load_data)
    planned = plan_stages(model, settings, image_shape=image_shape, num_images=num_images, streamed=streamed)
    if num_stages is None:  # A first stage alone trains the OOD class, which needs no gradient of the backbone's.
        _check_gradient(model, image_shape)
    started = starting.variables_of(model, settings, image_shape, variables)
    forward.require_rows_alone(model, started, image_shape)
    if variables is not None and store is not None:
        # A training that goes on never looks at them again.
        identity = {**(identity or {}), "the starting network": digests.of_tree(plain(variables))[:_DIGITS]}
    return run.train(
        planned[:num_stages],
        started,
        load_data=load_data,
        key=stage.keys(settings.seed)[2],
        store=store,
        mesh=mesh,
        callbacks=callbacks,
        identity=identity,
        prepare=functools.partial(prepared, model, settings, variables or {}),
    )


def plan_stages(
    model: Classifier,
    settings: Settings,
    *,
    image_shape: tuple[int, ...],
    num_images: int,
    streamed: Sequence[tuple[int, ...]] = (),
) -> Sequence[Stage]:
    """The stages, and how each is cut into compiled calls: by the network, the platform and the numbers alone."""
    per_call = _STEPS_PER_CALL
    if jax.default_backend() == "cpu":
        per_call = 1 if has_convolutions(model, image_shape) else _STEPS_PER_CALL_ON_CPU
    if streamed:
        per_call = min(per_call, training_data.steps_per_chunk(settings.batch_size, *streamed))
    return stage.stages(model, settings, num_images=num_images, steps_per_call=per_call)


def has_convolutions(model: Classifier, image_shape: tuple[int, ...]) -> bool:
    """Whether the network convolves anywhere, told from its jaxpr."""
    return "conv_general_dilated" in str(memory.forward_jaxpr(model, image_shape))


def check_start(
    model: Classifier, settings: Settings, image_shape: tuple[int, ...], variables: Variables | None
) -> None:
    """Raises the UserError of `fit` where network, method, images and starting variables do not belong together."""
    check_network(model, settings.method, image_shape)
    if variables is not None:
        starting.require(model, settings, image_shape, variables)


def check_network(model: Classifier, method: Method, image_shape: tuple[int, ...]) -> None:
    """Raises a UserError unless the method trains the network's head, on features of images of the shape."""
    check_head(model, method)
    require_hashable(model)
    check_features(model, image_shape)


def check_head(model: Classifier, method: Method) -> None:
    """Raises a UserError unless the network's head is the kind that the method trains."""
    if isinstance(model.head, EnsembleHead):
        raise UserError("the network is an ensemble; train each of its networks, and then join them (models.ensemble)")
    has = head_kind(model)
    if has is not None and has != method.head:
        names = {"linear": "a linear head", "none_class": "a none-class head", "square_logit": "a square-logit head"}
        names |= {"laplace": "a Laplace head", "rgpr": "an RGPR head", "ccu": "a CCU head"}
        raise UserError(
            f"{method.name} trains {names[method.head]}, the network has {names[has]};"
            f" make it with make_classifier(..., {method.head!r}), or choose a method for its head"
        )


def head_kind(model: Classifier) -> str | None:
    """A row's `head`, such as "linear"; None for a head that is not the library's."""
    from preload_jax.models import LinearHead, SquareLogitHead

    if isinstance(model.head, LaplaceHead):
        return "rgpr" if isinstance(model.head, RGPRHead) else "laplace"
    if isinstance(model.head, CCUHead):
        return "ccu"
    if isinstance(model.head, SquareLogitHead):
        return "square_logit"
    if isinstance(model.head, LinearHead):
        return "none_class" if model.head.none_class else "linear"
    return None


def check_features(model: Classifier, image_shape: tuple[int, ...]) -> None:
    """Raises a UserError unless the backbone makes one feature vector of each image, of collections that are known."""
    try:
        variables, images = _shapes(model, image_shape)
    except TypeError as error:  # Such as of a backbone that returns a dictionary.
        raise UserError(
            f"the network does not take training images of shape {list(image_shape)}: {reason(error)}"
        ) from None
    others = sorted(set(variables) - {"params", "batch_stats"})
    if others:
        raise UserError(
            f"the network keeps variables in {', '.join(others)}; training knows params and batch_stats alone: train it"
            " in a loop of your own"
        )
    _check_trains(model, variables, images)
    try:
        found = jax.eval_shape(lambda v, x: model.apply(v, x, features=True)[1], variables, images).shape
    except Exception:
        require_own(model, variables, image_shape)  # It says why.
        raise
    if len(found) != 2 or found[0] != images.shape[0]:
        raise UserError(
            f"the backbone makes features of shape {list(found)} of {images.shape[0]} images; expected [n, d]: pool or"
            " flatten them"
        )


def _check_trains(model: Classifier, variables: Variables, images: Any) -> None:
    """Raises a UserError unless the network runs in training mode with the variables that it has outside of it."""

    def step(given: Variables, x: Any) -> Any:
        return model.apply(given, x, train=True, rngs={"dropout": jax.random.key(0)}, mutable=["batch_stats"])

    try:
        jax.eval_shape(step, variables, images)
    except FlaxError as error:
        raise UserError(
            "the network does not run in training mode with what it has in evaluation, and dropout's random numbers"
            f" ({str(error).split(' (http')[0]}); layers of training alone, or other random numbers: train it in a loop"
            " of your own"
        ) from None


def _check_gradient(model: Classifier, image_shape: tuple[int, ...]) -> None:
    """Raises a UserError where the logits cannot be differentiated by the parameters; nothing is computed."""

    def loss(params: Any, others: Variables, x: Any) -> Any:
        rngs = {"dropout": jax.random.key(0)}
        return model.apply({**others, "params": params}, x, train=True, rngs=rngs, mutable=["batch_stats"])[0].sum()

    variables, images = _shapes(model, image_shape)
    try:
        jax.eval_shape(jax.grad(loss), variables.get("params", {}), variables, images)
    except (TypeError, ValueError, NotImplementedError) as error:  # JAX's, of lax.while_loop among others.
        raise UserError(
            f"the network has no gradient by its parameters ({reason(error)}); use lax.scan or a fori_loop of a fixed"
            " number of steps in place of lax.while_loop, and floating-point parameters"
        ) from None


def _shapes(model: Classifier, image_shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Of the variables and of two images; nothing is computed."""
    images = inputs_of(model, image_shape, count=2)
    return jax.eval_shape(model.init, jax.random.key(0), images), images


def warn_if_all_ood(
    model: Classifier,
    variables: Variables,
    images: Any,
    *,
    warn: Callable[[str], None],
    batch_size: int | None = None,
) -> None:
    """Warns where a trained network calls most of its own training images OOD.

    Args:
        model, variables: the network.
        images: to train on, NumPy or JAX; `LOOKED_AT` of them are asked about.
        warn: is told.
        batch_size: of the compiled call; None: as many as are asked about.
    """
    if head_kind(model) not in ("none_class", "square_logit"):
        return
    asked = training_data.some_of(images, LOOKED_AT)
    logits, _ = forward.predict(model, dict(variables), asked, batch_size=batch_size or len(asked))
    share = float(np.mean(logits.argmax(axis=1) == logits.shape[1] - 1))
    if share > 0.5:
        usual = getattr(model.head, "initial_scale", "inverse_width") == "inverse_width"
        lower = "" if usual else ' start w\' lower (initial_scale="inverse_width"),'
        warn(
            f"training ended with {100 * share:.0f} % of its own training images called OOD. Train longer,{lower} give"
            " the OOD class a smaller ood_weight, or look at the scale of the images, which [0, 1] is made for"
        )
