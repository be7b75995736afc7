"""How well scores tell OOD inputs from in-domain ones: FPR at a TPR, AUROC, AUPR, and the threshold itself."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Array, Real

from preload_jax.checks import require_share
from preload_jax.integers import require_flag
from preload_jax.metrics import device
from preload_jax.metrics.values import Value, as_numpy, check_scores, is_on_host, of_one_type, result


def fpr_at_tpr(
    scores_in: Real[Array, "n"] | Real[np.ndarray, "n"],
    scores_ood: Real[Array, "m"] | Real[np.ndarray, "m"],
    *,
    tpr: float = 0.95,
    ood_positive: bool = False,
) -> Value:
    """False-positive rate at a true-positive rate: FPR-95 with the default.

    The share of OOD scores ≥ the (1 − tpr)-quantile of the in-domain scores, linearly interpolated.  With
    `ood_positive` the two change places: the share of in-domain scores ≤ the tpr-quantile of the OOD scores.  (OpenOOD
    and pytorch-ood report that one, with the nearest score instead of an interpolated threshold.)

    Args:
        scores_in, scores_ood: [n] and [m], higher = more in-domain in both cases.
        tpr: between 0 and 1, both excluded.
        ood_positive: whether OOD is the positive class.

    Raises:
        UserError: for no or NaN scores, or another `tpr`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> scores_in, scores_ood = jnp.array([5.0, 4.0, 3.0, 2.0]), jnp.array([4.5, 1.0, 0.0, -1.0])
        >>> float(metrics.fpr_at_tpr(scores_in, scores_ood))  # one of four OOD inputs is above 2.15
        0.25
        >>> float(metrics.fpr_at_tpr(scores_in, scores_ood, ood_positive=True))  # two of four are below 3.975
        0.5
    """
    ood_positive = require_flag("ood_positive", ood_positive)
    check_scores(scores_in, scores_ood)
    positives, negatives = (scores_ood, scores_in) if ood_positive else (scores_in, scores_ood)
    position = _position(len(positives), tpr)
    if not is_on_host(scores_in, scores_ood):
        return device.share_above(positives, negatives, position=position, mirrored=ood_positive)
    positives, negatives = _ranked(positives, negatives, mirrored=ood_positive)
    accepted = np.count_nonzero(negatives >= _quantile(positives, position))
    return result(accepted / len(negatives), scores_in, scores_ood)


def threshold_at_tpr(scores_in: Real[Array, "n"] | Real[np.ndarray, "n"], *, tpr: float = 0.95) -> Any:
    """The score that a share `tpr` of in-domain inputs reaches: an input below it is called OOD.

    The (1 − tpr)-quantile, linearly interpolated: the threshold of `fpr_at_tpr`.  It has the scores' type (float32 for
    half precision): of integers it is the least one at or above the quantile, which decides alike.

    Args:
        scores_in: of in-domain inputs that training has not seen, [n], higher = more in-domain.
        tpr: between 0 and 1, both excluded.

    Raises:
        UserError: for no or NaN scores, or another `tpr`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> float(metrics.threshold_at_tpr(jnp.arange(101.0)))
        5.0
    """
    check_scores(scores_in, scores_in)
    position = _position(len(scores_in), tpr)
    if not is_on_host(scores_in):
        return device.quantile(scores_in, position=position)
    value = _quantile(as_numpy(scores_in), position)
    return value if isinstance(scores_in, np.ndarray) else device.scalar(value)


def _position(n: int, tpr: float) -> float:
    """Where in the ascending order of n scores the (1 − tpr)-quantile is."""
    tpr = require_share("tpr", tpr)
    # Rounded, because 1 - 0.95 is not 0.05: at 21 scores the quantile is the second of them, not just above it.
    return round((1.0 - tpr) * (n - 1), 9)


def _ranked(
    positives: Array | np.ndarray, negatives: Array | np.ndarray, *, mirrored: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Both in one type; in the opposite order where `mirrored`.  ~x = −x − 1 cannot overflow, −x can."""
    both = of_one_type(positives, negatives)
    if not mirrored:
        return both
    return (-both[0], -both[1]) if both[0].dtype.kind == "f" else (~both[0], ~both[1])


def _quantile(scores: np.ndarray, position: float) -> np.generic:
    """The score at a (fractional) position of the ascending order, in the scores' type."""
    below, weight = int(position), position - int(position)
    above = min(below + 1, len(scores) - 1)
    ordered = np.partition(scores, [below, above])
    low, high = ordered[below], ordered[above]
    # Where both are the same there is nothing to interpolate, which matters for inf.
    if low == high or weight == 0.0 or np.isinf(low):
        return low
    if scores.dtype.kind in "iu":
        # The position has nine decimals: 0.2 of 5 is 1, which the float nearest to 0.2 would put just above it.
        share = Fraction(round(weight * 10**9), 10**9)
        return scores.dtype.type(int(low) + math.ceil(share * (int(high) - int(low))))
    # A weighted mean, not low + w·(high − low): the difference of large scores of two signs may overflow.
    wide = np.promote_types(scores.dtype, np.float64).type
    return np.clip(scores.dtype.type((1.0 - weight) * wide(low) + weight * wide(high)), low, high)


def auroc(
    scores_in: Real[Array, "n"] | Real[np.ndarray, "n"], scores_ood: Real[Array, "m"] | Real[np.ndarray, "m"]
) -> Value:
    """Area under the ROC curve: P(score_in > score_ood) + ½ P(score_in = score_ood).

    The same whichever of the two is the positive class.

    Args:
        scores_in, scores_ood: [n] and [m], higher = more in-domain in both cases.

    Raises:
        UserError: for no or NaN scores.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> float(metrics.auroc(jnp.array([3.0, 1.0]), jnp.array([2.0, 1.0])))
        0.625
    """
    check_scores(scores_in, scores_ood)
    if not is_on_host(scores_in, scores_ood):
        return device.auroc(scores_in, scores_ood)
    # Both sorted: a search for scores in order finds its way in the cache.
    positives, negatives = map(np.sort, of_one_type(scores_in, scores_ood))
    # Counted in integers, which are exact.
    wins = sum(int(np.searchsorted(negatives, positives, side=side).sum()) for side in ("left", "right"))
    return result(wins / (2 * len(positives) * len(negatives)), scores_in, scores_ood)


def aupr(
    scores_in: Real[Array, "n"] | Real[np.ndarray, "n"],
    scores_ood: Real[Array, "m"] | Real[np.ndarray, "m"],
    *,
    ood_positive: bool = False,
) -> Value:
    """Area under the precision-recall curve by the trapezoid rule, in-domain positive (AUPR-in) or OOD (AUPR-out).

    One point for each distinct score taken as threshold, and the point (recall 0, precision 1): what scikit-learn's
    `auc(recall, precision)` of its `precision_recall_curve` gives.

    Args:
        scores_in, scores_ood: [n] and [m], higher = more in-domain in both cases.
        ood_positive: whether OOD is the positive class.

    Raises:
        UserError: for no or NaN scores.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> scores_in, scores_ood = jnp.array([3.0, 1.0]), jnp.array([2.0, 0.0, -1.0])
        >>> round(float(metrics.aupr(scores_in, scores_ood)), 4)
        0.7917
        >>> round(float(metrics.aupr(scores_in, scores_ood, ood_positive=True)), 4)
        0.9028
    """
    ood_positive = require_flag("ood_positive", ood_positive)
    check_scores(scores_in, scores_ood)
    positives, negatives = (scores_ood, scores_in) if ood_positive else (scores_in, scores_ood)
    if not is_on_host(scores_in, scores_ood):
        return device.aupr(positives, negatives, mirrored=ood_positive)
    value = _trapezoids(*map(np.sort, _ranked(positives, negatives, mirrored=ood_positive)))
    return result(value, scores_in, scores_ood)


def _trapezoids(positives: np.ndarray, negatives: np.ndarray) -> float:
    """The area of both, ascending.

    Recall changes at the positives' scores alone: at each distinct one by its share of them.  There the trapezoid has
    the precisions of accepting what is at least the score and what is above it.
    """
    starts = np.flatnonzero(np.append(True, positives[1:] != positives[:-1]))
    ends = np.append(starts[1:], len(positives))
    distinct = positives[starts]

    def precision(true: np.ndarray, side: Any) -> np.ndarray:
        accepted = true + len(negatives) - np.searchsorted(negatives, distinct, side=side)
        # Accepting nothing has precision 1.
        return np.divide(true, accepted, out=np.ones(len(true)), where=accepted > 0)

    heights = precision(len(positives) - starts, "left") + precision(len(positives) - ends, "right")
    return float(np.sum(heights * (ends - starts))) / (2 * len(positives))
