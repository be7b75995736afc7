"""Training by the front door: `fit`."""

import contextlib
import re
import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from preload_jax import guarantees, methods
from preload_jax.checks import as_array, check_labels
from preload_jax.devices.sharding import Devices, make_mesh
from preload_jax.errors import UserError
from preload_jax.models import Classifier
from preload_jax.models.classifier import grows
from preload_jax.training import data as training_data
from preload_jax.training import fit as fitting
from preload_jax.training.augment import Augmentations
from preload_jax.training.data import Placement, TrainingData
from preload_jax.training.loop import Report
from preload_jax.training.run import Callbacks, Progress
from preload_jax.training.stage import Numbers, Settings, Stage
from preload_jax.training.store import open_store

Variables = Mapping[str, Any]
# Of either library; both are used as they are.
AnyArray = np.ndarray | jax.Array

# Random rays along which a network of the user's own is looked at.
_RAYS_LOOKED_AT = 16
# Of the stage in which the OOD class alone is trained.
_ATTACHED = Numbers(learning_rate=1e-1, weight_decay=0.0)
# The address in a function's repr, which is another in each process.
_FUNCTION = re.compile(r"<function [^>]*>")


def fit(
    model: Classifier,
    images: AnyArray,
    labels: AnyArray,
    outliers: AnyArray | None = None,
    *,
    method: str | None = None,
    variables: Variables | None = None,
    epochs: int = 10,
    batch_size: int = 128,
    optimizer: str | optax.GradientTransformation = "adam",
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    ood_weight: float | None = None,
    margin_in: float | None = None,
    margin_ood: float | None = None,
    warmup_epochs: int | None = None,
    ood_head: Numbers | None = None,
    augmentations: Augmentations = Augmentations(),  # noqa: B008
    seed: int = 0,
    devices: Devices = 1,
    data_placement: Placement = "auto",
    checkpoint_dir: str | Path | None = None,
    on_report: Callable[[Report], None] | None = None,
) -> dict[str, Any]:
    """Trains a classifier and returns its variables.

    With PreLoad's head the objective is ½ (CE_in + λ CE_ood) over K + 1 classes (section 3 of the paper, see
    `losses.extra_class`); the learning rate falls to 0 along a cosine.

    Args:
        model: a `Classifier`: any Linen backbone `f(images, *, train)` → features [n, d], and a head.
        images, labels: in-domain, uint8 [n, h, w, c] and integer [n] in 0 … K − 1.
        outliers: auxiliary OOD images, uint8 [m, h, w, c]; unlabelled images of anything else.
        method: one of `methods.METHODS`, whose head must be the network's; None: "preload" for `SquareLogitHead`, "nc"
            for a none-class head, else "oe" with outliers and "standard" without.
        variables: the weights to start from; None: random weights.  The methods that fine-tune (`*_ft`) need the
            variables of a network trained with a linear head.  "preload_ft" then has two stages: first the OOD class
            alone, then everything.
        epochs, batch_size: passes over the images, and images in each step (with as many outliers).
        optimizer: "adam" or "sgd" (Nesterov), both with coupled weight decay and a cosine schedule to 0; or any Optax
            transformation, which brings its own learning rate and weight decay.
        learning_rate, weight_decay: 1e-3 at the first step, and 5e-4.
        ood_weight: λ; None: the method's, which is 0.5 for "oe" and "oe_ft", 0.1 for "energy_ft" and else 1.
        margin_in, margin_ood: only for "energy_ft", which needs both.
        warmup_epochs: only for "doe_ft": the epochs before its perturbation begins; None: half of the epochs.
        ood_head: only for "preload_ft": the numbers of its first stage, a `Numbers`.
        augmentations: made on the device, see `augment.Augmentations`.
        seed: fixes everything random.
        devices: how many devices share each batch, or "all"; see `sharding.make_mesh`.  Their number must divide the
            batch.
        data_placement: "device" keeps all images on the device.  "host" streams them from the given arrays, which may
            be memory-mapped.  "auto" chooses, see `training_data.place`.
        checkpoint_dir: a folder in which states are kept, after each epoch and every 20 seconds.  The same call goes on
            from the newest one and gives the same bits, on the same machine, as one that was never stopped.
        on_report: called after each epoch.  Raise an exception in it to stop the training.

    Returns:
        {"params", "batch_stats"}.

    Raises:
        UserError: if data, network and method do not fit, a number makes no sense, or the folder holds the states of
            another training.
        training.loop.NonFiniteLossError: when the loss becomes NaN or infinite.

    Examples:
        >>> import numpy as np
        >>> from preload_jax import fit, make_classifier, predict
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 2, 64)
        >>> levels = np.array([60, 190])[labels][:, None, None, None]
        >>> images = (levels + rng.integers(-20, 20, (64, 4, 4, 1))).astype(np.uint8)
        >>> outliers = rng.integers(0, 256, (64, 4, 4, 1), dtype=np.uint8)
        >>> model = make_classifier("mlp", "square_logit", num_classes=2, widths=(16,))
        >>> variables = fit(model, images, labels, outliers, epochs=40, batch_size=32, learning_rate=1e-2)
        >>> float((predict(model, variables, images).label == labels).mean())
        1.0
        >>> bool(predict(model, variables, 1e4 * images.astype(np.float32)).is_ood.all())
        True
    """
    row = methods.get(method or _usual_method(model, outliers))
    _check_options(row, margin_in=margin_in, margin_ood=margin_ood, warmup_epochs=warmup_epochs, ood_head=ood_head)
    settings = Settings(
        row,
        _numbers(row, epochs, optimizer, learning_rate, weight_decay, ood_weight),
        ood_head=_ATTACHED if ood_head is None else ood_head,
        batch_size=batch_size,
        margins=(margin_in or 0.0, margin_ood or 0.0),
        warmup_epochs=warmup_epochs,
        augmentations=augmentations,
        seed=seed,
    )
    return fit_by(
        model, settings, images, labels, outliers, variables, devices, data_placement, checkpoint_dir, on_report
    )


def _check_options(row: methods.Method, **given: Any) -> None:
    """Raises a UserError for a number of another method, and for a method that trains nothing."""
    if not row.stages:
        raise UserError(
            f'{row.name} trains nothing: fit(..., method="standard"), and score with detectors.fit({row.name!r}, …)'
        )
    for name, value in given.items():
        of = methods.with_option("init" if name == "ood_head" else name)
        if value is not None and row.name not in of:
            raise UserError(f"{name} is for {' and '.join(of)}, the method is {row.name}; leave it out")
        if name.startswith("margin") and value is None and row.name in of:
            raise UserError(
                f"{row.name} needs margin_in and margin_ood: energies between those of in-domain images and of outliers"
            )


def _numbers(
    row: methods.Method,
    epochs: int,
    optimizer: str | optax.GradientTransformation,
    learning_rate: float | None,
    weight_decay: float | None,
    ood_weight: float | None,
) -> Numbers:
    if not isinstance(optimizer, str) and (learning_rate, weight_decay) != (None, None):
        raise UserError("an Optax transformation has its own learning rate and weight decay; leave out those given")
    if ood_weight is not None and not row.uses_outliers:
        raise UserError(f"ood_weight is λ of the outliers, and {row.name} uses none; leave it out")
    return Numbers(
        epochs,
        optimizer,
        1e-3 if learning_rate is None else learning_rate,
        5e-4 if weight_decay is None else weight_decay,
        row.ood_weight if ood_weight is None else ood_weight,
    )


def fit_by(
    model: Classifier,
    settings: Settings,
    images: AnyArray,
    labels: AnyArray,
    outliers: AnyArray | None,
    variables: Variables | None,
    devices: Devices = 1,
    data_placement: Placement = "auto",
    checkpoint_dir: str | Path | None = None,
    on_report: Callable[[Report], None] | None = None,
    num_stages: int | None = None,
) -> dict[str, Any]:
    """`fit` and `attach`, after their numbers are put together: looks at the arrays, opens the store and trains."""
    row = settings.method
    if row.uses_outliers and outliers is None:
        raise UserError(f"{row.name} trains with auxiliary OOD images; give outliers, uint8 [m, h, w, channels]")
    mesh = make_mesh(devices)
    data = _training_data(images, labels, outliers if row.uses_outliers else None)
    placed = training_data.place(data, data_placement, mesh=mesh)
    shapes = [array.shape[1:] for array in (data.images, data.outliers) if array is not None]
    with contextlib.ExitStack() as stack:
        store = None
        if checkpoint_dir is not None:
            store = stack.enter_context(open_store(checkpoint_dir, on_damaged=fitting.warn_user))
        trained = fitting.fit(
            model,
            settings,
            image_shape=data.images.shape[1:],
            num_images=len(data.images),
            load_data=lambda: placed,
            variables=variables,
            streamed=shapes if placed.on_host else (),
            num_stages=num_stages,
            store=store,
            mesh=mesh,
            callbacks=Callbacks(watch=_each_epoch(on_report), differs=fitting.warn_user),
            identity=None if store is None else _identity(model, settings, data),
        )
    fitting.warn_if_all_ood(model, trained, data.images, warn=fitting.warn_user)
    if fitting.head_kind(model) == "square_logit":
        _warn_if_bounded(model, trained, data.images.shape[1:])
    return trained


def _warn_if_bounded(model: Classifier, variables: Variables, shape: tuple[int, ...]) -> None:
    """Embeddings that stay bounded along every ray leave the OOD class nothing to grow with: a Python warning says so.

    Of most of the library's own networks it is known that they do not.
    """
    if grows(model.backbone):
        return
    directions = np.random.default_rng(0).normal(size=(_RAYS_LOOKED_AT, *shape))
    try:
        found = guarantees.embedding_behaviour(model, variables, directions, batch_size=_RAYS_LOOKED_AT)
    except UserError:  # An operation without a rule: nothing is known, so nothing is said.
        return
    if found.always_bounded:
        warnings.warn(
            "the network's embeddings stay bounded however far an input is, as after a layer norm: the OOD class does"
            " not win far away, and only the bound on the largest confidence holds. models.WithDistance adds a feature"
            " that grows with the distance from the training data",
            UserWarning,
            stacklevel=4,
        )


def _each_epoch(on_report: Callable[[Report], None] | None) -> Any:
    @contextlib.contextmanager
    def watch(stage: Stage, done: int) -> Any:
        def tell(progress: Progress) -> None:
            if progress.report.ends_epoch and on_report is not None:
                on_report(progress.report)

        yield tell

    return watch


def _identity(model: Classifier, settings: Settings, data: TrainingData) -> dict[str, Any]:
    """What a stored training must have in common with the one that goes on with it; for JSON."""
    return {
        "model": repr(model),
        "settings": _FUNCTION.sub("<function>", repr(settings)),
        "images": _fingerprint(data.images),
        "labels": zlib.crc32(np.ascontiguousarray(data.labels).tobytes()),
        "outliers": None if data.outliers is None else _fingerprint(data.outliers),
    }


def _fingerprint(images: np.ndarray) -> list[int]:
    """The shape, and a checksum of some images all over the array: it may be larger than memory."""
    some = np.ascontiguousarray(images[:: max(1, len(images) // 64)])
    return [*images.shape, zlib.crc32(some.tobytes())]


def _training_data(images: Any, labels: Any, outliers: Any) -> TrainingData:
    """The arrays as training takes them, after a look at their types (`loop.check_data` looks at the rest)."""
    images = as_array(images, name="training images")
    outliers = None if outliers is None else as_array(outliers, name="training outliers")
    for name, given in (("images", images), ("outliers", outliers)):
        if given is not None and (given.ndim != 4 or given.dtype != np.uint8):
            raise UserError(
                f"training {name} are {given.dtype} {list(given.shape)}; expected uint8 [n, h, w, channels] in [0, 255]"
            )
    numbers = check_labels(labels)
    return TrainingData(images, numbers.astype(np.int32), outliers)


def _usual_method(model: Classifier, outliers: AnyArray | None) -> str:
    kind = fitting.head_kind(model) if isinstance(model, Classifier) else None
    if not isinstance(model, Classifier):
        raise UserError(f"the model is a {type(model).__name__}; expected a Classifier, such as make_classifier makes")
    if kind in ("square_logit", "none_class"):
        return "preload" if kind == "square_logit" else "nc"
    return "standard" if outliers is None else "oe"
