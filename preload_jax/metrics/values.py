"""What the metrics check before they compute: whether values are numbers, where they are, and of which type."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

# What a metric returns: a float64 of NumPy's where all inputs are NumPy's, else an array of JAX's.
Value = Array | np.floating
# Integers up to here are exact in float64.
_EXACT = 2**53


def check_scores(scores_in: Array | np.ndarray, scores_ood: Array | np.ndarray) -> None:
    """Raises unless both are non-empty arrays [n] without NaN; for callers under jit, where metrics cannot raise.

    Args:
        scores_in, scores_ood: [n] and [m].

    Raises:
        ValueError: for another shape or type, no scores, or NaN, with the count.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> metrics.check_scores(np.array([0.9, np.nan]), np.array([0.1]))
        Traceback (most recent call last):
            ...
        ValueError: 1 of 2 in-domain scores are NaN: no metric of them means anything
    """
    for name, scores in (("in-domain scores", scores_in), ("OOD scores", scores_ood)):
        if scores.ndim != 1:
            raise ValueError(f"{name} have shape {list(scores.shape)}; expected one score an input, [n]")
        check_values(name, scores)


def check_labelled(name: str, values: Array | np.ndarray, labels: Array | np.ndarray) -> None:
    """`check_values`, and a ValueError unless each row of [n, k] has a label of its own, in 0 … k − 1."""
    if values.ndim != 2 or labels.shape != values.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"{name} {list(values.shape)} with labels {labels.dtype} {list(labels.shape)};"
            " expected [n, k] and integers [n]"
        )
    check_values(name, values)
    if isinstance(labels, jax.core.Tracer):
        return
    concrete = np.asarray(labels)
    low, high = int(concrete.min()), int(concrete.max())
    if low < 0 or high >= values.shape[1]:
        raise ValueError(f"labels run from {low} to {high}; expected 0 to {values.shape[1] - 1}")


def check_values(name: str, values: Array | np.ndarray) -> None:
    """Raises unless there are values and none is NaN; traced values are not looked at.

    Args:
        name: what messages call them.
        values: an array of real numbers, of any shape with at least one axis.

    Raises:
        ValueError: for no values, complex ones, or NaN, with the count.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> metrics.check_values("scores", np.array([]))
        Traceback (most recent call last):
            ...
        ValueError: no scores: a metric needs at least one value
    """
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} are a masked array; its hidden values would count: fill or drop them")
    if values.shape[0] == 0:
        raise ValueError(f"no {name}: a metric needs at least one value")
    if not (jnp.issubdtype(values.dtype, jnp.number) or values.dtype == bool) or jnp.iscomplexobj(values):
        raise ValueError(f"{name} are of type {values.dtype}; expected real numbers")
    if isinstance(values, jax.core.Tracer) or not jnp.issubdtype(values.dtype, jnp.inexact):
        return
    if is_on_host(values):
        num_nan = sum(int(np.isnan(block).sum()) for block in blocks(np.asarray(values)))
    else:
        # Of an array that a function under jit has from outside jax.numpy would make a traced count.
        with jax.ensure_compile_time_eval():
            num_nan = int(jnp.isnan(values).sum())
    if num_nan:
        raise ValueError(f"{num_nan} of {values.size} {name} are NaN: no metric of them means anything")


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


def of_one_type(first: Array | np.ndarray, second: Array | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both on the host and in one type, in which numbers that differ still differ.

    Raises:
        ValueError: when NumPy has no such type on this machine (integers beyond 2^53 beside floats).
    """
    arrays = as_numpy(first), as_numpy(second)
    common = np.result_type(*arrays)
    integers = [array for array in arrays if array.dtype.kind in "iu"]
    # NumPy's common type of int64 and uint64, and of int64 and floats, is float64.
    if common.kind == "f" and any(int(a.max()) > _EXACT or int(a.min()) < -_EXACT for a in integers):
        common = np.dtype(np.longdouble)
        if np.finfo(common).nmant < 63:
            raise ValueError("integer scores beyond 2^53 beside scores of another type; expected one type for both")
    return arrays[0].astype(common, copy=False), arrays[1].astype(common, copy=False)


def labelled_blocks(values: Array | np.ndarray, labels: Array | np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, their labels), a block at a time."""
    start, labels = 0, np.asarray(labels)
    for rows in blocks(np.asarray(values)):
        yield as_numpy(rows), labels[start : start + len(rows)]
        start += len(rows)
