"""What the metrics check before they compute: whether values are numbers, where they are, and of which type."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from preload_jax.errors import UserError

# What a metric returns: a float64 of NumPy's where all inputs are NumPy's, else an array of JAX's.
Value = Array | np.floating
# Integers up to here are exact in float64.
_EXACT = 2**53
# Of rounding in half precision: of a probability, and of the logarithm of a sum of a thousand.
_SLACK = 1e-2
_SLACK_OF_LOGARITHM = 0.05


def check_scores(scores_in: Array | np.ndarray, scores_ood: Array | np.ndarray) -> None:
    """Raises unless both are non-empty arrays [n] without NaN; for callers under jit, where metrics cannot raise.

    Args:
        scores_in, scores_ood: [n] and [m].

    Raises:
        UserError: for another shape or type, no scores, or NaN, with the count.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> metrics.check_scores(np.array([0.9, np.nan]), np.array([0.1]))
        Traceback (most recent call last):
            ...
        preload_jax.errors.UserError: 1 of 2 in-domain scores are NaN: no metric of them means anything
    """
    for name, scores in (("in-domain scores", scores_in), ("OOD scores", scores_ood)):
        require_arrays(**{name: scores})
        if scores.ndim != 1:
            raise UserError(f"{name} have shape {list(scores.shape)}; expected one score an input, [n]")
        check_values(name, scores)


def check_labelled(name: str, values: Array | np.ndarray, labels: Array | np.ndarray) -> None:
    """`check_values`, and a UserError unless each row of [n, k] has a label of its own, in 0 … k − 1."""
    require_arrays(**{name: values, "labels": labels})
    if values.ndim != 2 or labels.shape != values.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise UserError(
            f"{name} {list(values.shape)} with labels {labels.dtype} {list(labels.shape)};"
            " expected [n, k] and integers [n]"
        )
    check_values(name, values)
    if isinstance(labels, jax.core.Tracer):
        return
    concrete = np.asarray(labels)
    low, high = int(concrete.min()), int(concrete.max())
    if low < 0 or high >= values.shape[1]:
        raise UserError(f"labels run from {low} to {high}; expected 0 to {values.shape[1] - 1}")


def check_probabilities(name: str, probabilities: Array | np.ndarray) -> None:
    """Raises a UserError unless they are [n, k] from 0 to 1, up to rounding; traced ones are not looked at."""
    require_rows(name, probabilities)
    if isinstance(probabilities, jax.core.Tracer):
        return
    low, high = _range(probabilities)
    if low < -_SLACK or high > 1.0 + _SLACK:
        raise UserError(
            f"{name} run from {low:.3g} to {high:.3g}; expected numbers from 0 to 1: take the softmax of logits"
        )


def check_log_probabilities(name: str, values: Array | np.ndarray) -> None:
    """Raises a UserError unless a row's exponentials add up to 1 at most; traced values are not looked at."""
    require_rows(name, values)
    if isinstance(values, jax.core.Tracer):
        return
    # Larger ones are none, and would overflow.
    if is_on_host(values):
        sums = (np.exp(np.minimum(as_floats(block), 1.0)).sum(axis=1) for block in blocks(np.asarray(values)))
        largest = max(float(of_block.max()) for of_block in sums)
    else:
        with jax.ensure_compile_time_eval():
            largest = float(jnp.exp(jnp.minimum(at_least_float32(values), 1.0)).sum(axis=1).max())
    if largest > math.exp(_SLACK_OF_LOGARITHM):
        raise UserError(
            f"the exponentials of a row of {name} add up to more than 1; expected 1 at most: take the log-softmax of"
            " logits, or the logarithm of probabilities"
        )


def _range(values: Array | np.ndarray) -> tuple[float, float]:
    if is_on_host(values):
        ends = [(float(block.min()), float(block.max())) for block in map(as_numpy, blocks(np.asarray(values)))]
        return min(low for low, _ in ends), max(high for _, high in ends)
    with jax.ensure_compile_time_eval():
        return float(jnp.min(values)), float(jnp.max(values))


def require_rows(name: str, values: Array | np.ndarray) -> None:
    """Raises a UserError unless they are [n, k]."""
    if values.ndim != 2 or values.shape[1] == 0:
        raise UserError(f"{name} have shape {list(values.shape)}; expected [n, k], a column a class")


def require_arrays(**values: Any) -> None:
    """Raises a UserError for what is no array of NumPy or JAX, and for masked arrays."""
    for name, value in values.items():
        if isinstance(value, np.ma.MaskedArray):
            raise UserError(f"{name} are a masked array; its hidden values would count: fill or drop them")
        if not isinstance(value, np.ndarray | jax.Array):
            raise UserError(
                f"{name} are a {type(value).__name__}; expected an array of NumPy or JAX: numpy.asarray makes one of a"
                " list"
            )


def check_values(name: str, values: Array | np.ndarray) -> None:
    """Raises unless there are values and none is NaN; traced values are not looked at.

    Args:
        name: what messages call them.
        values: an array of real numbers, of any shape with at least one axis.

    Raises:
        UserError: for no values, complex ones, or NaN, with the count.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> metrics.check_values("scores", np.array([]))
        Traceback (most recent call last):
            ...
        preload_jax.errors.UserError: no scores: a metric needs at least one value
    """
    require_arrays(**{name: values})
    if values.ndim == 0:
        raise UserError(f"{name} are a single number; expected an array with a row an input")
    if values.shape[0] == 0:
        raise UserError(f"no {name}: a metric needs at least one value")
    if not (jnp.issubdtype(values.dtype, jnp.number) or values.dtype == bool) or jnp.iscomplexobj(values):
        raise UserError(f"{name} are of type {values.dtype}; expected real numbers")
    if isinstance(values, jax.core.Tracer) or not jnp.issubdtype(values.dtype, jnp.inexact):
        return
    if is_on_host(values):
        num_nan = sum(int(np.isnan(block).sum()) for block in blocks(np.asarray(values)))
    else:
        # Of an array that a function under jit has from outside jax.numpy would make a traced count.
        with jax.ensure_compile_time_eval():
            num_nan = int(jnp.isnan(values).sum())
    if num_nan:
        raise UserError(f"{num_nan} of {values.size} {name} are NaN: no metric of them means anything")


def is_on_host(*arrays: Array | np.ndarray) -> bool:
    """Whether NumPy can read all the arrays where they are: none is traced or on an accelerator.

    Then a metric is computed by NumPy in full precision.  XLA would make float32 of float64, and its sort takes
    seventy times as long on a CPU.
    """
    return all(
        isinstance(array, np.ndarray)
        or (not isinstance(array, jax.core.Tracer) and all(device.platform == "cpu" for device in array.devices()))
        for array in arrays
    )


def blocks(values: np.ndarray, *, size: int = 2**20) -> Iterator[np.ndarray]:
    """The rows of an array, about `size` numbers at a time: what is computed of them needs little memory."""
    rows = max(1, size // max(1, values[:1].size))
    for start in range(0, len(values), rows):
        yield values[start : start + rows]


def result(value: Any, *inputs: Array | np.ndarray) -> Value:
    """A number in the library of the inputs: NumPy's float64, or JAX's default type of float."""
    if all(isinstance(array, np.ndarray) for array in inputs):
        return np.float64(value)
    return jnp.asarray(value, jnp.result_type(float))


def at_least_float32(values: Any) -> Any:
    """The values in float32, or wider where they are: half precision loses a sum after some hundred terms."""
    return values.astype(jnp.float64 if values.dtype == jnp.float64 else jnp.float32)


def as_numpy(values: Array | np.ndarray) -> np.ndarray:
    """On the host, in a type that NumPy computes with and that holds every value exactly."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.dtype.itemsize >= 4:
        return array
    if array.dtype == bool or jnp.issubdtype(array.dtype, jnp.integer):
        return array if array.dtype.kind in "iu" else array.astype(np.int64)
    return array.astype(np.float32)


def as_floats(values: Array | np.ndarray) -> np.ndarray:
    """`as_numpy`, whole numbers in float64."""
    array = as_numpy(values)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def of_one_type(first: Array | np.ndarray, second: Array | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both on the host and in one type, in which numbers that differ still differ.

    Raises:
        UserError: when NumPy has no such type on this machine (integers beyond 2^53 beside floats).
    """
    arrays = as_numpy(first), as_numpy(second)
    common = np.result_type(*arrays)
    integers = [array for array in arrays if array.dtype.kind in "iu"]
    # NumPy's common type of int64 and uint64, and of int64 and floats, is float64.
    if common.kind == "f" and any(int(a.max()) > _EXACT or int(a.min()) < -_EXACT for a in integers):
        common = np.dtype(np.longdouble)
        if np.finfo(common).nmant < 63:
            raise UserError("integer scores beyond 2^53 beside scores of another type; expected one type for both")
    return arrays[0].astype(common, copy=False), arrays[1].astype(common, copy=False)


def labelled_blocks(values: Array | np.ndarray, labels: Array | np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, their labels), a block at a time."""
    start, labels = 0, np.asarray(labels)
    for rows in blocks(np.asarray(values)):
        yield as_numpy(rows), labels[start : start + len(rows)]
        start += len(rows)
