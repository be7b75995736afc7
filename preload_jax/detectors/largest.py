"""The largest logit of each row and the log-sum-exp, on the host: for few classes a call of a device costs more."""

from functools import reduce

import numpy as np
from jaxtyping import Float

# Below this NumPy's loop over a row costs more than turning the rows into columns.
_NARROW = 64


def largest(logits: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n"]:
    """max_c z_c of each row."""
    return logits.max(axis=1) if logits.shape[1] >= _NARROW else reduce(np.maximum, logits.T)


def log_sum_exp(logits: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n"]:
    """log Σ_c exp z_c of each row: max z + log Σ_c exp(z_c − max z), which does not overflow."""
    narrow = logits.shape[1] < _NARROW
    # Few classes are the first axis, so that each step runs over long ones.
    z, axis = (logits.T.copy(), 0) if narrow else (logits, 1)
    top = z.max(axis=axis, keepdims=True)
    # z_c − max z may fall below the smallest number, and its exponential is 0 then.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        z = np.subtract(z, top, out=z if narrow else None)
        return top.ravel() + np.log(np.exp(z, out=z).sum(axis=axis))
