"""To and from toolkits in which a higher score means more OOD."""

from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Real

from preload_jax.checks import require_unmasked
from preload_jax.errors import UserError
from preload_jax.metrics.values import as_numpy, check_scores, of_one_type

# Scores of either library.
Scores = Real[Array, "n"] | Real[np.ndarray, "n"]


def from_ood_scores(scores: Scores, is_ood: Bool[Array, "n"] | Bool[np.ndarray, "n"]) -> tuple[Any, Any]:
    """Scores that are higher for OOD inputs, as pytorch-ood's detectors give, → (scores_in, scores_ood) of ours.

    Args:
        scores: of all inputs, [n], higher = more OOD.  (OpenOOD's `conf` is higher for in-domain: give −conf.)
        is_ood: whether each is OOD, [n]: `labels < 0` in both toolkits.

    Returns:
        The negated scores of the in-domain and of the OOD inputs, in their order, NumPy arrays of the scores' type;
        float32 for half precision, int64 for other integers.

    Raises:
        UserError: when the two differ in length, `is_ood` is not boolean, or an integer has no negative in int64.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> scores_in, scores_ood = metrics.from_ood_scores(np.array([0.5, 2.0, 1.0]), np.array([0, -1, 3]) < 0)
        >>> scores_in.tolist(), scores_ood.tolist()
        ([-0.5, -1.0], [-2.0])
    """
    require_unmasked(scores, is_ood)
    values, mask = as_numpy(scores), np.asarray(is_ood)
    if mask.dtype != bool or mask.shape != values.shape or values.ndim != 1:
        raise UserError(
            f"scores {list(values.shape)} with is_ood {mask.dtype} {list(mask.shape)}; expected [n] and booleans [n]"
        )
    negated = _negative(values)
    return negated[~mask], negated[mask]


def to_ood_scores(
    scores_in: Real[Array, "n_in"] | Real[np.ndarray, "n_in"],
    scores_ood: Real[Array, "n_ood"] | Real[np.ndarray, "n_ood"],
) -> tuple[Real[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
    """Our two sets of scores → (scores that are higher for OOD inputs, whether each is OOD), in-domain inputs first.

    The inverse of `from_ood_scores`; what scikit-learn's `roc_auc_score(is_ood, scores)` takes.

    Args:
        scores_in, scores_ood: higher = more in-domain.

    Raises:
        UserError: for no or NaN scores, or an integer that has no negative in int64.

    Example:
        >>> import numpy as np
        >>> from preload_jax import metrics
        >>> scores, is_ood = metrics.to_ood_scores(np.array([0.5, 1.0]), np.array([-2.0]))
        >>> scores.tolist(), is_ood.tolist()
        ([-0.5, -1.0, 2.0], [False, False, True])
    """
    check_scores(scores_in, scores_ood)
    scores = _negative(np.concatenate(of_one_type(scores_in, scores_ood)))
    return scores, np.arange(len(scores)) >= len(scores_in)


def _negative(scores: np.ndarray) -> np.ndarray:
    """−scores; of integers in int64: an unsigned one's negative would wrap round."""
    if scores.dtype.kind == "f":
        return -scores
    limits = np.iinfo(np.int64)
    if scores.size and (int(scores.max()) > limits.max or int(scores.min()) == limits.min):
        raise UserError("an integer score has no negative in int64; expected scores between -2^63 + 1 and 2^63 - 1")
    return -scores.astype(np.int64)
