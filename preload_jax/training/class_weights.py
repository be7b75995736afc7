"""The weights of the classes in the in-domain cross entropy: as they are given, or from the labels."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from preload_jax.checks import as_array, require_number
from preload_jax.errors import UserError

BALANCED = "balanced"
# What `fit` takes, after a look at it.
ClassWeights = str | tuple[float, ...] | None


def checked(given: Any, num_classes: int | None) -> ClassWeights:
    """Class weights as `Settings` has them: None, "balanced", or K numbers above 0.

    Raises:
        UserError: for anything else, or where it is not known how many classes there are.
    """
    if given is None or (isinstance(given, str) and given == BALANCED):
        return given
    array = None if isinstance(given, str) else as_array(given, name="class_weights")
    if array is None or array.ndim != 1:
        raise UserError(f'class_weights are {given!r}; expected "balanced", or a number above 0 for each class')
    # Far beyond what is of use, and still within float32.
    numbers = tuple(require_number("a class weight", each, at_least=1e-12, at_most=1e12) for each in array.tolist())
    if num_classes is not None and len(numbers) != num_classes:
        raise UserError(f"{len(numbers)} class_weights for {num_classes} classes; expected one for each class")
    return numbers


def numbers(given: ClassWeights, labels: Any, num_classes: int) -> Any:
    """w, float32 [K]: those given, or n / (K n_c) of the class with n_c of all n labels, as scikit-learn balances.

    Args:
        given: what `checked` returned, but None.
        labels: [n], in 0 … K − 1; None where they come in batches.
        num_classes: K.

    Raises:
        UserError: for "balanced" without labels, or with a class that has none.

    Example:
        >>> import numpy as np
        >>> from preload_jax.training import class_weights
        >>> class_weights.numbers("balanced", np.array([0, 0, 0, 1]), 2).round(3).tolist()
        [0.6669999957084656, 2.0]
    """
    if given != BALANCED:
        return jnp.asarray(given, jnp.float32)
    if labels is None:
        raise UserError(
            'class_weights="balanced" counts the labels before training, and those of batches are not known then; give'
            " a number for each class"
        )
    counts = np.bincount(np.asarray(labels), minlength=num_classes)[:num_classes]
    if not counts.all():
        raise UserError(
            f'class {int(counts.argmin())} has no training images; class_weights="balanced" needs some of each class'
        )
    return jnp.asarray(counts.sum() / (num_classes * counts), jnp.float32)
