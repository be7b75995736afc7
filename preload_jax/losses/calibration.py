"""Objectives that calibrate while they train: label smoothing, mixup, the focal loss, MMCE.  None uses OOD images."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from preload_jax.losses.objectives import (
    Number,
    cross_entropy,
    mean_cross_entropy,
    uniform_cross_entropy,
    weighted_mean,
)

# Kumar et al. (2018): the width of the Laplacian kernel.
KERNEL_WIDTH = 0.4
# Under the root, whose slope is infinite at 0.
_TINY = 1e-10


def label_smoothing(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Array | None = None,
    *,
    label_smoothing: Number = 0.1,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """(1 − α) CE(y) + α · cross-entropy to the uniform distribution (Müller et al., 2019).

    = the cross-entropy to (1 − α) y + α / K.  In nats.

    Args:
        logits_in: [n, K].
        labels: in 0 … K − 1 (not checked).
        logits_ood: not used.
        label_smoothing: α in [0, 1).
        class_weights: of the mean over the batch, see `mean_cross_entropy`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits, labels = jnp.array([[2.0, 0.0, 0.0]]), jnp.array([0])
        >>> round(float(losses.label_smoothing(logits, labels, label_smoothing=0.1)), 4)
        0.3729
    """
    costs = (1.0 - label_smoothing) * cross_entropy(logits_in, labels)
    return weighted_mean(costs + label_smoothing * uniform_cross_entropy(logits_in), labels, class_weights)


def focal(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Array | None = None,
    *,
    focal_gamma: Number = 3.0,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """−(1 − p)^γ log p of the label's probability p (Lin et al., 2017, equation 4).  In nats.

    Args:
        logits_in: [n, K].
        labels: in 0 … K − 1 (not checked).
        logits_ood: not used.
        focal_gamma: γ ≥ 0; 0 is the cross-entropy.
        class_weights: of the mean over the batch, see `mean_cross_entropy`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits, labels = jnp.array([[0.0, 0.0]]), jnp.array([0])
        >>> round(float(losses.focal(logits, labels, focal_gamma=2.0)), 4)  # ln 2 / 4
        0.1733
    """
    cost = cross_entropy(logits_in, labels)
    # By logarithms: a power's slope is infinite or NaN where 1 − p rounds to 0, and there the loss is 0.
    others = -jnp.expm1(-cost)
    certain = others <= 0
    log_others = jnp.log(jnp.where(certain, 1.0, others))
    costs = jnp.where(certain, 0.0, jnp.exp(focal_gamma * log_others) * cost)
    return weighted_mean(costs, labels, class_weights)


def mixup(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Array | None = None,
    *,
    partners: Int[Array, "n"],
    share: Number,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """s · CE(y) + (1 − s) · CE(y') of images s · x + (1 − s) · x' (Zhang et al., 2018; Thulasidasan et al., 2019).

    The step mixes the images, see `training.mixup`.  In nats.

    Args:
        logits_in: [n, K], of the mixed images.
        labels, partners: y and y', in 0 … K − 1 (not checked).
        logits_ood: not used.
        share: s, in [0, 1].
        class_weights: of both means, each by its own labels, see `mean_cross_entropy`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits, labels, partners = jnp.array([[2.0, 0.0]]), jnp.array([0]), jnp.array([1])
        >>> round(float(losses.mixup(logits, labels, partners=partners, share=0.75)), 4)
        0.6269
    """
    first, second = (mean_cross_entropy(logits_in, y, class_weights) for y in (labels, partners))
    return share * first + (1.0 - share) * second


def squared_mmce(logits: Float[Array, "n k"], labels: Int[Array, "n"]) -> Float[Array, ""]:
    """MMCE² = (1/n²) Σ_ij (c_i − r_i)(c_j − r_j) exp(−|r_i − r_j| / 0.4) (Kumar et al., 2018).

    r is the largest probability and c is 1 where its class is the label, else 0.  A kernel's mean embedding: ≥ 0, and 0
    if every prediction is as often right as it says.

    Args:
        logits: [n, K].
        labels: in 0 … K − 1 (not checked).

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> round(float(losses.squared_mmce(jnp.zeros((2, 2)), jnp.array([0, 0]))), 4)  # two of r = 1/2, both right
        0.25
    """
    logits = logits.astype(jnp.float32)
    confidence = jnp.max(jax.nn.softmax(logits, axis=-1), axis=-1)
    right = (jnp.argmax(logits, axis=-1).astype(labels.dtype) == labels).astype(jnp.float32)
    kernel = jnp.exp(-jnp.abs(confidence[:, None] - confidence[None, :]) / KERNEL_WIDTH)
    miss = right - confidence
    return jnp.mean(miss[:, None] * miss[None, :] * kernel)


def mmce(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Array | None = None,
    *,
    mmce_weight: Number = 2.0,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """CE + λ √(MMCE²) of the batch (Kumar et al., 2018), see `squared_mmce`.  In nats.

    Args:
        logits_in: [n, K].
        labels: in 0 … K − 1 (not checked).
        logits_ood: not used.
        mmce_weight: λ ≥ 0.
        class_weights: of the CE alone, see `mean_cross_entropy`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits, labels = jnp.zeros((2, 2)), jnp.array([0, 0])
        >>> round(float(losses.mmce(logits, labels, mmce_weight=2.0)), 4)  # ln 2 + 2 · ½
        1.6931
    """
    penalty = jnp.sqrt(jnp.maximum(squared_mmce(logits_in, labels), 0.0) + _TINY)
    return mean_cross_entropy(logits_in, labels, class_weights) + mmce_weight * penalty
