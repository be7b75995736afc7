"""The largest logit of each row and the log-sum-exp, on the host: for few classes a call of a device costs more.

And the two largest of each row, compiled.
"""

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# Below this NumPy's loop over a row costs more than turning the rows into columns.
_NARROW = 64


def largest(logits: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n"]:
    """max_c z_c of each row."""
    return logits.max(axis=1) if logits.shape[1] >= _NARROW else reduce(np.maximum, logits.T)


def log_sum_exp(logits: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n"]:
    """log Σ_c exp z_c of each row; where sums overflow or vanish, max z + log Σ_c exp(z_c − max z)."""
    ones, limits = np.ones(logits.shape[1], logits.dtype), np.finfo(logits.dtype)
    # What exponentials lose below the smallest number is less than this sum's last digit.
    least = len(ones) * float(limits.tiny) / float(limits.eps)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        sums = np.exp(logits) @ ones
        if sums.min() > least and sums.max() <= limits.max:
            return np.log(sums)
        top = largest(logits)
        return top + np.log(np.exp(logits - top[:, None]) @ ones)


def two_largest(
    logits: Float[Array, "n k"],
) -> tuple[Float[Array, "n 1"], Float[Array, "n 1"], Bool[Array, "n k"]]:
    """The largest logit, the second largest, and where the largest is: in one column, also of equal ones.

    By their places: on a CPU XLA's maximum of a short row takes four times as long as that of where it is.  Of a single
    class the second largest is the largest itself.
    """

    def place(x: Array) -> Array:
        return jnp.argmax(x, axis=-1, keepdims=True)

    first = place(logits)
    is_first = jax.nn.one_hot(first[..., 0], logits.shape[-1], dtype=bool)
    second = place(jnp.where(is_first, -jnp.inf, logits))
    return jnp.take_along_axis(logits, first, axis=-1), jnp.take_along_axis(logits, second, axis=-1), is_first
