"""What `fit` is given, checked and completed."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from preload_jax import rows
from preload_jax.checks import is_real, require_finite, require_number
from preload_jax.detectors import data
from preload_jax.detectors.data import Head
from preload_jax.detectors.row import NEEDS, Row
from preload_jax.errors import UserError, unknown, warn_user
from preload_jax.integers import require_integer, require_integers

# Rows of which a head is asked what their logits are, and how like those given they must be.
_COMPARED = 64
_ALIKE = 0.5
# What half precision may make of logits, of how far they are apart.
_ROUNDED = 0.02
# Options that are integers, and their smallest values; and those that are real numbers, and their ranges.
_INTEGERS = {"k": 1, "largest": 1, "tail": 2, "dims": 1, "held_out": 0}
_PERCENT = {"at_least": 0.0, "at_most": 100.0}
_NUMBERS: dict[str, dict[str, float]] = {
    "temperature": {"above": 0.0},
    "gamma": {"above": 0.0},
    "power": {"above": 0.0},
    "noise": {"at_least": 0.0},
    "jitter": {"at_least": 0.0},
    "alpha": {},
    "cutoff": {},
    "percentile": _PERCENT,
    "low": _PERCENT,
    "high": _PERCENT,
}


def completed(name: str, row: Row, options: Mapping[str, Any]) -> dict[str, Any]:
    """The row's options with those given; a UserError for unknown ones."""
    others = sorted(set(options) - set(row.options))
    if others:
        raise UserError(unknown(f"option of {name}", others[0], row.options))
    # Lists cannot be keys of the table of compiled functions.
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    return {**row.options, **{key: _option(key, value, row.options[key]) for key, value in given.items()}}


def _option(name: str, value: Any, usual: Any) -> Any:
    """The value of an option, a number in its range; a UserError for another kind of value than the usual one."""
    if value is None and usual is None:
        return None
    if name in _INTEGERS:
        return require_integer(name, value, at_least=_INTEGERS[name])
    if name in _NUMBERS:
        return require_number(name, value, **_NUMBERS[name])
    if isinstance(usual, bool) and not isinstance(value, bool | np.bool_):
        raise UserError(f"{name} must be True or False, got {value!r}")
    if isinstance(usual, tuple):
        return require_integers(name, value, what="a list of integers", at_least=1)
    return value


def require_passes(name: str, row: Row, outputs: Any) -> None:
    """Raises a UserError where data that can be read once should be read more often."""
    if row.passes > 1 and not data.is_whole(outputs) and not callable(outputs) and _is_iterator(outputs):
        raise UserError(
            f"{name} reads the training data {row.passes} times or more, and an iterator can be read once; give a list,"
            " or a function that returns the batches anew"
        )


def peek(outputs: Any, labels: Any) -> tuple[Any, Any]:
    """The outputs, still whole, and their first batch."""
    if data.is_whole(outputs) or callable(outputs) or not _is_iterator(outputs):
        return outputs, next(data.batches(outputs, labels), None)
    start = list(itertools.islice(outputs, 1))
    return itertools.chain(start, outputs), next(data.batches(start, labels), None)


def _is_iterator(outputs: Any) -> bool:
    """Whether it can be read only once; what cannot be read at all is told of where it is read."""
    return isinstance(outputs, Iterable) and iter(outputs) is outputs


def as_head(head: Any) -> Head:
    """A pair (kernel [d, K], bias [K]) in float64; a UserError for anything else."""
    if not isinstance(head, tuple | list) or len(head) != 2:
        raise UserError("head is no pair; expected head=(kernel [d, K], bias [K])")
    kernel, bias = (np.asarray(data.on_host(x), np.float64) for x in head)
    if kernel.ndim != 2 or bias.shape != kernel.shape[1:]:
        raise UserError(
            f"head of shapes {list(kernel.shape)} and {list(bias.shape)}; expected a kernel [d, K] and a bias [K]"
            " (torch's weight is [K, d]: transpose it)"
        )
    if not (np.isfinite(kernel).all() and np.isfinite(bias).all()):
        raise UserError("the head holds NaN or infinity; expected finite numbers")
    return kernel, bias


def ray(
    slopes: Any, constants: Any, *, width: int | None, name: str, head: Head | None
) -> tuple[np.ndarray, np.ndarray]:
    """(slopes, constants) of features along rays, both in float64, for a detector fitted to features of a width.

    Raises:
        UserError: for other shapes than [n, d] both, what is no finite real number, or another d.
    """
    found = []
    for what, given in (("slopes", slopes), ("constants", constants)):
        array = data.on_host(given, name=what)
        if not is_real(array.dtype):
            raise UserError(f"{what} of type {array.dtype}; expected real numbers [n, d]")
        found.append(array.astype(np.float64))
    s, a = found
    if s.ndim != 2 or s.shape != a.shape or s.shape[1] == 0:
        raise UserError(f"slopes {list(s.shape)} and constants {list(a.shape)}; expected [n, d] both")
    if width not in (None, s.shape[1]):
        raise UserError(f"slopes and constants have {s.shape[1]} columns; {name} was fitted to {width}")
    if head is not None and len(head[0]) != s.shape[1]:
        raise UserError(
            f"slopes and constants have {s.shape[1]} columns and the head's kernel {len(head[0])} rows; expected the"
            " same number"
        )
    require_finite(s, name="slopes")
    require_finite(a, name="constants")
    return s, a


def fitting_head(head: Any, row: Row, first: Any) -> Head | None:
    """The head, or None where none is given nor needed; a UserError where it does not fit the features."""
    if head is None:
        if "head" in row.needs:
            raise UserError("head is missing; this detector needs head=(kernel [d, K], bias [K])")
        return None
    kernel, bias = as_head(head)
    columns = None if first is None else data.width(first[0])
    if columns is not None and columns != kernel.shape[0]:
        hint = "torch's weight is [K, d]: transpose it"
        if len(first[0].features) == kernel.shape[0]:
            hint = "the features seem to be transposed: give features.T"
        elif columns == kernel.shape[1] and first[0].logits is None:
            hint += "; logits are given as Outputs(logits=…)"
        raise UserError(
            f"features have {columns} columns and the head's kernel {kernel.shape[0]} rows; expected the same number"
            f" ({hint})"
        )
    if first is not None:
        _require_head_of_logits(kernel, bias, first[0], read="head" in row.needs)
    return kernel, bias


def _require_head_of_logits(kernel: np.ndarray, bias: np.ndarray, outputs: Any, *, read: bool) -> None:
    """Raises a UserError where the head makes quite other logits of the features than those that are given.

    Not of an offset, a factor or small differences: logits may be tempered, averaged or of half precision, and the head
    still be theirs.  A detector that reads the head (`read`) has two networks then, beyond rounding: a warning says so.
    """
    if outputs.features is None or outputs.logits is None:
        return
    features, logits = data.on_host(outputs.features), data.on_host(outputs.logits)
    count = min(bias.shape[0], logits.shape[1] if logits.ndim == 2 else 0)
    if features.ndim != 2 or len(features) != len(logits) or count < 2:
        return
    some = rows.spread(len(features), _COMPARED)
    x, z = (np.asarray(each[some]).astype(np.float64) for each in (features, logits))

    def likeness(w: np.ndarray) -> float:
        return _correlation(z[:, :count], (x @ w + bias)[:, :count])

    if (found := likeness(kernel)) < _ALIKE:
        square = kernel.shape[0] == kernel.shape[1] and likeness(kernel.T) >= _ALIKE
        advice = "transpose the kernel, as torch's weight is [K, d]" if square else "give the head of the same network"
        raise UserError(
            f"the head makes other logits of the features than those given (a correlation of {found:.2f});"
            f" expected features @ kernel + bias: {advice}"
        )
    with np.errstate(all="ignore"):
        made = (x @ kernel + bias)[:, :count]
        apart = made - z[:, :count]
        far = float(np.linalg.norm(apart)) > _ROUNDED * float(np.linalg.norm(made - made.mean(axis=1, keepdims=True)))
    if read and far:
        warn_user(
            "features @ kernel + bias are not the logits that are given: they differ by"
            f" {float(np.median(np.abs(apart))):.3g} in the median, and this detector reads the head; give the logits"
            " of this head, or leave them out, and they are computed"
        )


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Of logits, each row's mean apart; 1 where one of them tells no classes apart, or is not finite."""
    with np.errstate(all="ignore"):
        a, b = (each - each.mean(axis=1, keepdims=True) for each in (first, second))
        a, b = (each / np.abs(each).max(initial=0.0) for each in (a, b))
        found = float(np.vdot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))
    return found if np.isfinite(found) else 1.0


def require_stated_classes(stated: int | None, num_classes: int | None, row: Row, outputs: Any) -> None:
    """Raises a UserError where outputs say another number of classes than their logits, or than the training data.

    Args:
        stated: what the training data said; None where they did not.
        num_classes: K.
        row: the detector's.
        outputs: any `Outputs`.
    """
    said = outputs.num_classes
    if said is None:
        return
    columns = data.columns(outputs.logits, name="logits")
    if columns is not None and not 0 <= columns - said <= 1:
        raise UserError(
            f"the outputs say num_classes={said} and have {columns} logits; expected as many, or one logit more"
        )
    # Somebody may have counted the OOD class as one where nothing was said.
    fits = said == stated or (stated is None and num_classes in (None, said, columns if columns == said + 1 else said))
    if not fits and (stated is not None or {"logits", "ood_logit"} & set(row.needs)):
        raise UserError(
            f"the outputs say num_classes={said}, and the detector was fitted to {stated or num_classes} classes;"
            " expected outputs of the same network"
        )


def _require_same_classes(given: int | None, logits: int, head: int, *, with_ood: bool) -> None:
    """Raises a UserError unless logits and head are of the same classes; either may have the OOD class beside them."""
    if given is None and not with_ood and logits != head:
        raise UserError(
            f"{logits} logits, but the head has {head} columns; give num_classes if one of them is the OOD class"
        )
    classes = given if given is not None else logits - with_ood
    if head not in (classes, classes + 1):
        raise UserError(f"the head has {head} columns; expected {classes}, one for each class")


def _require_no_ood_class(labels: Any, columns: int) -> None:
    """Raises a UserError where the last logit alone has no label, as that of an OOD class has none."""
    numbers = np.asarray(data.on_host(labels, name="labels"))
    if columns < 3 or numbers.dtype.kind not in "iu" or numbers.max(initial=-1) != columns - 2:
        return
    # Looked for only now: `unique` takes longer than a score of logits.
    if len(np.unique(numbers)) == columns - 1 and numbers.min() == 0:
        raise UserError(
            f"class {columns - 1} has no examples; if the last of the {columns} logits is of an OOD class, give"
            f" num_classes={columns - 1}, and else num_classes={columns}"
        )


def count_classes(given: int | None, row: Row, outputs: Any, labels: Any, head: Head | None, first: Any) -> int | None:
    """K: as given, or as the outputs say, or the number of logits, or the largest label plus one."""
    if given is None and first is not None:
        given = first[0].num_classes
    columns = None if first is None else data.columns(first[0].logits, name="logits")
    if columns is not None:
        if head is not None:
            _require_same_classes(given, columns, head[0].shape[1], with_ood="ood_logit" in row.needs)
    elif head is not None:
        columns = head[0].shape[1]
    with_ood = "ood_logit" in row.needs
    if given is None:
        if columns is not None:
            largest = np.max(data.on_host(labels), initial=-1) if with_ood and labels is not None else -1
            if with_ood and data.is_whole(outputs) and largest >= columns - 1:
                raise UserError(
                    f"labels up to {largest} with {columns} logits; this detector needs"
                    f" {NEEDS['ood_logit']}, and no label is of it"
                )
            if not with_ood and labels is not None and data.is_whole(outputs):
                _require_no_ood_class(labels, columns)
            return columns - with_ood
        if with_ood:
            raise UserError(
                "num_classes is missing; training data without logits do not say which logit is of no class"
            )
        if "logits" in row.needs and not row.passes:
            # Nothing is learned, and all logits that come are of classes: labels may lack the last ones.
            return None
        if labels is not None and len(labels):
            return int(np.max(data.on_host(labels))) + 1
        if "labels" in row.needs and row.passes:
            if data.is_whole(outputs):
                raise UserError("labels are missing; this detector needs labels of the training data")
            raise UserError("num_classes is missing; batches without logits or a head do not say it")
        return None
    given = require_integer("num_classes", given, at_least=2)
    if columns is not None and not given <= columns <= given + 1:
        raise UserError(f"num_classes {given} with {columns} logits; expected as many, or one logit more")
    return given
