"""How right a classifier's probabilities are: accuracy, calibration error, Brier score, log-likelihood, confidence."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from preload_jax.errors import UserError
from preload_jax.integers import require_integer
from preload_jax.metrics import device
from preload_jax.metrics.values import (
    Value,
    as_floats,
    as_numpy,
    at_least_float32,
    check_labelled,
    check_log_probabilities,
    check_probabilities,
    check_values,
    is_on_host,
    labelled_blocks,
    result,
)

_MOST_BINS = 10_000
# Arrays of either library.
Rows = Float[Array, "n k"] | Float[np.ndarray, "n k"]
Labels = Int[Array, "n"] | Int[np.ndarray, "n"]


def accuracy(logits: Rows, labels: Labels) -> Value:
    """Share of inputs whose largest logit (or probability) is their label's; a predicted OOD class is an error.

    Args:
        logits: of the K classes, and last the OOD class's where there is one.
        labels: in 0 … k − 1.

    Raises:
        UserError: for no inputs, NaN, other shapes, or labels that are no class.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> float(metrics.accuracy(jnp.array([[2.0, 0.0, 1.0], [0.0, 1.0, 5.0]]), jnp.array([0, 1])))
        0.5
    """
    check_labelled("logits", logits, labels)
    if not is_on_host(logits, labels):
        return device.share(device.is_largest(logits, labels))
    right = sum(np.count_nonzero(rows.argmax(axis=1) == y) for rows, y in labelled_blocks(logits, labels))
    return result(right / len(labels), logits, labels)


def expected_calibration_error(probabilities: Rows, labels: Labels, *, num_bins: int = 15) -> Value:
    """ECE = `Σ_b |B_b|/n · |accuracy(B_b) − confidence(B_b)|` over bins (i/num_bins, (i+1)/num_bins].

    Every confidence has a bin (0 is in the first).  Confidence is the largest probability (Guo et al., 2017).
    Give the K in-domain columns alone, not renormalised, for a network with an OOD class.

    Args:
        probabilities: [n, K], in 0 … 1.
        labels: in 0 … K − 1.
        num_bins: the paper's is 15.

    Returns:
        A fraction, 0 for perfect calibration.

    Raises:
        UserError: for no inputs, NaN, other shapes, what is no probability, labels that are no class, or no bins.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> probabilities = jnp.array([[0.75, 0.25]] * 4)
        >>> float(metrics.expected_calibration_error(probabilities, jnp.array([0, 0, 0, 1])))
        0.0
        >>> float(metrics.expected_calibration_error(probabilities, jnp.array([0, 0, 1, 1])))
        0.25
    """
    return _calibration_error(probabilities, labels, num_bins, dropped=False)


def expected_calibration_error_released_code(probabilities: Rows, labels: Labels, *, num_bins: int = 15) -> Value:
    """The ECE of the released code, which the paper's calibration table was made with.

    Its loop leaves out the highest bin.  So confidences of at least (num_bins − 1)/num_bins are dropped, and the error
    is over the inputs that remain.  It is 0 if none remains.  Arguments and errors are those of
    `expected_calibration_error`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> probabilities, labels = jnp.array([[0.75, 0.25], [0.99, 0.01]]), jnp.array([0, 1])
        >>> float(metrics.expected_calibration_error_released_code(probabilities, labels))  # 0.99 is left out
        0.25
    """
    return _calibration_error(probabilities, labels, num_bins, dropped=True)


def _calibration_error(probabilities: Rows, labels: Labels, num_bins: int, *, dropped: bool) -> Value:
    check_labelled("probabilities", probabilities, labels)
    check_probabilities("probabilities", probabilities)
    check_bins(num_bins)
    if not is_on_host(probabilities, labels):
        return device.calibration_error(probabilities, labels, num_bins, dropped=dropped)
    gaps, number = np.zeros(num_bins), 0
    for rows, y in labelled_blocks(probabilities, labels):
        of_block, kept = bin_gaps(as_floats(rows), y, num_bins, dropped=dropped)
        gaps, number = gaps + of_block, number + kept
    # Not below 1: with no input left all gaps are 0.
    return result(np.abs(gaps).sum() / max(number, 1), probabilities, labels)


def bin_gaps(probabilities: np.ndarray, labels: np.ndarray, num_bins: int, *, dropped: bool) -> tuple[np.ndarray, int]:
    """Σ (correct − confidence) of each bin and of how many inputs; without the highest bin's where `dropped`.

    Of one block, on the host, with sums in float64.
    """
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == labels
    kept = confidence < confidence.dtype.type((num_bins - 1) / num_bins if dropped else np.inf)
    bins = equal_bins(confidence, num_bins)
    gaps = np.where(kept, correct - confidence.astype(np.float64), 0.0)
    return np.bincount(bins, weights=gaps, minlength=num_bins), int(np.count_nonzero(kept))


def check_bins(num_bins: int) -> None:
    """Raises a UserError for what is no number of bins, or for more than leave room in memory."""
    if require_integer("num_bins", num_bins, at_least=1) > _MOST_BINS:
        raise UserError(f"num_bins must be at most {_MOST_BINS:,}, got {num_bins:,}")


def equal_bins(values: np.ndarray, num_bins: int) -> np.ndarray:
    """The bin of each, (i/num_bins, (i+1)/num_bins], and 0 in the first; edges in the values' own precision."""
    return np.clip(np.ceil(values * values.dtype.type(num_bins)) - 1, 0, num_bins - 1).astype(np.int64)


def brier_score(probabilities: Rows, labels: Labels) -> Value:
    """Mean over inputs of Σ_c (p_c − 1[c = label])²: between 0 and 2 (Brier, 1950).

    Args:
        probabilities: [n, K]; the K in-domain columns, not renormalised, for a network with an OOD class.
        labels: in 0 … K − 1.

    Raises:
        UserError: for no inputs, NaN, other shapes, what is no probability, or labels that are no class.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> float(metrics.brier_score(jnp.array([[1.0, 0.0], [1.0, 0.0]]), jnp.array([0, 1])))
        1.0
    """
    check_labelled("probabilities", probabilities, labels)
    check_probabilities("probabilities", probabilities)
    if not is_on_host(probabilities, labels):
        return device.brier_score(probabilities, labels)
    total = sum(squared_distance(rows, y) for rows, y in labelled_blocks(probabilities, labels))
    return result(total / len(labels), probabilities, labels)


def squared_distance(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Σ of one block's Σ_c (p_c − 1[c = label])², on the host in float64."""
    difference = probabilities.astype(np.float64)
    difference[np.arange(len(labels)), labels] -= 1.0
    return float(np.vdot(difference, difference))


def log_likelihood(log_probabilities: Rows, labels: Labels) -> Value:
    """Mean over inputs of the label's log-probability, in nats.  Takes log-probabilities: no log of a rounded 0.

    Args:
        log_probabilities: [n, K], ≤ 0.
        labels: in 0 … K − 1.

    Raises:
        UserError: for no inputs, NaN, other shapes, what is no log-probability, or labels that are no class.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> round(float(metrics.log_likelihood(jnp.log(jnp.array([[0.5, 0.5]])), jnp.array([1]))), 4)
        -0.6931
    """
    check_labelled("log-probabilities", log_probabilities, labels)
    check_log_probabilities("log-probabilities", log_probabilities)
    if not is_on_host(log_probabilities, labels):
        chosen = jnp.take_along_axis(log_probabilities, labels[:, None], axis=-1)[:, 0]
        return device.pairwise_mean(at_least_float32(chosen))
    chosen = as_numpy(log_probabilities)[np.arange(len(labels)), np.asarray(labels)]
    return result(chosen.mean(dtype=np.float64), log_probabilities, labels)


def mean_max_confidence(probabilities: Rows) -> Value:
    """MMC: mean over inputs of the largest probability.

    Args:
        probabilities: of the K in-domain classes, [n, K].

    Raises:
        UserError: for no inputs, NaN, another shape, or what is no probability.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import metrics
        >>> float(metrics.mean_max_confidence(jnp.array([[0.75, 0.25], [0.5, 0.5]])))
        0.625
    """
    check_values("probabilities", probabilities)
    check_probabilities("probabilities", probabilities)
    if not is_on_host(probabilities):
        return device.pairwise_mean(at_least_float32(jnp.max(probabilities, axis=-1)))
    return result(as_numpy(probabilities).max(axis=1).mean(dtype=np.float64), probabilities)
