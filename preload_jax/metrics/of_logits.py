"""All calibration metrics of logits in one pass, a block of rows at a time: little memory for many classes."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import logsumexp

from preload_jax.errors import UserError
from preload_jax.integers import require_flag
from preload_jax.metrics.calibration import bin_gaps, check_bins, squared_distance
from preload_jax.metrics.values import as_numpy, blocks, check_labelled, check_values, require_arrays, require_rows


def classification(
    logits: Float[Array, "n k"] | Float[np.ndarray, "n k"],
    labels: Int[Array, "n"] | Int[np.ndarray, "n"],
    *,
    has_ood_class: bool,
    num_bins: int = 15,
    released_code_ece: bool = False,
) -> dict[str, float]:
    """Accuracy, ECE, Brier score, mean log-likelihood and MMC of a network's logits, on the host in float64.

    Each is the metric of that name of the softmax; a few blocks of 2²⁰ numbers are all the memory it needs beside the
    logits.

    Args:
        logits: of the K classes, and last the OOD class's where there is one.
        labels: in 0 … K − 1.
        has_ood_class: whether the last logit is the OOD class.  It has its part of the softmax, is a wrong answer for
            the accuracy, and is no column for the other metrics.
        num_bins: of the ECE.
        released_code_ece: whether the ECE is that of `expected_calibration_error_released_code`.

    Returns:
        "accuracy", "ece", "brier", "log_likelihood" and "mmc": fractions, and nats.

    Raises:
        UserError: for no inputs, NaN or +infinity, other shapes, labels that are no class, or no bins.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> logits = np.log(np.array([[0.75, 0.25], [0.75, 0.25], [0.5, 0.5]]))
        >>> found = metrics.classification(logits, np.array([0, 1, 0]), has_ood_class=False)
        >>> {name: round(value, 3) for name, value in found.items()}
        {'accuracy': 0.667, 'ece': 0.333, 'brier': 0.583, 'log_likelihood': -0.789, 'mmc': 0.667}
    """
    require_arrays(logits=logits)
    require_rows("logits", logits)
    require_flag("has_ood_class", has_ood_class)
    check_labelled("logits", logits[:, :-1] if has_ood_class else logits, labels)
    check_values("logits", logits)
    check_bins(num_bins)
    labels, n = np.asarray(labels), len(labels)
    right = number = start = 0
    gaps, brier, likelihood, confidence = np.zeros(num_bins), 0.0, 0.0, 0.0
    for rows, log_probabilities in _log_probabilities(logits, has_ood_class=has_ood_class):
        y = labels[start : start + len(rows)]
        start += len(rows)
        right += int(np.count_nonzero(rows.argmax(axis=1) == y))
        likelihood += log_probabilities[np.arange(len(y)), y].sum()
        probabilities = np.exp(log_probabilities, out=log_probabilities)
        of_block, kept = bin_gaps(probabilities, y, num_bins, dropped=released_code_ece)
        gaps, number = gaps + of_block, number + kept
        brier += squared_distance(probabilities, y)
        confidence += probabilities.max(axis=1).sum()
    return {
        "accuracy": right / n,
        "ece": float(np.abs(gaps).sum() / max(number, 1)),
        "brier": brier / n,
        "log_likelihood": float(likelihood / n),
        "mmc": float(confidence / n),
    }


def mean_max_confidence_of_logits(
    logits: Float[Array, "n k"] | Float[np.ndarray, "n k"], *, has_ood_class: bool
) -> float:
    """MMC of a network's logits, in blocks as `classification`.

    Args:
        logits: of the K classes, and last the OOD class's where there is one.
        has_ood_class: whether the last logit is the OOD class: in the softmax, but never the confidence.

    Raises:
        UserError: for no inputs, NaN or +infinity.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> metrics.mean_max_confidence_of_logits(np.log(np.array([[0.25, 0.125, 0.625]])), has_ood_class=True)
        0.25
    """
    check_values("logits", logits)
    require_rows("logits", logits)
    blockwise = _log_probabilities(logits, has_ood_class=has_ood_class)
    return float(sum(np.exp(values.max(axis=1)).sum() for _, values in blockwise)) / len(logits)


def _log_probabilities(logits: Array | np.ndarray, *, has_ood_class: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows of logits, log P of their K classes in float64), a block at a time."""
    for block in blocks(np.asarray(logits)):
        rows = as_numpy(block)
        wide = rows.astype(np.float64)
        if not np.isfinite(rows.max(axis=1)).all():
            raise UserError("a row of logits holds +infinity or nothing but -infinity: it has no softmax")
        wide -= logsumexp(wide, axis=1, keepdims=True)
        yield rows, wide[:, :-1] if has_ood_class else wide
