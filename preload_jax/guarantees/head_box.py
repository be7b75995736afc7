"""A head over a box of embeddings: the exact maximum of each difference of two logits."""

import numpy as np
from jaxtyping import Float

from preload_jax.guarantees.head_parameters import HeadParameters

# What float32 rounds in a head's sums and in the score, relative to the sum of all terms' sizes: units a term.
_UNITS = 2.0 * float(np.finfo(np.float32).eps)


def largest_differences(
    head: HeadParameters, low: Float[np.ndarray, "n e"], high: Float[np.ndarray, "n e"]
) -> tuple[Float[np.ndarray, "n k l"], Float[np.ndarray, "n"]]:
    """max z_c − z_k over low ≤ g ≤ high for each of the linear logits c and all logits k; and what rounding may add.

    A difference of linear logits is largest at a corner.  With the square logit, w_c g − v g^e is a sum of concave
    functions of one coordinate each, with the maximum where e v g^(e−1) = w_c, or at the nearer end.

    Returns:
        Differences [n, K, K], or [n, K, K + 1] with a square logit, the OOD class's last; and a number for each box.
    """
    width = head.weights.shape[1]
    middle, radius = 0.5 * (low + high)[:, :width], 0.5 * (high - low)[:, :width]
    pairs = head.weights[:, None] - head.weights[None]
    flat = pairs.reshape(-1, width)
    found = middle @ flat.T + radius @ np.abs(flat).T + (head.bias[:, None] - head.bias[None]).reshape(-1)
    differences = found.reshape(len(low), *pairs.shape[:2])
    largest = np.maximum(np.abs(low), np.abs(high))
    size = largest[:, :width] @ np.abs(head.weights).max(axis=0) + np.abs(head.bias).max()
    if head.square_weights is not None:
        v = (
            head.square_weights
            if head.distance_weight is None
            else np.append(head.square_weights, head.distance_weight)
        )
        weights = np.pad(head.weights, ((0, 0), (0, len(v) - width)))
        ends = low[:, None, : len(v)], high[:, None, : len(v)]
        top = np.sign(weights) * (np.abs(weights) / (head.exponent * v)) ** (1.0 / (head.exponent - 1))
        g = np.clip(top[None], *ends)
        ood = (weights * g - v * g**head.exponent).sum(axis=2) + head.bias - head.ood_bias
        differences = np.concatenate([differences, ood[..., None]], axis=2)
        size = size + largest[:, : len(v)] ** head.exponent @ v + abs(head.ood_bias)
    # An infinite end leaves nothing known.
    differences = np.where(np.isnan(differences), np.inf, differences)
    slack = _UNITS * (low.shape[1] + len(head.bias) + 32) * size
    return differences, np.where(np.isfinite(slack), slack, 0.0)


def largest_logits(
    head: HeadParameters, low: Float[np.ndarray, "n e"], high: Float[np.ndarray, "n e"]
) -> Float[np.ndarray, "n k"]:
    """max z_c over the box, of the linear logits."""
    width = head.weights.shape[1]
    found = (
        0.5 * (low + high)[:, :width] @ head.weights.T
        + 0.5 * (high - low)[:, :width] @ np.abs(head.weights).T
        + head.bias
    )
    return np.where(np.isnan(found), np.inf, found)
