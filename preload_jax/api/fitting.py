"""Training by the front door: `fit`."""

import contextlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from preload_jax import methods
from preload_jax.api import inputs, notices, options
from preload_jax.api.watching import Enough, Watch
from preload_jax.devices import training_range
from preload_jax.devices.sharding import Devices, make_mesh
from preload_jax.errors import UserError, warn_user
from preload_jax.models import Classifier
from preload_jax.models.classifier import require_classifier
from preload_jax.training import data as training_data
from preload_jax.training import fit as fitting
from preload_jax.training.augment import Augmentations
from preload_jax.training.data import Placement, TrainingData
from preload_jax.training.iterables import Batches
from preload_jax.training.loop import Report
from preload_jax.training.run import Callbacks
from preload_jax.training.stage import Numbers, Settings
from preload_jax.training.store import open_store

Variables = Mapping[str, Any]
# Of either library; both are used as they are.
AnyArray = np.ndarray | jax.Array

# Of the stage in which the OOD class alone is trained.
_ATTACHED = Numbers(learning_rate=1e-1, weight_decay=0.0)
# The address in the repr of a function or of an object, which is another in each process.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def fit(
    model: Classifier,
    images: Any,
    labels: Any = None,
    outliers: Any = None,
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
    class_weights: Any = None,
    own: Mapping[str, float | int] | None = None,
    augmentations: Augmentations = Augmentations(),  # noqa: B008
    seed: int = 0,
    devices: Devices = 1,
    data_placement: Placement = "auto",
    checkpoint_dir: str | Path | None = None,
    on_report: Callable[[Report], None] | None = None,
    validation: Any = None,
    patience: int | None = None,
    progress: Any = False,
) -> dict[str, Any]:
    """Trains a classifier and returns its variables.

    With PreLoad's head the objective is ½ (CE_in + λ CE_ood) over K + 1 classes (section 3 of the paper, see
    `losses.extra_class`); the learning rate falls to 0 along a cosine.

    Args:
        model: a `Classifier`: any Linen backbone `f(images, *, train)` → features [n, d], and a head.
        images, labels: in-domain, [n, …] and integer [n] in 0 … K − 1.  Images are uint8 [n, h, w, c], and the network
            sees them divided by 255.  Other inputs, such as normalised images, tables and features, are floating point
            of any rank that the network takes.  A network that takes integers alone, such as tokens, is given them as
            they are.
            Or, without labels here, what yields batches of (images, labels), or dictionaries with "image" and "label",
            again whenever it is iterated: a list, a data loader, or a function that returns an iterable.  Batches come
            in the order in which they are yielded, and are cut to `batch_size`; a thread reads ahead.  One more pass
            before training counts the images, unless it is a loader that says its `batch_size`, as torch's do.
        outliers: auxiliary OOD inputs of the same type, [m, …]; unlabelled, of anything else.  Or batches of them.
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
        class_weights: w of CE_in = Σ w_y ℓ / Σ w_y over each batch, as torch has it: a number above 0 for each class,
            or "balanced" for n / (K n_c) of the class with n_c of the n labels, as scikit-learn has it; that needs the
            labels as an array.  None: all alike.
        own: other numbers of the method's own, by name, such as {"focal_gamma": 2.0}; see `methods.Method.own`.
        augmentations: made on the device, see `augment.Augmentations`.
        seed: fixes everything random.
        devices: how many devices share each batch, or "all"; see `sharding.make_mesh`.  Their number must divide the
            batch.
        data_placement: "device" keeps all images on the device.  "host" streams them from the given arrays, which may
            be memory-mapped.  "auto" chooses, see `training_data.place`.
        checkpoint_dir: a folder in which states are kept: after an epoch, but at most one a second, at the end of each
            stage, and every 20 seconds.  The same call goes on from the newest one and gives the same bits, on the same
            machine, as one that was never stopped.
        on_report: called after each epoch with a `loop.Report`.  Raise an exception in it to stop the training.
        validation: (images, labels), or batches of them, of the training images' type and shape: measured after each
            epoch, see `loop.Report.validation`.
        patience: stops after so many epochs in a row whose log-likelihood on the validation images is not larger than
            the largest before, and returns the variables of that one.  It is counted anew where a training goes on, so
            it does not go with `checkpoint_dir`.
        progress: True shows a bar on the standard error of a terminal or a notebook; False and None show none.

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
    options.check(row, margin_in=margin_in, margin_ood=margin_ood, warmup_epochs=warmup_epochs, ood_head=ood_head)
    settings = Settings(
        row,
        options.numbers(row, epochs, optimizer, learning_rate, weight_decay, ood_weight),
        ood_head=_ATTACHED if ood_head is None else ood_head,
        batch_size=batch_size,
        margins=(margin_in or 0.0, margin_ood or 0.0),
        warmup_epochs=warmup_epochs,
        own=own or {},
        augmentations=augmentations,
        seed=seed,
        class_weights=options.class_weights(class_weights, model, labels),
    )
    trained, _ = fit_by(
        model,
        settings,
        images,
        labels,
        outliers,
        variables,
        devices=devices,
        data_placement=data_placement,
        checkpoint_dir=checkpoint_dir,
        on_report=on_report,
        validation=validation,
        patience=patience,
        progress=progress,
    )
    return trained


def fit_by(
    model: Classifier,
    settings: Settings,
    images: Any,
    labels: Any,
    outliers: Any,
    variables: Variables | None,
    *,
    devices: Devices = 1,
    data_placement: Placement = "auto",
    checkpoint_dir: str | Path | None = None,
    num_stages: int | None = None,
    called: str | None = None,
    before: Callable[[TrainingData | Batches], None] = lambda data: None,
    **watched: Any,
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """`fit` and `attach`, after their numbers are put together: looks at the inputs, opens the store and trains.

    `before` is given the inputs that were looked at, before the first step.

    Returns:
        The variables, and the shape of one input.
    """
    row = settings.method
    if row.uses_outliers and outliers is None:
        raise UserError(
            f"{called or row.name} trains with auxiliary OOD images; give outliers, such as uint8 images [m, h, w,"
            " channels]"
        )
    mesh = make_mesh(devices)
    data = inputs.training_data(
        model,
        images,
        labels,
        outliers if row.uses_outliers else None,
        seed=settings.seed,
        check=lambda shape: fitting.check_start(model, settings, shape, variables),
    )
    placed, num_images, streams = data, getattr(data, "num_images", 0), True
    training_data.check_placement(data_placement)
    if isinstance(data, Batches) and data_placement == "device":
        raise UserError('batches are read from the host as they come; leave out data_placement="device"')
    if isinstance(data, TrainingData):
        placed = training_data.place(data, data_placement, mesh=mesh)
        num_images, streams = len(data.images), placed.on_host
    shape = inputs.shape_of(data)
    watch = Watch(
        model, mesh=mesh, **{"on_report": None, "validation": None, "patience": None, "progress": False, **watched}
    )
    watch.require_fits(data)
    before(data)
    if watch.patience is not None and checkpoint_dir is not None:
        raise UserError("patience is counted anew where a training goes on; leave out patience or checkpoint_dir")
    with contextlib.ExitStack() as stack:
        store = None
        if checkpoint_dir is not None:
            store = stack.enter_context(open_store(checkpoint_dir, on_damaged=warn_user))
        trained = _best(
            watch,
            model,
            settings,
            image_shape=shape,
            num_images=num_images,
            load_data=lambda: placed,
            variables=variables,
            streamed=inputs.shapes_in_bytes(data) if streams else (),
            num_stages=num_stages,
            store=store,
            mesh=mesh,
            callbacks=Callbacks(watch=watch.watch, stop=watch.stop, differs=warn_user),
            identity=None if store is None else _identity(model, settings, data),
            checked=True,
        )
    some = inputs.some(data, fitting.LOOKED_AT)
    training_range.remember(trained, training_range.of(some))
    fitting.warn_if_all_ood(model, trained, some, warn=warn_user)
    if fitting.head_kind(model) == "square_logit":
        notices.of_bounded_embeddings(model, trained, shape)
    return trained, shape


def _best(watch: Watch, model: Classifier, settings: Settings, **given: Any) -> dict[str, Any]:
    """The variables at the end, or those of the best epoch where that is watched."""
    notices.of_memory(model, settings, given["image_shape"])
    with contextlib.suppress(Enough):
        trained = fitting.fit(model, settings, **given)
    return trained if watch.best is None else jax.tree.map(jax.numpy.asarray, watch.best)


def _identity(model: Classifier, settings: Settings, data: TrainingData | Batches) -> dict[str, Any]:
    """What a stored training must have in common with the one that goes on with it; for JSON."""
    return {
        "model": _ADDRESS.sub("", repr(model)),
        "class_weights": settings.class_weights and str(settings.class_weights),
        "settings": _ADDRESS.sub("", repr(settings)),
        **inputs.fingerprint(data),
    }


def _usual_method(model: Classifier, outliers: Any) -> str:
    require_classifier(model)
    kind = fitting.head_kind(model)
    if kind in ("square_logit", "none_class"):
        return "preload" if kind == "square_logit" else "nc"
    return "standard" if outliers is None else "oe"
