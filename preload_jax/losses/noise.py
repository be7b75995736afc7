"""The objective of CEDA and ACET: no class shall be confident on noise."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from preload_jax.losses.objectives import Number, mean_cross_entropy


def low_confidence(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Float[Array, "m k"],
    *,
    ood_weight: Number = 1.0,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """CE_in + λ E[max_c log softmax(logits_ood)[c]]: the largest log-confidence on noise (Hein et al., 2019).

    In nats; at least −λ log K.

    Args:
        logits_in, logits_ood: [n, K] and [m, K], of in-domain images and of noise.
        labels: of the in-domain images, in 0 … K − 1 (not checked).
        ood_weight: λ.
        class_weights: of CE_in, see `mean_cross_entropy`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits_in, labels = jnp.array([[2.0, 0.0, 0.0]]), jnp.array([0])
        >>> logits_ood = jnp.array([[0.0, 0.0, 2.0]])
        >>> round(float(losses.low_confidence(logits_in, labels, logits_ood, ood_weight=0.5)), 3)
        0.12
    """
    largest = jnp.max(jax.nn.log_softmax(logits_ood.astype(jnp.float32), axis=-1), axis=-1)
    return mean_cross_entropy(logits_in, labels, class_weights) + ood_weight * largest.mean()
