"""Further calibration errors, on the host in float64: adaptive, classwise, and an interval for the ECE."""

from dataclasses import dataclass

import numpy as np

from preload_jax.checks import require_share
from preload_jax.errors import UserError
from preload_jax.integers import require_integer, require_seed
from preload_jax.metrics.calibration import Labels, Rows, check_bins, equal_bins
from preload_jax.metrics.values import as_floats, as_numpy, check_labelled, check_probabilities

# Draws of n inputs at once: a hundred megabytes at most.
_DRAWN = 2**22


@dataclass(frozen=True)
class CalibrationInterval:
    """An ECE and between which numbers the error of all inputs lies, of which these are a sample.

    Attributes:
        estimate: the ECE of the inputs given.
        low, high: the ends of the interval.
        confidence: how sure it is.

    Example: see `calibration_error_interval`.
    """

    estimate: float
    low: float
    high: float
    confidence: float


def adaptive_calibration_error(probabilities: Rows, labels: Labels, *, num_bins: int = 15) -> np.float64:
    """The ECE with bins that hold equally many inputs: `Σ_b |B_b|/n · |accuracy(B_b) − confidence(B_b)|`.

    The i-th bin ends at the ⌈i·n / num_bins⌉-th smallest confidence and holds what equals it, so that the order of
    equal confidences changes nothing.  (Nguyen and O'Connor, 2015; "adaptive ECE" in Mukhoti et al., 2020.)

    Args:
        probabilities: [n, K], in 0 … 1; the K in-domain columns, not renormalised, for a network with an OOD class.
        labels: in 0 … K − 1.
        num_bins: at least 1.

    Raises:
        UserError: for no inputs, NaN, other shapes, labels that are no class, or no bins.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
        >>> metrics.adaptive_calibration_error(probabilities, np.array([0, 0, 0, 1]), num_bins=2).round(3).item()
        0.15
    """
    confidence, correct = _top(probabilities, labels)
    check_bins(num_bins)
    n = len(confidence)
    # Integers: ⌈i·n / num_bins⌉ for i = 1 … num_bins − 1.
    ends = np.sort(confidence)[-(-np.arange(1, num_bins) * n // num_bins) - 1]
    bins = np.searchsorted(ends, confidence, side="left")
    return np.float64(np.abs(np.bincount(bins, weights=correct - confidence, minlength=num_bins)).sum() / n)


def classwise_calibration_error(probabilities: Rows, labels: Labels, *, num_bins: int = 15) -> np.float64:
    """`1/K Σ_c Σ_b |B_bc|/n · |share of class c in B_bc − mean of p_c in B_bc|`: the mean over classes of their error.

    B_bc are the inputs whose probability of class c is in the b-th of the equal bins (i/num_bins, (i+1)/num_bins], 0 in
    the first.  It sees every probability, where the ECE sees the largest alone.  (Kull et al., 2019, classwise-ECE;
    Nixon et al., 2019, static calibration error.)

    Args:
        probabilities, labels, num_bins: as for `adaptive_calibration_error`.

    Raises:
        UserError: as `adaptive_calibration_error`.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> probabilities = np.array([[0.75, 0.25]] * 4)
        >>> metrics.classwise_calibration_error(probabilities, np.array([0, 0, 1, 1])).item()
        0.25
    """
    check_labelled("probabilities", probabilities, labels)
    check_probabilities("probabilities", probabilities)
    check_bins(num_bins)
    rows, y = as_numpy(probabilities), np.asarray(labels)
    total = 0.0
    for c in range(rows.shape[1]):
        p = rows[:, c].astype(np.float64)
        total += np.abs(np.bincount(equal_bins(rows[:, c], num_bins), weights=(y == c) - p, minlength=num_bins)).sum()
    return np.float64(total / rows.size)


def calibration_error_interval(
    probabilities: Rows,
    labels: Labels,
    *,
    num_bins: int = 15,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> CalibrationInterval:
    """The ECE with an interval, by drawing n inputs with replacement many times (the bootstrap; Efron, 1979).

    The ECE of a sample is too large on average: noise adds to it, above all where the error is small.  So the
    percentiles of the drawn ECEs miss a small error nearly always.  With `δ_b = Σ (correct − confidence) / n` over the
    b-th bin, `ECE = Σ_b |δ_b|`, δ* those of the drawn inputs, and α = 1 − confidence, the ends are

    - low: `max(0, ECE − q)`, q being the (1 − α/2)-quantile of `Σ_b |δ*_b − δ_b|`;
    - high: the (1 − α/2)-quantile of `Σ_b |δ*_b|`.

    The lower end follows from the triangle inequality, `|Σ_b |δ_b| − Σ_b |ε_b|| ≤ Σ_b |δ_b − ε_b|`, and is 0
    where the confidences may be right.  In simulations the ends missed the true error about as often as α/2 says, or
    less.  There is one exception.  Where a few inputs hold hardly any mistake, drawing from them cannot show those that
    are missing, and the interval is too short.

    Args:
        probabilities, labels, num_bins: as for `expected_calibration_error`.
        confidence: between 0 and 1, both excluded.
        resamples: how many times inputs are drawn, at least 100.
        seed: of the draws; the same seed gives the same interval.

    Raises:
        UserError: as `expected_calibration_error`, and for another confidence, seed or number of draws.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> labels = np.arange(200) % 4 // 3  # three of four are class 0
        >>> found = metrics.calibration_error_interval(np.tile([0.9, 0.1], (200, 1)), labels)
        >>> round(found.estimate, 3), round(found.low, 2), round(found.high, 2)
        (0.15, 0.08, 0.21)
    """
    stated, correct = _top(probabilities, labels)
    if len(stated) < 2:
        raise UserError("1 input; an interval takes two at least, and means something with many")
    check_bins(num_bins)
    confidence = require_share("confidence", confidence)
    resamples = require_integer("resamples", resamples, at_least=100)
    seed = require_seed(seed)
    rng = np.random.default_rng(seed)
    n, gaps = len(stated), correct - stated
    bins = equal_bins(as_floats(probabilities).max(axis=1), num_bins)
    of_all = np.bincount(bins, weights=gaps, minlength=num_bins) / n
    errors, distances = np.empty(resamples), np.empty(resamples)
    at_once = max(1, _DRAWN // n)
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        drawn = rng.integers(n, size=(count, n))
        places = bins[drawn] + num_bins * np.arange(count)[:, None]
        sums = np.bincount(places.ravel(), weights=gaps[drawn].ravel(), minlength=count * num_bins)
        of_drawn = sums.reshape(count, num_bins) / n
        errors[start : start + count] = np.abs(of_drawn).sum(axis=1)
        distances[start : start + count] = np.abs(of_drawn - of_all).sum(axis=1)
    estimate, position = float(np.abs(of_all).sum()), (1.0 + confidence) / 2.0
    low = max(0.0, estimate - float(np.quantile(distances, position)))
    return CalibrationInterval(estimate, low, max(estimate, float(np.quantile(errors, position))), confidence)


def _top(probabilities: Rows, labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Each input's largest probability, in float64, and whether it is its label's."""
    check_labelled("probabilities", probabilities, labels)
    check_probabilities("probabilities", probabilities)
    rows = as_numpy(probabilities)
    return rows.max(axis=1).astype(np.float64), rows.argmax(axis=1) == np.asarray(labels)
