"""Per-example losses, and the objectives of the paper's methods, see `losses`."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# Give a traced value if a new value must not need a new compilation.
Number = float | Array


def cross_entropy(logits: Float[Array, "*n k"], labels: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """−log softmax(logits)[label], from the largest-logit difference: exact where a probability rounds to 1.

    In nats, float32; labels in 0 … k − 1.  Of another label it is NaN: it runs under jit, where nothing can be refused.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> round(float(losses.cross_entropy(jnp.array([2.0, 0.0]), jnp.array(0))), 4)
        0.1269
    """
    logits = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, _place(labels, logits.shape[-1])[..., None], axis=-1, mode="fill")[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def _place(labels: Array, size: int) -> Array:
    """The same, with negative labels beyond the end: JAX would count −1 from it, and that is the OOD class."""
    return jnp.where(labels < 0, size, labels)


def uniform_cross_entropy(logits: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    """−(1/K) Σ_c log softmax(logits)[c]: cross-entropy to the uniform distribution (Outlier Exposure).

    In nats, float32; at least log K.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> round(float(losses.uniform_cross_entropy(jnp.array([2.0, 0.0]))), 4)
        1.1269
    """
    logits = logits.astype(jnp.float32)
    return jax.nn.logsumexp(logits, axis=-1) - logits.mean(axis=-1)


def energy(logits: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    """E = −logsumexp(logits) (Liu et al., 2020): low for in-domain inputs.  In nats, float32.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> round(float(losses.energy(jnp.array([0.0, 0.0]))), 4)
        -0.6931
    """
    return -jax.nn.logsumexp(logits.astype(jnp.float32), axis=-1)


def squared_hinge(values: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """max(0, v)².

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> losses.squared_hinge(jnp.array([-1.0, 3.0])).tolist()
        [0.0, 9.0]
    """
    return jnp.square(jax.nn.relu(values))


def mean_cross_entropy(
    logits: Float[Array, "n k"], labels: Int[Array, "n"], class_weights: Number | None = None
) -> Float[Array, ""]:
    """CE_in = Σ w_y ℓ / Σ w_y over the batch: the weighted mean of `cross_entropy`.

    It is what torch's `CrossEntropyLoss(weight=w)` computes.  A common factor of the weights changes nothing.  In nats.

    Args:
        logits: [n, K] or [n, K + 1].
        labels: in 0 … K − 1; any other makes it NaN.
        class_weights: w, [K], above 0; None: the plain mean.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits, labels = jnp.array([[2.0, 0.0], [2.0, 0.0]]), jnp.array([0, 1])
        >>> round(float(losses.mean_cross_entropy(logits, labels, jnp.array([1.0, 3.0]))), 4)
        1.6269
    """
    return weighted_mean(cross_entropy(logits, labels), labels, class_weights)


def weighted_mean(costs: Float[Array, "n"], labels: Int[Array, "n"], class_weights: Number | None) -> Float[Array, ""]:
    """Σ w_y ℓ / Σ w_y of any losses, one an example; the plain mean for None.  NaN for a label without a weight."""
    if class_weights is None:
        return costs.mean()
    given = jnp.asarray(class_weights, jnp.float32)
    weights = given.at[_place(labels, len(given))].get(mode="fill", fill_value=jnp.nan)
    return (weights * costs).mean() / weights.mean()


def classification(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Array | None = None,
    *,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """CE_in: the standard objective; OOD images are not used.  In nats.

    Args:
        logits_in: [n, K].
        labels: in 0 … K − 1 (not checked).
        logits_ood: not used.
        class_weights: of the in-domain classes, see `mean_cross_entropy`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits_in, labels = jnp.array([[2.0, 0.0, 0.0]]), jnp.array([0])
        >>> logits_ood = jnp.array([[0.0, 0.0, 2.0]])
        >>> round(float(losses.classification(logits_in, labels)), 4)
        0.2395
    """
    return mean_cross_entropy(logits_in, labels, class_weights)


def extra_class(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Float[Array, "m k"],
    *,
    ood_weight: Number = 1.0,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """½ (CE_in + λ CE_ood) over K + 1 logits, the label of OOD images being the last (NC and PreLoad).

    Paper: CE_in + λ CE_ood (section 3).  Released code: the mean over the concatenated rows of both batches, OOD rows
    weighted by λ, which is half of it; the tuned learning rates and weight decays belong to that half.

    Args:
        logits_in, logits_ood: of in-domain and of OOD images, the OOD class's last; their numbers may differ.
        labels: of the in-domain images, in 0 … K − 1.
        ood_weight: λ.
        class_weights: of CE_in, see `mean_cross_entropy`.

    Returns:
        A scalar, in nats, float32.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits_in, labels = jnp.array([[2.0, 0.0, 0.0]]), jnp.array([0])
        >>> logits_ood = jnp.array([[0.0, 0.0, 2.0]])
        >>> round(float(losses.extra_class(logits_in, labels, logits_ood, ood_weight=0.5)), 4)
        0.1797
    """
    ood_labels = jnp.full(logits_ood.shape[0], logits_ood.shape[-1] - 1)
    ce_ood = cross_entropy(logits_ood, ood_labels).mean()
    return 0.5 * (mean_cross_entropy(logits_in, labels, class_weights) + ood_weight * ce_ood)


def extra_class_whole(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Float[Array, "m k"],
    *,
    ood_weight: Number = 1.0,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """CE_in + λ CE_ood over K + 1 logits: `extra_class` without the ½, as the paper's section 3 prints it.

    Arguments and result are those of `extra_class`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits_in, labels = jnp.array([[2.0, 0.0, 0.0]]), jnp.array([0])
        >>> logits_ood = jnp.array([[0.0, 0.0, 2.0]])
        >>> round(float(losses.extra_class_whole(logits_in, labels, logits_ood, ood_weight=0.5)), 4)
        0.3593
    """
    return 2.0 * extra_class(logits_in, labels, logits_ood, ood_weight=ood_weight, class_weights=class_weights)


def outlier_exposure(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Float[Array, "m k"],
    *,
    ood_weight: Number = 1.0,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """CE_in + λ · cross-entropy of OOD images to the uniform distribution (Hendrycks et al., 2019).  In nats.

    Args:
        logits_in, logits_ood: [n, K] and [m, K], of in-domain and of OOD images.
        labels: of the in-domain images, in 0 … K − 1 (not checked).
        ood_weight: λ.
        class_weights: of CE_in, see `mean_cross_entropy`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits_in, labels = jnp.array([[2.0, 0.0, 0.0]]), jnp.array([0])
        >>> logits_ood = jnp.array([[0.0, 0.0, 2.0]])
        >>> round(float(losses.outlier_exposure(logits_in, labels, logits_ood, ood_weight=0.5)), 4)
        1.026
    """
    return mean_cross_entropy(logits_in, labels, class_weights) + ood_weight * uniform_cross_entropy(logits_ood).mean()


def outlier_exposure_class_mean(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Float[Array, "m k"],
    *,
    ood_weight: Number = 1.0,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """CE_in + (λ/K) · cross-entropy of OOD images to the uniform distribution.

    This is what the released code computes: it divides by K, although its mean over classes already does so.  Its
    effective λ is 0.5/K.  Arguments are those of `outlier_exposure`.  In nats.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits_in, labels = jnp.array([[2.0, 0.0, 0.0]]), jnp.array([0])
        >>> logits_ood = jnp.array([[0.0, 0.0, 2.0]])
        >>> round(float(losses.outlier_exposure_class_mean(logits_in, labels, logits_ood, ood_weight=0.5)), 4)
        0.5017
    """
    num_classes = logits_ood.shape[-1]
    ood_weight = ood_weight / num_classes
    return outlier_exposure(logits_in, labels, logits_ood, ood_weight=ood_weight, class_weights=class_weights)


def energy_margins(
    logits_in: Float[Array, "n k"],
    labels: Int[Array, "n"],
    logits_ood: Float[Array, "m k"],
    *,
    ood_weight: Number = 1.0,
    margin_in: Number = 0.0,
    margin_ood: Number = 0.0,
    class_weights: Array | None = None,
) -> Float[Array, ""]:
    """CE_in + λ (E[max(0, E_in − m_in)²] + E[max(0, m_ood − E_ood)²]) (Liu et al., 2020).

    Args:
        logits_in, logits_ood: [n, K] and [m, K], of in-domain and of OOD images.
        labels: of the in-domain images, in 0 … K − 1 (not checked).
        ood_weight: λ.
        margin_in, margin_ood: m_in and m_ood, energies in nats.
        class_weights: of CE_in, see `mean_cross_entropy`.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import losses
        >>> logits_in, labels = jnp.array([[2.0, 0.0, 0.0]]), jnp.array([0])
        >>> logits_ood = jnp.array([[0.0, 0.0, 2.0]])
        >>> numbers = {"ood_weight": 0.1, "margin_in": -3.0, "margin_ood": -1.0}
        >>> round(float(losses.energy_margins(logits_in, labels, logits_ood, **numbers)), 4)
        0.451
    """
    cost_in = squared_hinge(energy(logits_in) - margin_in).mean()
    cost_ood = squared_hinge(margin_ood - energy(logits_ood)).mean()
    return mean_cross_entropy(logits_in, labels, class_weights) + ood_weight * (cost_in + cost_ood)
