"""Asking by the front door: `predict`, and `evaluate` on labelled and OOD images."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax import evaluation
from preload_jax.checks import as_array, outside_unit_range
from preload_jax.decisions import Rule
from preload_jax.detectors import Detector
from preload_jax.errors import UserError
from preload_jax.evaluation import Score, Scorer
from preload_jax.models import Classifier

Variables = Mapping[str, Any]
# Of either library; both are used as they are.
AnyArray = np.ndarray | jax.Array


@dataclass(frozen=True)
class Predictions:
    """What a network says of n inputs.

    Attributes:
        probabilities: of the K in-domain classes, [n, K].  With an OOD class they sum to 1 − ood_probability.
        ood_probability: of the OOD class, [n]; None for a network without one.
        label: the most probable in-domain class, int [n].
        is_ood: whether each input is OOD, bool [n].  With an OOD class: whether that class is the most probable of all
            (the paper's rule).  Without one: whether the score is below the threshold; None if no threshold was given.
            With a `decisions.Rule`: what the rule says.
        score: higher = more in-domain, [n]; in nats, unless a detector has another unit.  (`metrics.to_ood_scores`
            changes the sign for other toolkits.)
        p_value: of "this input is in-domain", [n], by the rule; None without a rule.

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
    p_value: np.ndarray | None = None


def predict(
    model: Classifier,
    variables: Variables,
    images: AnyArray,
    *,
    score: Score | None = None,
    ood_class: bool | None = None,
    threshold: float | None = None,
    rule: Rule | None = None,
    batch_size: int = 500,
) -> Predictions:
    """Probabilities, classes, "is it OOD" and a score, for any number of images.

    Args:
        model, variables: a trained classifier.
        images: uint8 in [0, 255] or floating point in [0, 1], [n, h, w, c].  Floating-point values outside [0, 1] are
            used as they are, with a warning.  Far-away images have such values.  So have images in 0 … 255 that were
            not divided by 255.
        score: the name of a function of `scores`, such as "negative_energy" for Energy-FT, or a fitted detector.  None
            means "in_domain_probability" with an OOD class, and "max_probability" without one.
        ood_class: whether the last logit is the OOD class; None asks the head.
        threshold: for a network without an OOD class: inputs that score below it are OOD (`metrics.threshold_at_tpr`).
        rule: of `decisions.calibrate`, for any network: it decides which inputs are OOD, with a guaranteed rate of
            false alarms, and gives p-values.
        batch_size: how many images each compiled call has.

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
    scorer = Scorer(model, variables, _has_ood_class(model, ood_class), score)
    if rule is not None:
        _check_rule(rule, scorer, threshold)
    if scorer.has_ood_class and threshold is not None:
        raise UserError("threshold is for networks without an OOD class; leave it out, or give ood_class=False")
    if threshold is not None and not (
        isinstance(threshold, int | float | np.number | jax.Array) and threshold == threshold
    ):
        raise UserError(f"threshold is {threshold!r}; expected a number")
    images = as_array(images, name="images")
    _warn_of_range(images)
    outputs = scorer(images, batch_size=batch_size)
    logits = outputs.logits
    if np.isnan(logits).any():
        bad = int(np.isnan(logits).any(axis=1).sum())
        raise UserError(f"the network answers NaN for {bad} of {len(logits)} images: are its variables finite?")
    probabilities = np.exp(evaluation.class_log_probabilities(jnp.asarray(logits), has_ood_class=scorer.has_ood_class))
    label = probabilities.argmax(axis=1)
    ood_probability = p_value = None
    is_ood = None if threshold is None else outputs.scores < threshold
    if scorer.has_ood_class:
        ood_probability = np.asarray(jax.nn.softmax(jnp.asarray(logits), axis=-1))[:, -1]
        is_ood = logits.argmax(axis=1) == logits.shape[1] - 1
    if rule is not None:
        classes = label if rule.by_class else None
        is_ood = rule.is_ood(outputs.scores, classes=classes)
        p_value = rule.p_values(outputs.scores, classes=classes)
    return Predictions(probabilities, ood_probability, label, is_ood, outputs.scores, p_value)


def evaluate(
    model: Classifier,
    variables: Variables,
    in_domain: tuple[AnyArray, AnyArray] | Iterable[Any] | Mapping[str, Any],
    ood: Mapping[str, AnyArray] | None = None,
    *,
    score: Score | None = None,
    ood_class: bool | None = None,
    ood_positive: bool = False,
) -> dict[str, Any]:
    """Accuracy and calibration on labelled images, and how well OOD images are told from them.

    Args:
        model, variables: a trained classifier.
        in_domain: (images, labels), or batches of them such as a data loader yields: pairs, or dictionaries with
            "image" and "label".
        ood: name → images, or a function that returns them when they are needed.
        score, ood_class: as for `predict`.
        ood_positive: also FPR-95 and AUPR with OOD as the positive class, as OpenOOD and pytorch-ood report them.

    Returns:
        {"in_domain": {"accuracy", "ece", "brier", "log_likelihood", "mmc", "size"}, "ood": {name: {"fpr95", "auroc",
        "aupr", "mmc", "size"}}}: fractions; in-domain is the positive class and has the higher score.  With
        `ood_positive` each OOD set also has "fpr95_ood_positive" and "aupr_ood_positive".

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
    scorer = Scorer(model, variables, _has_ood_class(model, ood_class), score)
    if ood is not None and not isinstance(ood, Mapping):
        raise UserError(f"ood is a {type(ood).__name__}; expected a dictionary of name → images")
    images, labels = _join(in_domain)
    _warn_of_range(images)
    results, _ = evaluation.evaluate(scorer, images, labels, ood or {}, ood_positive=ood_positive)
    return results


def _check_rule(rule: Rule, scorer: Scorer, threshold: float | None) -> None:
    """Raises a UserError where a threshold is given, too, and where the rule is known to be of another score."""
    if not isinstance(rule, Rule):
        raise UserError(f"the rule is a {type(rule).__name__}; expected a Rule, of decisions.calibrate")
    if threshold is not None:
        raise UserError("threshold and rule both decide what is OOD; leave one out")
    if rule.score and rule.score != scorer.name:
        raise UserError(
            f"the rule was calibrated for the score {rule.score!r}, this one is {scorer.name!r}; give its own"
        )
    if rule.detector and isinstance(scorer.rule, Detector) and rule.detector != scorer.rule.digest:
        raise UserError(
            f"the rule was calibrated for another {scorer.name} detector: its options, or what it was fitted to,"
            " differ; calibrate again with this one's scores"
        )


def _has_ood_class(model: Classifier, given: bool | None) -> bool:
    return bool(getattr(model.head, "has_ood_class", False)) if given is None else given


def _warn_of_range(images: np.ndarray) -> None:
    """Warns where floating-point images are not in [0, 1], which networks are trained on here."""
    if not images.size or not jnp.issubdtype(images.dtype, jnp.floating):
        return
    low, high = float(images.min()), float(images.max())
    if outside_unit_range(low, high) or (high == high and 0.0 < high <= 1.0 / 255.0):
        warnings.warn(
            f"images run from {low:.4g} to {high:.4g}; networks are trained here on [0, 1] (uint8 is divided by 255)."
            " Scale them alike, unless they are far away on purpose",
            UserWarning,
            stacklevel=3,
        )


def _join(in_domain: Any) -> tuple[np.ndarray, np.ndarray]:
    """One pair of arrays out of a pair, or out of batches of pairs.

    Raises:
        UserError: for anything else.
    """
    if isinstance(in_domain, tuple | list) and len(in_domain) == 2 and hasattr(in_domain[0], "ndim"):
        return _arrays(*in_domain)
    if isinstance(in_domain, Mapping):
        in_domain = [in_domain]
    if not isinstance(in_domain, Iterable):
        raise UserError(f"in_domain is a {type(in_domain).__name__}; expected (images, labels), or batches of them")
    pairs = [_pair(batch) for batch in in_domain]
    if not pairs:
        raise UserError("no in-domain images; give (images, labels), or an iterable of such batches")
    return np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])


def _arrays(images: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    return as_array(images, name="images"), as_array(labels, name="labels")


def _pair(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(batch, Mapping):
        images = next((batch[name] for name in ("image", "images") if name in batch), None)
        labels = next((batch[name] for name in ("label", "labels") if name in batch), None)
        if images is not None and labels is not None:
            return _arrays(images, labels)
        raise UserError(f"a batch is a dictionary with {sorted(map(str, batch))}; expected image and label")
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return _arrays(*batch)
    raise UserError(f"a batch is a {type(batch).__name__}; expected (images, labels), or image and label by name")
