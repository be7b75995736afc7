"""Asking by the front door: `predict`, and `evaluate` on labelled and OOD images."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from preload_jax import evaluation
from preload_jax.checks import as_array
from preload_jax.decisions import Rule
from preload_jax.decisions.answers import Predictions, answer, check_verdict
from preload_jax.detectors import Detector
from preload_jax.devices import reading, sharding, sharing, training_range
from preload_jax.devices.sharding import Devices
from preload_jax.devices.variables import takes
from preload_jax.errors import UserError
from preload_jax.evaluation import Score, Scorer
from preload_jax.integers import require_flag
from preload_jax.models import Classifier
from preload_jax.models.classifier import has_ood_class, require_classifier

Variables = Mapping[str, Any]
# Of either library; both are used as they are.
AnyArray = np.ndarray | jax.Array


def predict(
    model: Classifier,
    variables: Variables,
    images: Any,
    *,
    score: Score | None = None,
    ood_class: bool | None = None,
    threshold: float | None = None,
    rule: Rule | None = None,
    batch_size: int = 500,
    devices: Devices | None = None,
) -> Predictions:
    """Probabilities, classes, "is it OOD" and a score, for any number of images.

    Args:
        model, variables: a trained classifier.
        images: uint8 in [0, 255] or floating point in [0, 1], [n, h, w, c].  Floating-point values outside [0, 1] are
            used as they are, with a warning.  Far-away images have such values.  So have images in 0 … 255 that were
            not divided by 255.  Or inputs of another rank or type, as the network takes them.  Or batches of either,
            which may be larger than memory: an iterable of arrays, pairs or dictionaries with "image".
        score: the name of a function of `scores`, such as "negative_energy" for Energy-FT, or a fitted detector.  None
            means "in_domain_probability" with an OOD class, and "max_probability" without one.
        ood_class: whether the last logit is the OOD class; None asks the head.
        threshold: for a network without an OOD class: inputs that score below it are OOD (`metrics.threshold_at_tpr`).
        rule: of `decisions.calibrate`, for any network: it decides which inputs are OOD, with a guaranteed rate of
            false alarms, and gives p-values.
        batch_size: how many images each compiled call has.
        devices: None: this process's first one.  Or how many share each batch, or "all"; of several processes, of
            each: all call this with the same inputs, each computes its part, and all have the answers.

    Raises:
        UserError: for no images, images of another type or shape, values that are not finite, a threshold for a network
            with an OOD class, which needs none, or a rule that was calibrated for another score.

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
    scorer = _scorer(model, variables, score, ood_class, devices)
    check_verdict(
        rule=rule,
        threshold=threshold,
        score=scorer.name,
        has_ood_class=scorer.has_ood_class,
        detector=scorer.rule.digest if isinstance(scorer.rule, Detector) else "",
    )
    outputs = scorer.of(_looked_at(model, variables, images, _look(variables)), batch_size=batch_size)
    return answer(outputs.logits, outputs.scores, has_ood_class=scorer.has_ood_class, threshold=threshold, rule=rule)


def evaluate(
    model: Classifier,
    variables: Variables,
    in_domain: Any,
    ood: Mapping[str, Any] | None = None,
    *,
    score: Score | None = None,
    ood_class: bool | None = None,
    ood_positive: bool = False,
    devices: Devices | None = None,
) -> dict[str, Any]:
    """Accuracy and calibration on labelled images, and how well OOD images are told from them.

    Args:
        model, variables: a trained classifier.
        in_domain: (images, labels), or batches of them such as a data loader yields: pairs, or dictionaries with
            "image" and "label".  Batches are read one after the other, and may be larger than memory together.
        ood: name → images, or batches of them, or a function that returns either when it is needed.
        score, ood_class: as for `predict`.
        ood_positive: also FPR-95 and AUPR with OOD as the positive class, as OpenOOD and pytorch-ood report them.
        devices: as for `predict`.

    Returns:
        {"in_domain": {"accuracy", "ece", "brier", "log_likelihood", "mmc", "size"}, "ood": {name: {"fpr95", "auroc",
        "aupr", "mmc", "size"}}}: fractions; in-domain is the positive class and has the higher score.  "aupr" is the
        area by trapezoids, see `metrics.aupr`, and not scikit-learn's `average_precision_score`.  With `ood_positive`
        each OOD set also has "fpr95_ood_positive" and "aupr_ood_positive".

    Raises:
        UserError: as for `predict`, and for labels that are not one of the classes.

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
    scorer = _scorer(model, variables, score, ood_class, devices)
    ood_positive = require_flag("ood_positive", ood_positive)
    if ood is not None and not isinstance(ood, Mapping):
        pair = ", and (images, labels) as one pair before it" if hasattr(in_domain, "ndim") else ""
        raise UserError(f"ood is a {type(ood).__name__}; expected a dictionary of name → images{pair}")
    labels: list[np.ndarray] = []
    look = _look(variables)
    if isinstance(in_domain, Mapping) or reading.is_pair(in_domain):
        images, of_images = reading.pair(in_domain)
        labels.append(of_images)
        outputs = scorer.of(_looked_at(model, variables, images, look))
    else:
        outputs = scorer.of(_first_looked_at(_images_of(in_domain, labels), look))
    of_sets = {name: partial(_ood_images, model, variables, name, given, look) for name, given in (ood or {}).items()}
    results, _ = evaluation.evaluate_outputs(
        scorer, outputs, np.concatenate(labels), of_sets, ood_positive=ood_positive
    )
    return results


def _scorer(
    model: Classifier, variables: Variables, score: Score | None, ood_class: bool | None, devices: Devices | None
) -> Scorer:
    require_classifier(model, variables)
    mesh = None if devices is None else sharding.make_mesh(devices)
    sharing.require_same(variables, mesh)
    return Scorer(model, variables, has_ood_class(model, ood_class), score, mesh)


def _look(variables: Variables) -> Callable[..., None]:
    """Warns of inputs of another scale than the training's, which is looked for once."""
    return partial(training_range.warn, trained=training_range.recall(variables))


def _first_looked_at(batches: Iterator[np.ndarray], look: Callable[..., None]) -> Iterator[np.ndarray]:
    """The same, after a look at the values of the first."""
    for number, images in enumerate(batches):
        if number == 0:
            look(images)
        yield images


def _looked_at(model: Classifier, variables: Variables, images: Any, look: Callable[..., None]) -> Any:
    """Inputs without labels, an array or an iterator of batches, after a look at the values."""
    if reading.is_batches(images, partial(takes, model, variables)):
        return _first_looked_at(_batches(images), look)
    array = as_array(images, name="images")
    look(array)
    return array


def _batches(images: Any) -> Iterator[np.ndarray]:
    yield from map(reading.inputs_of, reading.iterable(images() if callable(images) else images, "images"))


def _ood_images(model: Classifier, variables: Variables, name: Any, given: Any, look: Callable[..., None]) -> Any:
    """An array, or an iterator of batches, of what is given or of what it returns."""
    try:
        found = given() if callable(given) else given
        return _looked_at(model, variables, found, partial(look, ood_set=str(name)))
    except UserError as error:
        raise UserError(f"OOD set {name!r}: {error}") from None


def _images_of(in_domain: Any, labels: list[np.ndarray]) -> Iterator[np.ndarray]:
    """`reading.images_of`, of in-domain batches, of which there is one at least.

    Raises:
        UserError: for anything but (images, labels), or batches of them.
    """
    given = in_domain() if callable(in_domain) else in_domain
    yield from reading.images_of(reading.iterable(given, "in_domain"), labels)
    if not labels:
        raise UserError("no in-domain images; give (images, labels), or an iterable of such batches")
