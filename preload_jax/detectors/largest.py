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
