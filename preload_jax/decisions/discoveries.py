"""Calling a part of a batch OOD with a known rate of false discoveries."""

import numpy as np
from jaxtyping import Bool, Float

from preload_jax.checks import require_share
from preload_jax.decisions.arguments import checked_scores
from preload_jax.errors import UserError


def benjamini_hochberg(p_values: Float[np.ndarray, "m"], *, false_discovery_rate: float = 0.1) -> Bool[np.ndarray, "m"]:
    """Which of a batch of inputs are called OOD so that, on average, at most this share of those called so is not OOD.

    The inputs with the j smallest p-values are called OOD, for the largest j with p_(j) ≤ j·rate / m.  With conformal
    p-values from one calibration set the rate is kept (Benjamini and Hochberg, 1995; Bates et al., 2023).

    Args:
        p_values: [m], of `Rule.p_values`.
        false_discovery_rate: between 0 and 1, both excluded.

    Raises:
        UserError: for p-values outside [0, 1], or a rate outside (0, 1).

    Example:
        >>> import numpy as np
        >>> from preload_jax import decisions
        >>> decisions.benjamini_hochberg(np.array([0.9, 0.01, 0.04, 0.5])).tolist()
        [False, True, True, False]
    """
    rate = require_share("false_discovery_rate", false_discovery_rate)
    p = checked_scores(p_values, name="p-values", single=False)
    if len(p) and not (p.min() >= 0.0 and p.max() <= 1.0):
        raise UserError(f"p-values run from {p.min():g} to {p.max():g}; expected numbers from 0 to 1")
    ordered = np.sort(p)
    passed = np.flatnonzero(ordered <= rate * np.arange(1, len(p) + 1) / max(len(p), 1))
    return p <= ordered[passed[-1]] if len(passed) else np.zeros(len(p), bool)
