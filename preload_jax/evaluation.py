"""Evaluation: images → logits in padded batches → scores → metrics."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import ScopeParamShapeError
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from preload_jax import compilation, detectors, metrics, sharding
from preload_jax.augment import to_float
from preload_jax.checks import check_images
from preload_jax.errors import UserError
from preload_jax.methods import Method
from preload_jax.models import Classifier


def predict(
    model: Classifier,
    variables: dict[str, Any],
    images: np.ndarray,
    *,
    batch_size: int = 500,
    features: bool = False,
    mesh: Mesh | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Logits, and on request features, of any number of images, in evaluation mode.

    Compiled once for a shape: the last batch is padded and what belongs to the padding is dropped.

    Args:
        model, variables: the classifier.
        images: uint8 in [0, 255] or floating point in [0, 1] (far-away images may be any finite size), [n, h, w, c].
        batch_size: images a compiled call.
        features: whether to return G(x) too.
        mesh: devices of this process that share each batch, which is made as many images larger as it takes.

    Returns:
        (logits [n, K] or [n, K+1], features [n, d] or None), float32.

    Raises:
        UserError: for no images, another type of numbers or shape, or images that are not finite.
    """
    if images.dtype == np.float64:
        # Networks take float32; what overflows there is not finite for them, and is said so.
        with np.errstate(over="ignore"):
            images = images.astype(np.float32)
    check_images(images)
    if batch_size < 1:
        raise UserError(f"batch_size must be at least 1, got {batch_size}")
    if mesh is not None:
        batch_size = math.ceil(batch_size / mesh.size) * mesh.size
        variables = jax.tree.map(lambda x: sharding.put(x, mesh), variables)
    logits, embeddings = [], []
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        missing = batch_size - len(batch)
        padded = np.pad(batch, ((0, missing), *((0, 0),) * (batch.ndim - 1))) if missing else batch
        try:
            given = padded if mesh is None else sharding.put(padded, mesh, sharding.AXIS)
            batch_logits, batch_features = _apply(variables, given, model=model, features=features)
        except ScopeParamShapeError as error:
            raise UserError(
                f"images of shape {list(images.shape)} do not fit the network; expected the height, width and channels"
                f" that it was trained on ({str(error).split(' (http')[0]})"
            ) from None
        logits.append(np.asarray(batch_logits)[: len(batch)])
        if features:
            embeddings.append(np.asarray(batch_features)[: len(batch)])
    return np.concatenate(logits), np.concatenate(embeddings) if features else None


@partial(compilation.jit, static_argnames=("model", "features"))
def _apply(variables: dict[str, Any], images: Array, *, model: Classifier, features: bool) -> tuple[Array, Any]:
    out: Any = model.apply(variables, to_float(images), features=features)
    return out if features else (out, None)


def score(
    method: Method, logits: np.ndarray, *, features: np.ndarray | None = None, detector: Any = None
) -> np.ndarray:
    """Each input's score by the method's rule, higher = more in-domain: [n], float32."""
    if method.score is not None:
        return np.asarray(_score(logits, rule=method.score))
    if detector is None or features is None:
        raise ValueError(f"the score of {method.name} is a density: it needs features and a fitted detector")
    return detectors.score(detector, detectors.Outputs(features))


@partial(jax.jit, static_argnames="rule")
def _score(logits: Array, *, rule: Callable[[Array], Array]) -> Array:
    return rule(logits)


def class_log_probabilities(logits: Float[Array, "n k"], *, has_ood_class: bool) -> Float[Array, "n c"]:
    """log P(c | x) of the K in-domain classes: an OOD class is in the softmax, and its column dropped."""
    log_probabilities = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return log_probabilities[:, :-1] if has_ood_class else log_probabilities


@partial(jax.jit, static_argnames=("has_ood_class", "released_code_ece"))
def _in_domain(logits: Array, labels: Array, *, has_ood_class: bool, released_code_ece: bool) -> dict[str, Array]:
    log_probabilities = class_log_probabilities(logits, has_ood_class=has_ood_class)
    probabilities = jnp.exp(log_probabilities)
    ece = metrics.expected_calibration_error
    if released_code_ece:
        ece = metrics.expected_calibration_error_released_code
    return {
        "accuracy": metrics.accuracy(logits, labels),
        "ece": ece(probabilities, labels),
        "brier": metrics.brier_score(probabilities, labels),
        "log_likelihood": metrics.log_likelihood(log_probabilities, labels),
        "mmc": metrics.mean_max_confidence(probabilities),
    }


def in_domain_metrics(
    logits: np.ndarray, labels: Int[np.ndarray, "n"], *, has_ood_class: bool, released_code_ece: bool = False
) -> dict[str, float]:
    """Accuracy, ECE (15 bins), Brier score, mean log-likelihood and MMC of labelled in-domain images, and their number.

    Accuracy counts a predicted OOD class as an error.  Fractions; log-likelihood in nats.

    Raises:
        ValueError: when logits and labels differ in number, a label is no class, or a logit is NaN.
    """
    num_classes = logits.shape[1] - has_ood_class
    if len(logits) != len(labels):
        raise UserError(f"{len(logits)} logits but {len(labels)} labels; expected one label an image")
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        raise UserError(f"labels run from {labels.min()} to {labels.max()}; expected 0 to {num_classes - 1}")
    metrics.check_values("logits", logits)
    values = _in_domain(logits, labels, has_ood_class=has_ood_class, released_code_ece=released_code_ece)
    return {**{name: float(value) for name, value in values.items()}, "size": len(labels)}


def ood_metrics(
    scores_in: np.ndarray,
    scores_ood: np.ndarray,
    *,
    logits_ood: np.ndarray,
    has_ood_class: bool,
    ood_positive: bool = False,
) -> dict[str, float]:
    """FPR-95, AUROC and AUPR (in-domain positive) and the OOD images' MMC, and their number; fractions.

    With `ood_positive` also the FPR-95 and AUPR that have OOD as the positive class, "fpr95_ood_positive" and
    "aupr_ood_positive".

    Raises:
        ValueError: when a score is NaN or there is none.
    """
    both = jnp.asarray(scores_in), jnp.asarray(scores_ood)
    values = {
        "fpr95": metrics.fpr_at_tpr(*both),
        "auroc": metrics.auroc(*both),
        "aupr": metrics.aupr(*both),
        "mmc": _mean_max_confidence(logits_ood, has_ood_class=has_ood_class),
    }
    if ood_positive:
        values["fpr95_ood_positive"] = metrics.fpr_at_tpr(*both, ood_positive=True)
        values["aupr_ood_positive"] = metrics.aupr(*both, ood_positive=True)
    return {**{name: float(value) for name, value in values.items()}, "size": len(scores_ood)}


@partial(jax.jit, static_argnames="has_ood_class")
def _mean_max_confidence(logits: Array, *, has_ood_class: bool) -> Array:
    return metrics.mean_max_confidence(jnp.exp(class_log_probabilities(logits, has_ood_class=has_ood_class)))
