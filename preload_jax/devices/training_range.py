"""The range of the numbers that a network was trained on.  Inputs of another scale get wrong answers without an error.

`fit` and `attach` note it with the weights that they return, `weights.save` and `save_program` write it into their
files, and whoever asks a network is warned where inputs are of another scale.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from preload_jax.checks import outside_unit_range, unit_of, unlike_images
from preload_jax.devices.by_weights import ByWeights
from preload_jax.errors import UserError, warn_user
from preload_jax.integers import as_float

Range = tuple[float, float]
# Weights whose ranges are remembered at once.
_KEPT = ByWeights(most=1024)
# Times by which inputs may be larger than those of training, and smaller: that much is chance.
_LARGER, _SMALLER = 3.0, 8.0
# Inputs of which it is no chance that none is negative, or none large.
_MANY = 16


def of(inputs: np.ndarray) -> Range | None:
    """The least and the largest number as the network sees them, uint8 divided by 255; None for other integers.

    Args:
        inputs: [n, …], finite.
    """
    if not inputs.size or not (inputs.dtype == np.uint8 or jnp.issubdtype(inputs.dtype, jnp.floating)):
        return None
    unit = unit_of(inputs)
    return float(inputs.min()) / unit, float(inputs.max()) / unit


def remember(variables: Mapping[str, Any], found: Range | None) -> None:
    """Notes what a network was trained on, with its weights, for as long as they live."""
    if found is not None:
        _KEPT.put(variables, found)


def recall(variables: Mapping[str, Any]) -> Range | None:
    """What was noted; None for weights from elsewhere."""
    return _KEPT.get(variables)


def check(given: Any) -> Range | None:
    """(least, largest) as two floats.

    Raises:
        UserError: for anything else that is not None.
    """
    if given is None:
        return None
    try:
        low, high = (as_float(number) for number in given)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not (np.isfinite([low, high]).all() and low <= high):
        raise UserError(f"input_range is {given!r}; expected (least, largest) of the training inputs, such as (0, 1)")
    return float(low), float(high)


def warn(inputs: np.ndarray, trained: Range | None, *, ood_set: str | None = None) -> None:
    """Warns where inputs are of another scale than those of training.

    Where these are not known, images [n, h, w, c] are expected in [0, 1], which the library's data are in; inputs of
    another rank are tables or features, and of any size.

    Args:
        inputs: [n, …], finite.
        trained: the range of the training inputs, where it is known.
        ood_set: the name of the OOD set that these are.  Such sets may be far away on purpose: what is larger than
            images that were not divided by 255 are is not told.
    """
    of_images = inputs.ndim == 4
    as_usual = of_images and (trained is None or _is_unit(trained))
    if as_usual and inputs.dtype == np.uint8:
        return
    found = of(inputs) if as_usual or trained is not None else None
    if found is None:
        return
    if not (unlike_images(*found) if trained is None or as_usual else _is_other(found, trained, len(inputs) >= _MANY)):
        return
    usual = 1.0 if trained is None else max(map(abs, trained))
    if ood_set is not None and max(map(abs, found)) > 255.0 * max(usual, 1.0):
        return
    seen = "networks here are made for [0, 1] (uint8 is divided by 255)"
    if trained is not None:
        divided = "; it sees uint8 divided by 255" if inputs.dtype == np.uint8 else ""
        seen = f"the network was trained on numbers {_span(trained)}{divided}"
    kind = "images" if of_images else "inputs"
    whose = "" if ood_set is None else f"OOD set {ood_set!r}: "
    warn_user(
        f"{whose}{kind} run {_span(found)}; {seen}. Scale them as the training {kind} were, unless they are far away on"
        " purpose"
    )


def _span(numbers: Range) -> str:
    return f"from {numbers[0]:.4g} to {numbers[1]:.4g}"


def _is_unit(trained: Range) -> bool:
    """Whether a network was trained on images in [0, 1]."""
    return not outside_unit_range(*trained) and not unlike_images(*trained)


def _is_other(found: Range, trained: Range, many: bool) -> bool:
    """Whether the scale is another beyond chance: larger, smaller, or of other signs."""
    size, usual = (max(abs(low), abs(high)) for low, high in (found, trained))
    if size > _LARGER * usual or (found[0] < 0.0 <= trained[0] and -found[0] > usual / _SMALLER):
        return True
    without_sign = found[0] >= 0.0 and -trained[0] > usual / _SMALLER
    return many and (size < usual / _SMALLER or without_sign)
