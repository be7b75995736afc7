"""The options of `fit`, looked at and put together."""

from typing import Any

import optax

from preload_jax import methods
from preload_jax.errors import UserError
from preload_jax.models import Classifier
from preload_jax.training import class_weights as weights_of_classes
from preload_jax.training.stage import Numbers


def class_weights(given: Any, model: Classifier, labels: Any) -> weights_of_classes.ClassWeights:
    """The class weights, after a look at them.

    Raises:
        UserError: for what `class_weights.checked` refuses, "balanced" without an array of labels, or another head.
    """
    if given is None:
        return None
    num_classes = getattr(model.head, "num_classes", None)
    if num_classes is None:
        raise UserError(f"class_weights need a head with num_classes; a {type(model.head).__name__} has none")
    found = weights_of_classes.checked(given, num_classes)
    if found == weights_of_classes.BALANCED and labels is None:
        weights_of_classes.numbers(found, None, num_classes)
    return found


def check(row: methods.Method, **given: Any) -> None:
    """Raises a UserError for a number of another method, and for a method that trains nothing."""
    if not row.stages:
        then = f"score with detectors.fit({row.name!r}, …)" if row.scores_features else f"then bayes.fit_{row.head}(…)"
        raise UserError(f'{row.name} trains nothing: fit(..., method="{row.starts_from}"), and {then}')
    for name, value in given.items():
        of = methods.with_option("init" if name == "ood_head" else name)
        if value is not None and row.name not in of:
            raise UserError(f"{name} is for {' and '.join(of)}, the method is {row.name}; leave it out")
        if name.startswith("margin") and value is None and row.name in of:
            raise UserError(
                f"{row.name} needs margin_in and margin_ood: energies between those of in-domain images and of outliers"
            )


def numbers(
    row: methods.Method,
    epochs: int,
    optimizer: str | optax.GradientTransformation,
    learning_rate: float | None,
    weight_decay: float | None,
    ood_weight: float | None,
) -> Numbers:
    """A stage's numbers, with what is not given as the method has it."""
    if not isinstance(optimizer, str) and (learning_rate, weight_decay) != (None, None):
        raise UserError("an Optax transformation has its own learning rate and weight decay; leave out those given")
    if ood_weight is not None and not row.sees_ood:
        raise UserError(f"ood_weight is λ of the outliers, and {row.name} uses none; leave it out")
    return Numbers(
        epochs,
        optimizer,
        1e-3 if learning_rate is None else learning_rate,
        5e-4 if weight_decay is None else weight_decay,
        row.ood_weight if ood_weight is None else ood_weight,
    )
