"""OOD-detection and calibration metrics: pure functions on the device, which return fractions.

In-domain is the positive class and a score is higher for in-domain inputs, as in the paper.  For toolkits in which OOD
is positive and a higher score means more OOD (pytorch-ood; OpenOOD negates its `conf`), `from_ood_scores` and
`to_ood_scores` convert, and `fpr_at_tpr` and `aupr` take `ood_positive=True`; AUROC is the same both ways.

Every function works under `jax.jit` (except the two that convert), also where some of its arrays come from outside the
jitted function.  Empty input raises a ValueError, and so does NaN in an array that is not traced; in a traced one it
gives NaN.
Scores may be ±inf, and of any real type; ties count as the definitions below say.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Real


def fpr_at_tpr(
    scores_in: Real[Array, "n"], scores_ood: Real[Array, "m"], *, tpr: float = 0.95, ood_positive: bool = False
) -> Float[Array, ""]:
    """False-positive rate at a true-positive rate: FPR-95 with the default.

    The share of OOD scores ≥ the (1 − tpr)-quantile of the in-domain scores, linearly interpolated.  With
    `ood_positive` the two change places: the share of in-domain scores ≤ the tpr-quantile of the OOD scores.  (OpenOOD
    and pytorch-ood report that one, with the nearest score instead of an interpolated threshold.)

    Args:
        scores_in, scores_ood: [n] and [m], higher = more in-domain in both cases.
        tpr: between 0 and 1, both excluded.
        ood_positive: whether OOD is the positive class.

    Raises:
        ValueError: for no or NaN scores, or another `tpr`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> scores_in, scores_ood = jnp.array([5.0, 4.0, 3.0, 2.0]), jnp.array([4.5, 1.0, 0.0, -1.0])
        >>> float(metrics.fpr_at_tpr(scores_in, scores_ood))  # one of four OOD inputs is above 2.15
        0.25
        >>> float(metrics.fpr_at_tpr(scores_in, scores_ood, ood_positive=True))  # two of four are below 3.975
        0.5
    """
    check_scores(scores_in, scores_ood)
    if ood_positive:
        return fpr_at_tpr(_negative(scores_ood), _negative(scores_in), tpr=tpr)
    return _share_above(_ascending(scores_in), scores_ood, position=_position(len(scores_in), tpr))


def threshold_at_tpr(scores_in: Real[Array, "n"], *, tpr: float = 0.95) -> Float[Array, ""]:
    """The score that a share `tpr` of in-domain inputs reaches: an input below it is called OOD.

    The (1 − tpr)-quantile, linearly interpolated: the threshold of `fpr_at_tpr`.

    Args:
        scores_in: of in-domain inputs that training has not seen, [n], higher = more in-domain.
        tpr: between 0 and 1, both excluded.

    Raises:
        ValueError: for no or NaN scores, or another `tpr`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> float(metrics.threshold_at_tpr(jnp.arange(101.0)))
        5.0
    """
    check_scores(scores_in, scores_in)
    return _quantile(_ascending(scores_in), position=_position(len(scores_in), tpr))


def _position(n: int, tpr: float) -> float:
    """Where in the ascending order of n scores the (1 − tpr)-quantile is."""
    if not 0.0 < tpr < 1.0:
        raise ValueError(f"tpr must be between 0 and 1, got {tpr}")
    # Rounded, because 1 - 0.95 is not 0.05: at 21 scores the quantile is the second of them, not just above it.
    return round((1.0 - tpr) * (n - 1), 9)


def _negative(scores: Any) -> Any:
    """−scores, as floating point: an unsigned integer's negative would wrap round, and booleans have none."""
    return -_at_least_float32(scores)


def _at_least_float32(values: Any) -> Any:
    """The values in float32, or wider where they are: half precision loses a sum after some hundred terms."""
    return values.astype(jnp.float64 if values.dtype == jnp.float64 else jnp.float32)


def _ascending(scores: Array | np.ndarray) -> Array:
    """Sorted, NaN last.  Concrete scores on a CPU by NumPy: XLA's sort takes seventy times as long there."""
    if isinstance(scores, jax.core.Tracer) or jax.default_backend() != "cpu":
        return jnp.sort(scores)
    return jnp.asarray(np.sort(np.asarray(scores)))


@partial(jax.jit, static_argnames="position")
def _share_above(ordered_in: Array, scores_ood: Array, *, position: float) -> Array:
    threshold = _quantile(ordered_in, position=position)
    return _nan_if_any(jnp.mean(_at_least_float32(scores_ood) >= threshold), threshold, scores_ood)


@partial(jax.jit, static_argnames="position")
def _quantile(ordered: Array, *, position: float) -> Array:
    """The score at a (fractional) position of the ascending order."""
    below, weight = int(position), position - int(position)
    ordered = _at_least_float32(ordered)
    low = ordered[below]
    high = ordered[min(below + 1, len(ordered) - 1)]
    # A weighted mean, not low + w·(high − low): the difference of large scores of two signs may overflow.  And where
    # both are the same there is nothing to interpolate, which matters for inf.
    value = jnp.where((low == high) | (weight == 0.0) | jnp.isinf(low), low, (1.0 - weight) * low + weight * high)
    return _nan_if_any(value, ordered)


def auroc(scores_in: Real[Array, "n"], scores_ood: Real[Array, "m"]) -> Float[Array, ""]:
    """Area under the ROC curve: P(score_in > score_ood) + ½ P(score_in = score_ood).

    The same whichever of the two is the positive class.

    Args:
        scores_in, scores_ood: [n] and [m], higher = more in-domain in both cases.

    Raises:
        ValueError: for no or NaN scores.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> float(metrics.auroc(jnp.array([3.0, 1.0]), jnp.array([2.0, 1.0])))
        0.625
    """
    check_scores(scores_in, scores_ood)
    return _auroc(scores_in, _ascending(scores_ood))


@jax.jit
def _auroc(scores_in: Array, ordered_ood: Array) -> Array:
    below = jnp.searchsorted(ordered_ood, scores_in, side="left")
    not_above = jnp.searchsorted(ordered_ood, scores_in, side="right")
    wins = (below.astype(jnp.float32) + not_above.astype(jnp.float32)) / (2.0 * len(ordered_ood))
    return _nan_if_any(_pairwise_mean(wins), scores_in, ordered_ood)


def aupr(scores_in: Real[Array, "n"], scores_ood: Real[Array, "m"], *, ood_positive: bool = False) -> Float[Array, ""]:
    """Area under the precision-recall curve by the trapezoid rule, in-domain positive (AUPR-in) or OOD (AUPR-out).

    One point for each distinct score taken as threshold, and the point (recall 0, precision 1): what scikit-learn's
    `auc(recall, precision)` of its `precision_recall_curve` gives.

    Args:
        scores_in, scores_ood: [n] and [m], higher = more in-domain in both cases.
        ood_positive: whether OOD is the positive class.

    Raises:
        ValueError: for no or NaN scores.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> scores_in, scores_ood = jnp.array([3.0, 1.0]), jnp.array([2.0, 0.0, -1.0])
        >>> round(float(metrics.aupr(scores_in, scores_ood)), 4)
        0.7917
        >>> round(float(metrics.aupr(scores_in, scores_ood, ood_positive=True)), 4)
        0.9028
    """
    check_scores(scores_in, scores_ood)
    positives, negatives = (_negative(scores_ood), _negative(scores_in)) if ood_positive else (scores_in, scores_ood)
    return _aupr(_ascending(positives), _ascending(negatives))


@jax.jit
def _aupr(positives: Array, negatives: Array) -> Array:
    """Both ascending.

    Recall changes at the positives' scores alone, by 1/n for each, so that the trapezoids' sum is the mean over the
    positives of the precision at their score and at the next higher one, whoever has that, halved.
    """

    def precision(side: str, of_none: float) -> Array:
        """Of accepting what is ≥ ("left") or > ("right") each positive's score; `of_none` where that is nothing."""
        true = len(positives) - jnp.searchsorted(positives, positives, side=side)
        false = len(negatives) - jnp.searchsorted(negatives, positives, side=side)
        return jnp.where(true + false == 0, of_none, true / (true + false))

    areas = (precision("left", 0.0) + precision("right", 1.0)) / 2.0
    return _nan_if_any(_pairwise_mean(areas), positives, negatives)


def from_ood_scores(
    scores: Real[Array, "n"] | Real[np.ndarray, "n"], is_ood: Bool[Array, "n"] | Bool[np.ndarray, "n"]
) -> tuple[Float[Array, "n_in"], Float[Array, "n_ood"]]:
    """Scores that are higher for OOD inputs, as pytorch-ood's detectors give, → (scores_in, scores_ood) of ours.

    Args:
        scores: of all inputs, [n], higher = more OOD.  (OpenOOD's `conf` is higher for in-domain: give −conf.)
        is_ood: whether each is OOD, [n]: `labels < 0` in both toolkits.

    Returns:
        The negated scores of the in-domain and of the OOD inputs, in their order.

    Raises:
        ValueError: when the two differ in length or `is_ood` is not boolean.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> scores_in, scores_ood = metrics.from_ood_scores(np.array([0.5, 2.0, 1.0]), np.array([0, -1, 3]) < 0)
        >>> scores_in.tolist(), scores_ood.tolist()
        ([-0.5, -1.0], [-2.0])
    """
    values, mask = np.asarray(scores), np.asarray(is_ood)
    if mask.dtype != bool or mask.shape != values.shape or values.ndim != 1:
        raise ValueError(
            f"scores {list(values.shape)} with is_ood {mask.dtype} {list(mask.shape)}; expected [n] and booleans [n]"
        )
    negated = _negative(values)
    return jnp.asarray(negated[~mask]), jnp.asarray(negated[mask])


def to_ood_scores(
    scores_in: Real[Array, "n_in"] | Real[np.ndarray, "n_in"],
    scores_ood: Real[Array, "n_ood"] | Real[np.ndarray, "n_ood"],
) -> tuple[Float[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
    """Our two sets of scores → (scores that are higher for OOD inputs, whether each is OOD), in-domain inputs first.

    The inverse of `from_ood_scores`; what scikit-learn's `roc_auc_score(is_ood, scores)` takes.

    Args:
        scores_in, scores_ood: higher = more in-domain.

    Raises:
        ValueError: for no or NaN scores.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> scores, is_ood = metrics.to_ood_scores(np.array([0.5, 1.0]), np.array([-2.0]))
        >>> scores.tolist(), is_ood.tolist()
        ([-0.5, -1.0, 2.0], [False, False, True])
    """
    check_scores(scores_in, scores_ood)
    scores = _negative(np.concatenate([np.asarray(scores_in), np.asarray(scores_ood)]))
    return scores, np.arange(len(scores)) >= len(scores_in)


def accuracy(logits: Float[Array, "n k"], labels: Int[Array, "n"]) -> Float[Array, ""]:
    """Share of inputs whose largest logit (or probability) is their label's; a predicted OOD class is an error.

    Args:
        logits: of the K classes, and last the OOD class's where there is one.
        labels: in 0 … k − 1.

    Raises:
        ValueError: for no inputs, NaN, other shapes, or labels that are no class.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> float(metrics.accuracy(jnp.array([[2.0, 0.0, 1.0], [0.0, 1.0, 5.0]]), jnp.array([0, 1])))
        0.5
    """
    _check_labelled("logits", logits, labels)
    return jnp.mean(_is_correct(logits, labels))


def expected_calibration_error(
    probabilities: Float[Array, "n k"], labels: Int[Array, "n"], *, num_bins: int = 15
) -> Float[Array, ""]:
    """ECE = `Σ_b |B_b|/n · |accuracy(B_b) − confidence(B_b)|` over equal bins (i/num_bins, (i+1)/num_bins].

    Every confidence has a bin (0 is in the first).  Confidence is the largest probability (Guo et al., 2017).
    Give the K in-domain columns alone, not renormalised, for a network with an OOD class.

    Args:
        probabilities: [n, K], in 0 … 1.
        labels: in 0 … K − 1.
        num_bins: the paper's is 15.

    Returns:
        A fraction, 0 for perfect calibration.

    Raises:
        ValueError: for no inputs, NaN, other shapes, labels that are no class, or no bins.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> probabilities = jnp.array([[0.75, 0.25]] * 4)
        >>> float(metrics.expected_calibration_error(probabilities, jnp.array([0, 0, 0, 1])))
        0.0
        >>> float(metrics.expected_calibration_error(probabilities, jnp.array([0, 0, 1, 1])))
        0.25
    """
    gap = _bin_gaps(probabilities, labels, num_bins)
    return jnp.sum(jnp.abs(gap)) / len(labels)


def expected_calibration_error_released_code(
    probabilities: Float[Array, "n k"], labels: Int[Array, "n"], *, num_bins: int = 15
) -> Float[Array, ""]:
    """The ECE of the released code, which the paper's calibration table was made with.

    Released code: its loop leaves out the highest bin, so confidences above (num_bins − 1)/num_bins are dropped and
    the rest weighted by their own number.  0 where no confidence is left.  Arguments and errors are those of
    `expected_calibration_error`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> probabilities, labels = jnp.array([[0.75, 0.25], [0.99, 0.01]]), jnp.array([0, 1])
        >>> float(metrics.expected_calibration_error_released_code(probabilities, labels))  # 0.99 is left out
        0.25
    """
    kept = jnp.max(_at_least_float32(probabilities), axis=-1) < (num_bins - 1) / num_bins
    gap = _bin_gaps(probabilities, labels, num_bins, kept)
    return jnp.sum(jnp.abs(gap)) / jnp.maximum(jnp.sum(kept), 1).astype(gap.dtype)


def _bin_gaps(probabilities: Array, labels: Array, num_bins: int, kept: Array | None = None) -> Array:
    """Σ (correct − confidence) of each bin."""
    _check_labelled("probabilities", probabilities, labels)
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    confidence = jnp.max(_at_least_float32(probabilities), axis=-1)
    correct = _is_correct(probabilities, labels)
    bins = jnp.clip(jnp.ceil(confidence * num_bins) - 1, 0, num_bins - 1).astype(jnp.int32)
    gap = correct.astype(confidence.dtype) - confidence
    if kept is not None:
        gap = jnp.where(kept, gap, 0.0)
    return jax.ops.segment_sum(gap, bins, num_segments=num_bins)


def _is_correct(logits: Array, labels: Array) -> Array:
    # Labels may be of any integer type, also of one too small for the OOD class's number.
    return jnp.argmax(logits, axis=-1).astype(jnp.int32) == labels.astype(jnp.int32)


def brier_score(probabilities: Float[Array, "n k"], labels: Int[Array, "n"]) -> Float[Array, ""]:
    """Mean over inputs of Σ_c (p_c − 1[c = label])²: between 0 and 2 (Brier, 1950).

    Args:
        probabilities: [n, K]; the K in-domain columns, not renormalised, for a network with an OOD class.
        labels: in 0 … K − 1.

    Raises:
        ValueError: for no inputs, NaN, other shapes, or labels that are no class.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> float(metrics.brier_score(jnp.array([[1.0, 0.0], [1.0, 0.0]]), jnp.array([0, 1])))
        1.0
    """
    _check_labelled("probabilities", probabilities, labels)
    probabilities = _at_least_float32(probabilities)
    target = jax.nn.one_hot(labels, probabilities.shape[-1], dtype=probabilities.dtype)
    return jnp.mean(jnp.sum(jnp.square(probabilities - target), axis=-1))


def log_likelihood(log_probabilities: Float[Array, "n k"], labels: Int[Array, "n"]) -> Float[Array, ""]:
    """Mean over inputs of the label's log-probability, in nats.  Takes log-probabilities: no log of a rounded 0.

    Args:
        log_probabilities: [n, K], ≤ 0.
        labels: in 0 … K − 1.

    Raises:
        ValueError: for no inputs, NaN, other shapes, or labels that are no class.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> round(float(metrics.log_likelihood(jnp.log(jnp.array([[0.5, 0.5]])), jnp.array([1]))), 4)
        -0.6931
    """
    _check_labelled("log-probabilities", log_probabilities, labels)
    return jnp.mean(_at_least_float32(jnp.take_along_axis(log_probabilities, labels[:, None], axis=-1)))


def mean_max_confidence(probabilities: Float[Array, "n k"]) -> Float[Array, ""]:
    """MMC: mean over inputs of the largest probability.

    Args:
        probabilities: of the K in-domain classes, [n, K].

    Raises:
        ValueError: for no inputs or NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> float(metrics.mean_max_confidence(jnp.array([[0.75, 0.25], [0.5, 0.5]])))
        0.625
    """
    check_values("probabilities", probabilities)
    return jnp.mean(_at_least_float32(jnp.max(probabilities, axis=-1)))


def check_scores(scores_in: Array | np.ndarray, scores_ood: Array | np.ndarray) -> None:
    """`check_values` of both; for callers that compute metrics under jit, where nothing can raise."""
    for name, scores in (("in-domain scores", scores_in), ("OOD scores", scores_ood)):
        if scores.ndim != 1:
            raise ValueError(f"{name} have shape {list(scores.shape)}; expected one score an input, [n]")
        check_values(name, scores)


def _check_labelled(name: str, values: Array | np.ndarray, labels: Array | np.ndarray) -> None:
    """`check_values`, and a ValueError unless each row of [n, k] has a label of its own, in 0 … k − 1."""
    if values.ndim != 2 or labels.shape != values.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"{name} {list(values.shape)} with labels {labels.dtype} {list(labels.shape)};"
            " expected [n, k] and integers [n]"
        )
    check_values(name, values)
    if isinstance(labels, jax.core.Tracer):
        return
    with jax.ensure_compile_time_eval():
        low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= values.shape[1]:
        raise ValueError(f"labels run from {low} to {high}; expected 0 to {values.shape[1] - 1}")


def check_values(name: str, values: Array | np.ndarray) -> None:
    """Raises a ValueError, with the count, when there are no values or some are NaN; does not look at traced ones."""
    if values.shape[0] == 0:
        raise ValueError(f"no {name}: a metric needs at least one value")
    if isinstance(values, jax.core.Tracer):
        return
    # Of an array that a function under jit has from outside jax.numpy would make a traced count.
    with jax.ensure_compile_time_eval():
        num_nan = int((np if isinstance(values, np.ndarray) else jnp).isnan(values).sum())
    if num_nan:
        raise ValueError(f"{num_nan} of {values.size} {name} are NaN: no metric of them means anything")


def _nan_if_any(value: Array, *inputs: Array) -> Array:
    """The value, or NaN where an input holds one: under jit a metric must not answer a number for it."""
    any_nan = jnp.any(jnp.array([jnp.any(jnp.isnan(x)) for x in inputs]))
    return jnp.where(any_nan, jnp.nan, value)


def _pairwise_mean(values: Array) -> Array:
    return _pairwise_sum(values) / len(values)


def _pairwise_sum(values: Array) -> Array:
    """Sum by halves: the rounding error grows with log n, not n, so that 10⁷ float32 terms keep six digits."""
    while len(values) > 1:
        half = len(values) // 2
        folded = values[:half] + values[half : 2 * half]
        values = jnp.append(folded, values[-1]) if len(values) % 2 else folded
    return values[0]
