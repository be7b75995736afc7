"""The metrics of arrays that are traced or on an accelerator, in `jax.numpy`; NaN where an input holds one.

Their types are JAX's, of 32 bits unless x64 is enabled.  Counts are integers.  Sums are taken by halves: the rounding
error grows with log n, not n, so that 10⁷ float32 terms keep six digits.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from preload_jax.metrics.values import at_least_float32

# Terms that are added up one after the other before the halving begins.
_RUN = 1024


@partial(jax.jit, static_argnames=("position", "mirrored"))
def share_above(positives: Any, negatives: Any, *, position: float, mirrored: bool) -> Array:
    """The share of negatives at or above the positives' quantile; of both in the opposite order where `mirrored`."""
    positives, negatives = _ranked(positives, negatives, mirrored=mirrored)
    accepted = jnp.sum(negatives >= _quantile(positives, position), dtype=jnp.int32)
    return _nan_if_any(accepted / len(negatives), positives, negatives)


@partial(jax.jit, static_argnames="position")
def quantile(scores: Any, *, position: float) -> Array:
    """The score at a (fractional) position of the ascending order."""
    return _nan_if_any(_quantile(_computable(scores), position), scores)


@jax.jit
def auroc(scores_in: Any, scores_ood: Any) -> Array:
    """P(score_in > score_ood) + ½ P(score_in = score_ood)."""
    ordered = jnp.sort(scores_ood)
    below = jnp.searchsorted(ordered, scores_in, side="left")
    not_above = jnp.searchsorted(ordered, scores_in, side="right")
    wins = (below.astype(jnp.float32) + not_above.astype(jnp.float32)) / (2.0 * len(ordered))
    return _nan_if_any(pairwise_mean(wins), scores_in, ordered)


@partial(jax.jit, static_argnames="mirrored")
def aupr(positives: Any, negatives: Any, *, mirrored: bool) -> Array:
    """The area under the precision-recall curve.

    Recall changes at the positives' scores alone, by 1/n for each, so that the trapezoids' sum is the mean over the
    positives of the precision at their score and at the next higher one, whoever has that, halved.
    """
    positives, negatives = map(jnp.sort, _ranked(positives, negatives, mirrored=mirrored))

    def precision(side: str, of_none: float) -> Array:
        """Of accepting what is ≥ ("left") or > ("right") each positive's score; `of_none` where that is nothing."""
        true = len(positives) - jnp.searchsorted(positives, positives, side=side)
        false = len(negatives) - jnp.searchsorted(negatives, positives, side=side)
        return jnp.where(true + false == 0, of_none, true / (true + false))

    areas = (precision("left", 0.0) + precision("right", 1.0)) / 2.0
    return _nan_if_any(pairwise_mean(areas), positives, negatives)


def scalar(value: np.generic) -> Array:
    """A score of NumPy's in JAX's own type."""
    return jnp.asarray(value)


def share(true: Array) -> Array:
    """The share of booleans that are true."""
    return jnp.sum(true, dtype=jnp.int32) / len(true)


def is_largest(logits: Any, labels: Any) -> Array:
    """Whether the label's logit is the largest; labels of any integer type."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32) == labels.astype(jnp.int32)


def calibration_error(probabilities: Any, labels: Any, num_bins: int, *, dropped: bool) -> Array:
    """Σ_b |Σ (correct − confidence)| / n over the bins' inputs; without the highest bin's where `dropped`."""
    confidence = jnp.max(at_least_float32(probabilities), axis=-1)
    correct = is_largest(probabilities, labels).astype(confidence.dtype)
    kept = confidence < (num_bins - 1) / num_bins if dropped else jnp.ones(len(confidence), bool)
    bins = jnp.clip(jnp.ceil(confidence * num_bins) - 1, 0, num_bins - 1).astype(jnp.int32)
    gaps = jnp.where(kept, correct - confidence, 0.0)
    # Runs of inputs, each with bins of its own, whose sums are then added by halves.
    missing = -len(gaps) % _RUN
    gaps, bins = (jnp.pad(x, (0, missing)).reshape(-1, min(_RUN, len(x) + missing)) for x in (gaps, bins))
    sums = jax.vmap(partial(jax.ops.segment_sum, num_segments=num_bins))(gaps, bins)
    # Not below 1: with no input left all gaps are 0.
    return jnp.sum(jnp.abs(pairwise_sum(sums))) / jnp.maximum(jnp.sum(kept, dtype=jnp.int32), 1).astype(sums.dtype)


def brier_score(probabilities: Any, labels: Any) -> Array:
    """Mean of Σ_c (p_c − 1[c = label])²."""
    probabilities = at_least_float32(probabilities)
    target = jax.nn.one_hot(labels, probabilities.shape[-1], dtype=probabilities.dtype)
    return pairwise_mean(jnp.sum(jnp.square(probabilities - target), axis=-1))


def pairwise_mean(values: Array) -> Array:
    return pairwise_sum(values) / len(values)


def pairwise_sum(values: Array) -> Array:
    """The sum over the first axis."""
    while len(values) > 1:
        half = len(values) // 2
        folded = values[:half] + values[half : 2 * half]
        values = jnp.concatenate([folded, values[-1:]]) if len(values) % 2 else folded
    return values[0]


def _computable(scores: Any) -> Array:
    """Booleans as integers, half precision as float32."""
    if scores.dtype == bool:
        return jnp.asarray(scores, jnp.int32)
    return scores if jnp.issubdtype(scores.dtype, jnp.integer) else at_least_float32(scores)


def _ranked(positives: Any, negatives: Any, *, mirrored: bool) -> tuple[Array, Array]:
    """Both in one type; in the opposite order where `mirrored`.  ~x = −x − 1 cannot overflow, −x can."""
    first, second = _computable(positives), _computable(negatives)
    with jax.numpy_dtype_promotion("standard"):  # on purpose
        common = jnp.promote_types(first.dtype, second.dtype)
    first, second = first.astype(common), second.astype(common)
    if not mirrored:
        return first, second
    return (~first, ~second) if jnp.issubdtype(common, jnp.integer) else (-first, -second)


def _quantile(scores: Array, position: float) -> Array:
    """The score at a (fractional) position of the ascending order, in the scores' type."""
    below, weight = int(position), position - int(position)
    ordered = jnp.sort(scores)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    if weight == 0.0:
        return low
    if jnp.issubdtype(scores.dtype, jnp.integer):
        # The least integer at or above, but for rounding; the difference may need one bit more than the type has.
        gap = high.astype(jnp.float32) - low.astype(jnp.float32)
        step = jnp.ceil(weight * (1.0 - 2.0**-21) * gap).astype(
            jnp.uint32 if scores.dtype.itemsize <= 4 else jnp.uint64
        )
        return jnp.clip(low + step.astype(scores.dtype), low + (low < high).astype(scores.dtype), high)
    # A weighted mean, not low + w·(high − low): the difference of large scores of two signs may overflow.  And where
    # both are the same there is nothing to interpolate, which matters for inf.
    return jnp.where((low == high) | jnp.isinf(low), low, (1.0 - weight) * low + weight * high)


def _nan_if_any(value: Array, *inputs: Array) -> Array:
    """The value, or NaN where an input holds one: under jit a metric must not answer a number for it."""
    floats = [jnp.any(jnp.isnan(x)) for x in inputs if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.where(jnp.any(jnp.array(floats)), jnp.nan, value) if floats else value
