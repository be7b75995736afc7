"""A trained classifier with a Laplace approximation of its last layer, as one classifier."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from preload_jax.bayes import laplace
from preload_jax.bayes.laplace import Laplace
from preload_jax.devices import forward, reading
from preload_jax.devices.variables import plain, require_variables
from preload_jax.errors import UserError
from preload_jax.models import Classifier, LaplaceHead, LinearHead, RGPRHead
from preload_jax.models.mixtures import without_posterior


def fit_laplace(
    model: Classifier,
    variables: Mapping[str, Any],
    images: Any,
    *,
    structure: str = "kron",
    prior_precision: float | None = None,
    validation: tuple[Any, Any] | None = None,
    outliers: Any = None,
    ood_weight: float = 1.0,
    batch_size: int = 500,
) -> tuple[Classifier, dict[str, Any]]:
    """The classifier whose last layer is a Laplace approximation's predictive, and its variables.

    It is a `Classifier` like any other: `predict`, `evaluate`, detectors, rules and `guarantees.far_away_limit` take
    it.

    Args:
        model, variables: a trained classifier with a `LinearHead` without an OOD class.
        images: the training images, as `predict` takes them; labels are not needed.
        structure, prior_precision: see `bayes.posterior`.
        validation: (images, labels) of held-out examples, by which the prior's precision is chosen.
        outliers: what outlier exposure trained with, shaped as the images; their curvature counts λ times.
        ood_weight: λ.
        batch_size: images a compiled call.

    Raises:
        UserError: for another head, and as `bayes.posterior` and `predict` raise.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import bayes, make_classifier, predict
        >>> model = make_classifier("mlp", "linear", num_classes=3, widths=(8,))
        >>> images = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 1), np.uint8)
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> model, variables = bayes.fit_laplace(model, variables, images)
        >>> predict(model, variables, images).probabilities.shape
        (40, 3)
    """
    head = bayesian_head(model, structure)
    found = of_network(
        model, variables, images, structure=head.structure, prior_precision=prior_precision, validation=validation,
        outliers=outliers, ood_weight=ood_weight, batch_size=batch_size,
    )  # fmt: skip
    return Classifier(model.backbone.clone(parent=None), head), with_posterior(variables, found)


def of_network(
    model: Classifier,
    variables: Mapping[str, Any],
    images: Any,
    *,
    structure: str = "kron",
    prior_precision: float | None = None,
    validation: tuple[Any, Any] | None = None,
    outliers: Any = None,
    ood_weight: float = 1.0,
    batch_size: int = 500,
) -> Laplace:
    """The posterior of a network's last layer, see `bayes.posterior`; arguments as of `fit_laplace`."""
    require_variables(variables)
    options = {"batch_size": batch_size}
    held_out = None
    if validation is not None:
        held_out_images, labels = reading.pair(validation)
        held_out = features(model, variables, held_out_images, **options), labels
    return laplace.posterior(
        features(model, variables, images, **options),
        head=laplace.of_variables(plain(variables)),
        structure=structure,
        prior_precision=prior_precision,
        validation=held_out,
        outliers=None if outliers is None else features(model, variables, outliers, **options),
        ood_weight=ood_weight,
    )


def bayesian_head(model: Classifier, structure: str) -> LaplaceHead:
    """A `LaplaceHead` in place of the network's head; of one that has a posterior already, of its structure.

    Raises:
        UserError: for a head that is neither a `LaplaceHead` nor a `LinearHead` without an OOD class.
    """
    head = model.head
    # One's own subclass may compute anything of the same parameters.
    if type(head) in (LaplaceHead, RGPRHead):
        return LaplaceHead(head.num_classes, head.structure, head.zero_bias)
    if type(head) is LinearHead and not head.has_ood_class and not head.distance:
        return LaplaceHead(head.num_classes, structure, head.zero_bias)
    raise UserError(
        f"the head is a {type(head).__name__}{' with an OOD class' if getattr(head, 'has_ood_class', False) else ''};"
        " a last-layer Laplace approximation is of a LinearHead without an OOD class"
    )


def features(model: Classifier, variables: Mapping[str, Any], images: Any, *, batch_size: int) -> Any:
    """What the network's last layer takes, of images as `predict` takes them."""
    body, own = without_posterior(model, plain(variables))
    return forward.predict(body, own, images, batch_size=batch_size, features=True)[1]


def with_posterior(variables: Mapping[str, Any], found: Laplace) -> dict[str, Any]:
    """A network's variables with the posterior of its last layer, as a `LaplaceHead` reads it."""
    own = plain(variables)
    params = {name: own["params"][name] for name in own["params"]}
    params["head"] = {"linear": {name: jnp.asarray(x) for name, x in params["head"]["linear"].items()}}
    return {**own, "params": params, "batch_stats": {**own.get("batch_stats", {}), "head": found.stats()}}
