"""How many calibration scores a promise takes, and which one is the threshold: exact, by the binomial distribution.

By `scipy.special`: `scipy.stats` has the same values, to the bit, but takes most of a second to import.
"""

import math
from functools import lru_cache

from scipy.special import betainc, betaincinv

from preload_jax.checks import require_share
from preload_jax.errors import UserError

# No more calibration scores than its inverse are ever asked for.
_SMALLEST_RATE = 1e-9


def images_needed(false_alarm_rate: float, confidence: float) -> int:
    """The fewest calibration scores with which a rate can be promised: the least n with 1 − (1 − α)ⁿ ≥ confidence.

    Args:
        false_alarm_rate, confidence: as for `calibrate`.

    Raises:
        UserError: for numbers outside (0, 1).

    Example:
        >>> from preload_jax import decisions
        >>> decisions.images_needed(0.05, 0.95)
        59
    """
    rate, sure = require_share("false_alarm_rate", false_alarm_rate), require_share("confidence", confidence)
    # Below it more than 1 / _SMALLEST_RATE images are needed.
    smallest = max(_SMALLEST_RATE, -math.expm1(math.log1p(-sure) * _SMALLEST_RATE))
    if rate <= smallest:
        # Rounded up, so that what is above it is taken.
        exponent = math.floor(math.log10(smallest)) - 2
        least = math.ceil(smallest / 10.0**exponent - 1e-6) * 10.0**exponent
        raise UserError(
            f"a false-alarm rate of {rate:g} with {100 * sure:g} % confidence takes more than {1 / _SMALLEST_RATE:,.0f}"
            f" images; expected a rate above {least:.3g}"
        )
    n = max(1, math.floor(math.log1p(-sure) / math.log1p(-rate)))
    while not _keeps(n, 1, rate, sure):
        n += 1
    return n


@lru_cache(maxsize=1024)  # Asked for with every batch.
def rank(n: int, rate: float, confidence: float) -> int:
    """The largest k with P(Binomial(n, α) ≥ k) ≥ confidence; 1 where there is none."""
    kept, lost = 1, n + 1
    while lost - kept > 1:
        k = (kept + lost) // 2
        if _keeps(n, k, rate, confidence):
            kept = k
        else:
            lost = k
    return kept


def largest_rate(n: int, k: int, confidence: float) -> float:
    """The rate that inputs below the k-th smallest of n scores have at most, with this confidence: a quantile of Beta.

    Clopper and Pearson's bound: P(Beta(k, n + 1 − k) ≤ rate) = confidence.
    """
    return float(betaincinv(k, n + 1 - k, confidence))


def _keeps(n: int, k: int, rate: float, confidence: float) -> bool:
    """Whether the k-th smallest of n scores keeps the rate; "≥" up to the last digits of the distribution function."""
    return bool(betainc(k, n - k + 1, rate) >= confidence)
