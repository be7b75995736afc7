"""What the functions of this room are given, checked."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from preload_jax.checks import as_array
from preload_jax.errors import UserError


def checked_scores(scores: Any, *, name: str = "scores", single: bool = True) -> Float[np.ndarray, "m"]:
    """The scores, [m]; a UserError for NaN, another shape or another type.

    `single`: as float32 has them, so that a score is itself, whether it was stored in float32 or in float64.
    """
    array = as_array(scores, name=name)
    # JAX's bfloat16 is a real type, too, which NumPy does not know.
    is_real = any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.floating, jnp.integer))
    if array.ndim != 1 or not is_real:
        raise UserError(f"{name} are {array.dtype} {list(array.shape)}; expected real numbers [n]")
    if not jnp.issubdtype(array.dtype, jnp.floating) and array.size:
        low, high, most = int(array.min()), int(array.max()), 2**24 if single else 2**53
        if not -most <= low <= high <= most:
            raise UserError(
                f"{name} are integers from {low} to {high}, which float{32 if single else 64} does not tell apart;"
                f" expected at most {most:,} in size: subtract the same integer from all, or give their logarithms"
            )
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        values = (array.astype(np.float32) if single else array).astype(np.float64)
        exact = array.astype(np.float64)
    if (np.isinf(values) & np.isfinite(exact)).any() or ((values == 0.0) & (exact != 0.0)).any():
        raise UserError(
            f"{name} are too large or too small for float32; expected a score on another scale: its logarithm"
        )
    if np.isnan(values).any():
        raise UserError(f"{int(np.isnan(values).sum())} of {len(values)} {name} are NaN; expected numbers")
    return values


def checked_classes(classes: Any, count: int) -> Int[np.ndarray, "m"]:
    """The predicted classes, one an input; a UserError otherwise."""
    if classes is None:
        raise UserError("the rule has a threshold for each predicted class; give classes, one an input")
    labels = as_array(classes, name="classes")
    if not count and labels.shape == (0,):  # An empty list has no integers.
        return labels.astype(np.int64)
    if labels.shape != (count,) or labels.dtype.kind not in "iu" or (count and labels.min() < 0):
        raise UserError(f"classes are {labels.dtype} {list(labels.shape)}; expected integers 0 … K - 1, [{count}]")
    return labels
