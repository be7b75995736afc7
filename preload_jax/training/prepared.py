"""What the training images say before the first step: a typical distance, a last layer's posterior, or densities."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax import bayes
from preload_jax.errors import UserError
from preload_jax.models import CCUHead, Classifier, LaplaceHead, RGPRHead, WithDistance, typical_distance
from preload_jax.models.distance import is_measured
from preload_jax.training import augment, densities
from preload_jax.training.data import TrainingData
from preload_jax.training.iterables import Batches
from preload_jax.training.stage import Settings

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
    """With what the training images say before the first step: a typical distance, a posterior, or densities."""
    if not isinstance(model.head, LaplaceHead | CCUHead):
        return _with_typical_distance(model, variables, load_data)
    data = load_data()
    if isinstance(data, Batches):
        what = "CCU" if isinstance(model.head, CCUHead) else "a Laplace approximation"
        raise UserError(f"{what} takes all training images at once; give arrays")
    weight = settings.numbers.ood_weight
    if isinstance(model.head, CCUHead):
        if "densities" in given.get("params", {}).get("head", {}):
            return variables
        options: dict[str, Any] = {"augmentations": settings.augmentations, "seed": settings.seed}
        return densities.prepared(model, variables, data, ood_weight=weight, **options)
    images, precision = np.asarray(data.images), settings.prior_precision
    if isinstance(model.head, RGPRHead):
        numbers = {**dict(settings.method.own), **settings.own}
        variance = numbers["spline_variance"]
        return bayes.fit_rgpr(model, variables, images, prior_precision=precision, variance=variance)[1]
    outliers = None
    if settings.method.uses_outliers:
        shape, policy = images.shape[1:], settings.augmentations.outliers
        change = partial(augment.augment_outliers, policy=policy, image_shape=shape)
        outliers = densities.seen(np.asarray(data.outliers), change, jax.random.key(settings.seed), most=len(images))
    _, found = bayes.fit_laplace(
        model, variables, images, prior_precision=precision, outliers=outliers, ood_weight=weight
    )
    return found


def _with_typical_distance(
    model: Classifier, variables: dict[str, Any], load_data: Callable[[], TrainingData | Batches]
) -> dict[str, Any]:
    """With μ and m of the training images, where the network sees the distance and nobody said from where."""
    body = model.backbone
    if not isinstance(body, WithDistance) or is_measured(variables):
        return variables
    # A typical distance is one from the center that is used.
    found = {"center": None if body.center is None else np.asarray(body.center.values), "scale": body.scale}
    if None in (body.center, body.scale):
        data = load_data()
        images = data.sample(_MEASURED) if isinstance(data, Batches) else np.asarray(data.images)
        measured = typical_distance(images, center=found["center"])
        found = {name: measured[name] if value is None else value for name, value in found.items()}
    stats = dict(variables["batch_stats"]["backbone"])
    stats |= {f"distance_{name}": jnp.asarray(value, jnp.float32) for name, value in found.items()}
    return {**variables, "batch_stats": {**variables["batch_stats"], "backbone": stats}}
