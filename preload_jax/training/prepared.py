"""What the training images say before the first step: a typical distance, or the posterior of a trained last layer."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax import bayes
from preload_jax.errors import UserError
from preload_jax.models import Classifier, LaplaceHead, RGPRHead, WithDistance, typical_distance
from preload_jax.training import augment
from preload_jax.training.data import TrainingData
from preload_jax.training.iterables import Batches
from preload_jax.training.stage import Settings

# Outliers that are augmented at once.
_BLOCK = 500
# Images of a source that is read in batches of which the typical distance is measured.
_MEASURED = 10_000

Variables = Mapping[str, Any]


def prepared(
    model: Classifier,
    settings: Settings,
    given: Variables,
    variables: dict[str, Any],
    load_data: Callable[[], TrainingData | Batches],
) -> dict[str, Any]:
    """With what the training images say before the first step: a typical distance, or the last layer's posterior."""
    if not isinstance(model.head, LaplaceHead):
        return _with_typical_distance(model, given, variables, load_data)
    data = load_data()
    if isinstance(data, Batches):
        raise UserError("a Laplace approximation takes the features of all training images at once; give arrays")
    images, precision = np.asarray(data.images), settings.prior_precision
    if isinstance(model.head, RGPRHead):
        numbers = {**dict(settings.method.own), **settings.own}
        variance = numbers["spline_variance"]
        return bayes.fit_rgpr(model, variables, images, prior_precision=precision, variance=variance)[1]
    outliers = _outliers(settings, data) if settings.method.uses_outliers else None
    return bayes.fit_laplace(
        model, variables, images, prior_precision=precision, outliers=outliers, ood_weight=settings.numbers.ood_weight
    )[1]


def _outliers(settings: Settings, data: TrainingData) -> np.ndarray:
    """Some outliers, at most as many as images, as one epoch's augmentation makes them."""
    assert data.outliers is not None  # The method uses them.
    order = np.random.default_rng(settings.seed).permutation(len(data.outliers))
    some = np.asarray(data.outliers)[np.sort(order[: len(data.images)])]
    change = jax.jit(
        functools.partial(
            augment.augment_outliers, policy=settings.augmentations.outliers, image_shape=data.images.shape[1:]
        )
    )
    key = jax.random.key(settings.seed)
    blocks = [some[start : start + _BLOCK] for start in range(0, len(some), _BLOCK)]
    return np.concatenate([np.asarray(change(jax.random.fold_in(key, i), x)) for i, x in enumerate(blocks)])


def _with_typical_distance(
    model: Classifier, given: Variables, variables: dict[str, Any], load_data: Callable[[], TrainingData | Batches]
) -> dict[str, Any]:
    """With μ and m of the training images, where the network sees the distance and nobody said from where."""
    body = model.backbone
    if not isinstance(body, WithDistance) or "distance_center" in given.get("batch_stats", {}).get("backbone", {}):
        return variables
    if body.center is not None and body.scale is not None:
        return variables
    # A typical distance is one from the center that is used.
    center = None if body.center is None else np.asarray(body.center.values)
    data = load_data()
    images = data.sample(_MEASURED) if isinstance(data, Batches) else np.asarray(data.images)
    found = typical_distance(images, center=center)
    stats = dict(variables["batch_stats"]["backbone"])
    for name, mine in (("center", body.center), ("scale", body.scale)):
        if mine is None:
            stats[f"distance_{name}"] = jnp.asarray(found[name], jnp.float32)
    return {**variables, "batch_stats": {**variables["batch_stats"], "backbone": stats}}
