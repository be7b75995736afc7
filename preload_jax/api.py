"""The library's front door: train, predict, evaluate, and give a trained network an OOD class.

Arrays in, arrays out.  Images are uint8 in [0, 255] or, except for training, floating point in [0, 1], always
[n, h, w, channels].  Everything else that the library has (losses, metrics, guarantees, data) can be used on its own.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from preload_jax import evaluation, guarantees, methods, scores, sharding, training, training_data
from preload_jax.augment import Augmentations
from preload_jax.errors import UserError
from preload_jax.losses import Hyperparameters
from preload_jax.models import Classifier, LinearHead, SquareLogitHead
from preload_jax.optimizers import Optimizer
from preload_jax.plan import Plan
from preload_jax.sharding import Devices, make_mesh
from preload_jax.steps import Task
from preload_jax.training import Report
from preload_jax.training_data import Placement, TrainingData

Variables = dict[str, Any]
# Of either library; both are used as they are.
AnyArray = np.ndarray | jax.Array

# Images whose embeddings `attach` looks at for negative ones.
_RAYS_LOOKED_AT = 16


@dataclass(frozen=True)
class Predictions:
    """What a network says of n inputs.

    Attributes:
        probabilities: of the K in-domain classes, [n, K]; with an OOD class they sum to 1 − ood_probability.
        ood_probability: of the OOD class, [n]; None for a network without one.
        label: the most probable in-domain class, int [n].
        is_ood: the paper's rule, whether the OOD class is the most probable of all, bool [n]; without one whether the
            score is below the threshold, None where none was given.
        score: higher = more in-domain, in nats, [n].  (`metrics.to_ood_scores` turns it round for other toolkits.)

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import make_classifier, predict
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> said = predict(model, variables, np.ones((5, 4, 4, 1), np.float32))
        >>> said.probabilities.shape, said.is_ood.shape
        ((5, 3), (5,))
    """

    probabilities: np.ndarray
    ood_probability: np.ndarray | None
    label: np.ndarray
    is_ood: np.ndarray | None
    score: np.ndarray


@dataclass(frozen=True)
class Attached:
    """A trained network with an OOD class beside its own.

    Attributes:
        model: the new classifier.
        variables: its variables; backbone and K classes' weights are those it was given.
        bound: the largest confidence that any input can get, see `guarantees.confidence_bound`: of embeddings ≥ 0 where
            none of the first 1,000 training images' is negative, else of all.

    Example: see `attach`.
    """

    model: Classifier
    variables: Variables
    bound: guarantees.ConfidenceBound


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
    optimizer: str = "adam",
    learning_rate: float = 1e-3,
    weight_decay: float = 5e-4,
    ood_weight: float = 1.0,
    margin_in: float = 0.0,
    margin_ood: float = 0.0,
    augmentations: Augmentations = Augmentations(),  # noqa: B008
    seed: int = 0,
    devices: Devices = 1,
    data_placement: Placement = "auto",
    on_report: Callable[[Report], None] | None = None,
) -> Variables:
    """Trains a classifier and returns its variables.

    With PreLoad's head the objective is ½ (CE_in + λ CE_ood) over K + 1 classes (section 3 of the paper, see
    `losses.extra_class`); the learning rate falls to 0 along a cosine.

    Args:
        model: a `Classifier`: any Linen backbone `f(images, *, train)` → features, and a head.
        images, labels: in-domain, uint8 [n, h, w, c] and integer [n] in 0 … K − 1.
        outliers: auxiliary OOD images, uint8 [m, h, w, c]; unlabelled images of anything else.
        method: whose objective and step to use, one of `methods.METHODS`; None: "preload" for `SquareLogitHead`, "oe"
            for `LinearHead` with outliers and "standard" without.
        variables: where to start; None: random weights.
        epochs, batch_size, optimizer, learning_rate, weight_decay: "adam" or "sgd" (Nesterov), coupled weight decay.
        ood_weight: λ.
        margin_in, margin_ood: of "energy_ft".
        augmentations: on the device, see `augment.Augmentations`.
        seed: fixes everything random.
        devices: how many share each batch (which they must divide), or "all"; see `sharding.make_mesh`.
        data_placement: "device" keeps all images there; "host" streams them from the arrays given, which may be
            memory-mapped; "auto" see `training_data.place`.
        on_report: called after each epoch; stop by raising.

    Returns:
        {"params", "batch_stats"}.

    Raises:
        UserError: when data and model do not fit, or a number makes no sense.
        training.NonFiniteLossError: when the loss becomes NaN or infinite.

    Examples:
        >>> import numpy as np
        >>> from preload_jax import fit, make_classifier, predict
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 2, 64)
        >>> levels = np.array([60, 190])[labels][:, None, None, None]
        >>> images = (levels + rng.integers(-20, 20, (64, 4, 4, 1))).astype(np.uint8)
        >>> outliers = rng.integers(0, 256, (64, 4, 4, 1), dtype=np.uint8)
        >>> model = make_classifier("mlp", "square_logit", num_classes=2, initial_scale="inverse_width", widths=(16,))
        >>> variables = fit(model, images, labels, outliers, epochs=40, batch_size=32, learning_rate=1e-2)
        >>> float((predict(model, variables, images).label == labels).mean())
        1.0
        >>> bool(predict(model, variables, 1e4 * images.astype(np.float32)).is_ood.all())
        True
    """
    row = methods.get(method or _usual_method(model, outliers))
    if row.uses_outliers and outliers is None:
        raise UserError(f"{row.name} trains with auxiliary OOD images; give outliers, uint8 [m, h, w, channels]")
    mesh = make_mesh(devices)
    data = _training_data(images, labels, outliers if row.uses_outliers else None, data_placement, mesh)
    init_key, train_key = jax.random.split(jax.random.key(seed))
    if variables is None:
        variables = training.init_variables(model, data.images.shape[1:], key=init_key)
    plan = Plan(len(data.images), batch_size, epochs, max_steps_per_call=_steps_per_call(data, batch_size))
    task = Task(model, row.objective, Optimizer(optimizer, clip_norm=row.clip_norm), plan.total_steps)
    hyper = Hyperparameters(learning_rate, weight_decay, ood_weight, margin_in, margin_ood)
    return _run(variables, data, train_key, task, row, hyper, plan, augmentations, on_report, mesh)


def _run(
    variables: Variables,
    data: TrainingData,
    key: jax.Array,
    task: Task,
    row: methods.Method,
    hyper: Hyperparameters,
    plan: Plan,
    augmentations: Augmentations,
    on_report: Callable[[Report], None] | None,
    mesh: Mesh | None = None,
) -> Variables:
    state = training.init_state({"batch_stats": {}, **variables}, task=task, method=row)
    reports = training.fit_stage(
        state, data, key=key, task=task, step=row.step, hyper=hyper, plan=plan, augmentations=augmentations, mesh=mesh
    )
    with contextlib.closing(reports):
        for report in reports:
            state = report.state
            if report.ends_epoch and on_report is not None:
                on_report(report)
    return sharding.to_one_device(state.variables, mesh)


def _training_data(
    images: Any, labels: Any, outliers: Any, placement: Placement = "auto", mesh: Mesh | None = None
) -> TrainingData:
    """The arrays as training keeps them, after a look at their types (`training.check_data` looks at the rest)."""
    for name, given in (("images", images), ("outliers", outliers)):
        if given is not None and (np.ndim(given) != 4 or np.asarray(given).dtype != np.uint8):
            shape, dtype = list(np.shape(given)), np.asarray(given).dtype
            raise UserError(f"training {name} are {dtype} {shape}; expected uint8 [n, h, w, channels] in [0, 255]")
    if not np.issubdtype(np.asarray(labels).dtype, np.integer):
        raise UserError(f"labels are {np.asarray(labels).dtype}; expected integers 0 … K - 1")
    # asanyarray: a memory-mapped array stays one.
    images, outliers = np.asanyarray(images), None if outliers is None else np.asanyarray(outliers)
    return training_data.place(TrainingData(images, np.asarray(labels, np.int32), outliers), placement, mesh=mesh)


def _usual_method(model: Classifier, outliers: AnyArray | None) -> str:
    if isinstance(model.head, SquareLogitHead):
        return "preload"
    return "standard" if outliers is None else "oe"


def _steps_per_call(data: TrainingData, batch_size: int) -> int:
    """One on a CPU, where convolutions inside a compiled loop are slow; an epoch elsewhere, or a chunk of streamed."""
    most = 1 if jax.default_backend() == "cpu" else 10_000
    if not data.on_host or batch_size < 1:
        return most
    shapes = [array.shape[1:] for array in (data.images, data.outliers) if array is not None]
    return min(most, training_data.steps_per_chunk(batch_size, *shapes))


def attach(
    model: Classifier,
    variables: Variables,
    images: AnyArray,
    labels: AnyArray,
    outliers: AnyArray,
    *,
    epochs: int = 10,
    batch_size: int = 128,
    learning_rate: float = 1e-1,
    weight_decay: float = 0.0,
    ood_weight: float = 1.0,
    seed: int = 0,
    on_report: Callable[[Report], None] | None = None,
) -> Attached:
    """Gives a trained network an OOD class and leaves everything it has untouched, to the bit (stage 1 of PreLoad-FT).

    Only w' and b of the square logit are trained, on the frozen network's features.  These are computed once, not in
    every epoch, where there is memory for them and outliers are not too many (`frozen.pays`).
    `fit(..., method="preload", variables=attached.variables)` then fine-tunes everything, which is stage 2.

    Args:
        model: a `Classifier` with a `LinearHead`.
        variables: its trained variables.
        images, labels, outliers: as for `fit`.
        epochs, batch_size, learning_rate, weight_decay, ood_weight, seed, on_report: as for `fit`, with Adam.

    Raises:
        UserError: when the head is another, or data and model do not fit.

    Example:
        >>> import numpy as np
        >>> from preload_jax import attach, fit, make_classifier, predict
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 2, 64)
        >>> images = (np.array([60, 190])[labels][:, None, None, None] * np.ones((4, 4, 1))).astype(np.uint8)
        >>> outliers = rng.integers(0, 256, (64, 4, 4, 1), dtype=np.uint8)
        >>> model = make_classifier("mlp", "linear", num_classes=2, widths=(16,))
        >>> variables = fit(model, images, labels, epochs=5, batch_size=32, learning_rate=1e-2)
        >>> attached = attach(model, variables, images, labels, outliers, epochs=20, batch_size=32)
        >>> bool(predict(attached.model, attached.variables, 1e4 * images.astype(np.float32)).is_ood.all())
        True
        >>> bool(np.isfinite(attached.bound.log_odds).all())
        True
    """
    if not isinstance(model.head, LinearHead):
        raise UserError(f"attach needs a classifier with a LinearHead, got {type(model.head).__name__}")
    data = _training_data(images, labels, outliers)
    head = SquareLogitHead(model.head.num_outputs, initial_scale="inverse_width")
    grown = Classifier(model.backbone, head)
    head_key, train_key = jax.random.split(jax.random.key(seed))
    started = training.add_ood_head({"batch_stats": {}, **variables}, grown, data.images.shape[1:], key=head_key)
    row = methods.get("preload_ft")
    plan = Plan(len(data.images), batch_size, epochs, max_steps_per_call=_steps_per_call(data, batch_size))
    task = Task(grown, row.objective, Optimizer("adam"), plan.total_steps, trainable="ood_head")
    hyper = Hyperparameters(learning_rate, weight_decay, ood_weight)
    trained = _run(started, data, train_key, task, row, hyper, plan, Augmentations(), on_report)
    shape = data.images.shape[1:]
    _warn_if_bounded(grown, trained, shape)
    # The bound over embeddings ≥ 0 is the lower one, but holds only where the network's operations prove that they are.
    nonnegative = guarantees.nonnegative_embeddings(grown, trained, shape)
    bound = guarantees.confidence_bound(trained["params"]["head"], nonnegative=nonnegative)
    return Attached(grown, trained, bound)


def _warn_if_bounded(model: Classifier, variables: Variables, shape: tuple[int, ...]) -> None:
    """Embeddings that stay bounded along every ray leave the OOD class nothing to grow with."""
    directions = np.random.default_rng(0).normal(size=(_RAYS_LOOKED_AT, *shape))
    try:
        found = guarantees.embedding_behaviour(model, variables, directions, batch_size=_RAYS_LOOKED_AT)
    except UserError:  # An operation without a rule: nothing is known, so nothing is said.
        return
    if found.always_bounded:
        warnings.warn(
            "the network's embeddings stay bounded however far an input is, as after a layer norm: the OOD class does "
            "not win far away, and only the bound on the largest confidence holds; a feature that grows with the "
            "distance from the training data would mend it",
            stacklevel=3,
        )


def predict(
    model: Classifier,
    variables: Variables,
    images: AnyArray,
    *,
    ood_class: bool | None = None,
    threshold: float | None = None,
    batch_size: int = 500,
) -> Predictions:
    """Probabilities, classes, "is it OOD" and a score, for any number of images.

    Args:
        model, variables: a trained classifier.
        images: uint8 in [0, 255] or floating point in [0, 1] (or beyond, for far-away ones), [n, h, w, c].
        ood_class: whether the last logit is the OOD class; None: yes for `SquareLogitHead`, no for others.
        threshold: of a network without an OOD class: what scores below it is OOD (`metrics.threshold_at_tpr`).
        batch_size: images a compiled call.

    Raises:
        UserError: for no images, images of another type or shape, or values that are not finite; and for a threshold
            where there is an OOD class, which decides by itself.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import make_classifier, metrics, predict
        >>> images = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 1), np.uint8)
        >>> model = make_classifier("mlp", "linear", num_classes=3, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> threshold = metrics.threshold_at_tpr(jnp.asarray(predict(model, variables, images).score))
        >>> int(predict(model, variables, images, threshold=float(threshold)).is_ood.sum())
        2
    """
    has_ood_class = _has_ood_class(model, ood_class)
    if has_ood_class and threshold is not None:
        raise UserError("threshold is for networks without an OOD class; leave it out, or give ood_class=False")
    logits, _ = evaluation.predict(model, variables, np.asarray(images), batch_size=batch_size)
    probabilities = np.asarray(jax.nn.softmax(jnp.asarray(logits), axis=-1))
    score = np.asarray(_rule(has_ood_class)(jnp.asarray(logits)))
    if not has_ood_class:
        is_ood = None if threshold is None else score < threshold
        return Predictions(probabilities, None, probabilities.argmax(axis=1), is_ood, score)
    inside = probabilities[:, :-1]
    is_ood = logits.argmax(axis=1) == inside.shape[1]
    return Predictions(inside, probabilities[:, -1], inside.argmax(axis=1), is_ood, score)


def evaluate(
    model: Classifier,
    variables: Variables,
    in_domain: tuple[AnyArray, AnyArray] | Iterable[tuple[AnyArray, AnyArray]],
    ood: Mapping[str, AnyArray] | None = None,
    *,
    ood_class: bool | None = None,
    ood_positive: bool = False,
) -> dict[str, Any]:
    """Accuracy and calibration on labelled images, and how well OOD images are told from them.

    Args:
        model, variables: a trained classifier.
        in_domain: (images, labels), or batches of them such as a data loader yields.
        ood: name → images.
        ood_class: as for `predict`.
        ood_positive: also FPR-95 and AUPR with OOD as the positive class, as OpenOOD and pytorch-ood report them.

    Returns:
        {"in_domain": {"accuracy", "ece", "brier", "log_likelihood", "mmc", "size"}, "ood": {name: {"fpr95", "auroc",
        "aupr", "mmc", "size"}}}: fractions; in-domain is the positive class and has the higher score.  With
        `ood_positive` each OOD set also has "fpr95_ood_positive" and "aupr_ood_positive".

    Raises:
        UserError: as for `predict`, and for labels that are no class.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import evaluate, make_classifier
        >>> images = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 1), np.uint8)
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> results = evaluate(model, variables, (images, np.arange(40) % 3), {"far": 1e4 * images.astype(np.float32)})
        >>> results["in_domain"]["size"], results["ood"]["far"]["fpr95"]
        (40, 0.0)
    """
    has_ood_class = _has_ood_class(model, ood_class)
    images, labels = _join(in_domain)
    logits, _ = evaluation.predict(model, variables, images)
    results: dict[str, Any] = {
        "in_domain": evaluation.in_domain_metrics(logits, labels, has_ood_class=has_ood_class),
        "ood": {},
    }
    rule = _rule(has_ood_class)
    scores_in = np.asarray(rule(jnp.asarray(logits)))
    for name, ood_images in (ood or {}).items():
        logits_ood, _ = evaluation.predict(model, variables, np.asarray(ood_images))
        scores_ood = np.asarray(rule(jnp.asarray(logits_ood)))
        results["ood"][name] = evaluation.ood_metrics(
            scores_in, scores_ood, logits_ood=logits_ood, has_ood_class=has_ood_class, ood_positive=ood_positive
        )
    return results


def _has_ood_class(model: Classifier, given: bool | None) -> bool:
    return isinstance(model.head, SquareLogitHead) if given is None else given


def _rule(has_ood_class: bool) -> Callable[[jax.Array], jax.Array]:
    return scores.in_domain_probability if has_ood_class else scores.max_probability


def _join(in_domain: Any) -> tuple[np.ndarray, np.ndarray]:
    """One pair of arrays out of a pair, or out of batches of pairs."""
    if isinstance(in_domain, tuple) and len(in_domain) == 2 and hasattr(in_domain[0], "ndim"):
        return np.asarray(in_domain[0]), np.asarray(in_domain[1])
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in in_domain]
    if not pairs:
        raise UserError("no in-domain images; give (images, labels), or an iterable of such batches")
    return np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])
