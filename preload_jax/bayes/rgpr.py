"""RGPR: a last-layer Laplace approximation with infinitely many features beside the network's (Kristiadi et al., 2021).

The features are ReLUs of the input alone, all over its space.  In the limit they are a Gaussian process with the
double-sided cubic spline kernel, which is added to every logit.  Its mean is 0, and its variance is cubic in the
distance from the training images, so that near them it changes next to nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float

from preload_jax import methods, own_numbers
from preload_jax.bayes import network, prior
from preload_jax.checks import as_array, check_labels, require_finite, unit_of
from preload_jax.devices import reading
from preload_jax.errors import UserError
from preload_jax.models import Classifier, RGPRHead

# Images that are taken at once: all of them in float64 would be eight times what uint8 takes.
_BLOCK = 1000
# Where σ² is looked for.
_SMALLEST, _LARGEST = 1e-14, 1e6


@dataclass(frozen=True)
class Spline:
    """The variance k(x, x) = σ²/(3 D) Σ_j abs((x_j − μ_j) / s_j)³ of the double-sided cubic spline kernel.

    Attributes:
        center: μ, the mean training image, in the networks' units.
        scale: s, the standard deviation of each pixel; 1 where a pixel is the same in all training images.

    Example: see `spline`.
    """

    center: Float[np.ndarray, "..."]
    scale: Float[np.ndarray, "..."]

    def variances(self, images: Any) -> Float[np.ndarray, "n"]:
        """k(x, x) for σ² = 1."""
        found = []
        for block in _blocks(images):
            if block.shape[1:] != self.center.shape:
                raise UserError(
                    f"images of shape {list(block.shape)}; expected [n, {', '.join(map(str, self.center.shape))}]"
                )
            away = (np.abs(block - self.center) / self.scale).reshape(len(block), -1)
            found.append(np.mean(away**3, axis=1))
        return np.concatenate(found) / 3.0

    def stats(self, variance: float) -> dict[str, Array]:
        """What an `RGPRHead` keeps beside the posterior, in float32."""
        return {
            "spline_center": jnp.asarray(self.center, jnp.float32),
            "spline_scale": jnp.asarray(self.scale, jnp.float32),
            "spline_deviation": jnp.asarray(np.sqrt(variance), jnp.float32),
        }


def spline(images: Any) -> Spline:
    """The spline kernel that is negligible at training images.

    Args:
        images: [n, ...], uint8, or floating point as the network takes them.

    Raises:
        UserError: for images that are not finite, integers other than uint8, or none.

    Example:
        >>> import numpy as np
        >>> from preload_jax import bayes
        >>> found = bayes.spline(np.array([[0.0, 5.0], [2.0, 5.0]]))
        >>> found.variances(np.array([[0.0, 5.0], [7.0, 5.0]])).round(3).tolist()
        [0.167, 36.0]
    """
    parts = [(block.sum(axis=0), block.max(axis=0), block.min(axis=0)) for block in _blocks(images)]
    sums, maxima, minima = zip(*parts, strict=True)
    mean, largest, smallest = sum(sums) / len(images), np.max(maxima, axis=0), np.min(minima, axis=0)
    deviation = np.sqrt(sum(np.square(block - mean).sum(axis=0) for block in _blocks(images)) / len(images))
    # Of equal numbers rounding makes a tiny deviation, and float32 has no smaller ones.
    varies = (largest > smallest) & (deviation >= np.finfo(np.float32).tiny)
    return Spline(mean, np.where(varies, deviation, 1.0))


def fit_rgpr(
    model: Classifier,
    variables: Mapping[str, Any],
    images: Any,
    *,
    structure: str = "kron",
    prior_precision: float | None = None,
    variance: float | None = None,
    validation: tuple[Any, Any] | None = None,
    batch_size: int = 500,
) -> tuple[Classifier, dict[str, Any]]:
    """The classifier of `fit_laplace` with a variance that outgrows its logits far away, and its variables.

    Along every ray in input space all its probabilities tend to 1/K.

    Args:
        model, variables: a trained classifier with a `LinearHead` without an OOD class.
        images: the training images, as `predict` takes them; labels are not needed.
        structure, prior_precision: see `bayes.posterior`.
        variance: σ²; None: 10⁻³, or that of the largest likelihood of `validation`.
        validation: (images, labels) of held-out examples, by which σ² is chosen.
        batch_size: images a compiled call.

    Raises:
        UserError: for a variance outside 10⁻²⁰ … 10²⁰, a variance and validation examples, inputs that are integers
            other than uint8, and as `fit_laplace` raises.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import bayes, guarantees, make_classifier
        >>> model = make_classifier("mlp", "linear", num_classes=4, widths=(8,))
        >>> images = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 1), np.uint8)
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> model, variables = bayes.fit_rgpr(model, variables, images)
        >>> guarantees.far_away_limit(model, variables, np.ones((1, 4, 4, 1))).probabilities.tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    if variance is not None:
        own_numbers.check("spline_variance", variance, spelled="variance")
        if validation is not None:
            raise UserError("variance and validation both say what σ² is; leave one out")
    head = network.bayesian_head(model, structure)
    kernel = spline(images)
    found = network.of_network(
        model, variables, images, structure=head.structure, prior_precision=prior_precision, batch_size=batch_size
    )
    if validation is not None:
        held_out, labels = reading.pair(validation)
        y = check_labels(labels)
        features = network.features(model, variables, held_out, batch_size=batch_size)
        if len(features) != len(y) or (len(y) and y.max() >= head.num_classes):
            raise UserError(
                f"{len(features)} held-out images, {len(y)} labels; expected one of {head.num_classes} classes each"
            )
        more = kernel.variances(held_out)

        def likelihood(each: float) -> float:
            log_p = scipy.special.log_softmax(found.logits(features, more_variance=each * more), axis=1)
            return float(log_p[np.arange(len(y)), y].mean())

        variance = prior.largest(likelihood, between=(_SMALLEST, _LARGEST))
    elif variance is None:
        variance = dict(methods.get("rgpr").own)["spline_variance"]
    own = network.with_posterior(variables, found)
    stats = own["batch_stats"]["head"] | kernel.stats(variance)
    model = Classifier(
        model.backbone.clone(parent=None), RGPRHead(head.num_classes, head.structure, zero_bias=head.zero_bias)
    )
    return model, {**own, "batch_stats": {**own["batch_stats"], "head": stats}}


def _blocks(images: Any) -> Iterator[Float[np.ndarray, "n ..."]]:
    """The images in float64, and uint8 in [0, 1], as networks see it; some at once."""
    array = as_array(images, name="images")
    if array.ndim < 2 or not len(array):
        raise UserError(f"images of shape {list(array.shape)}; expected [n, …], n at least 1")
    if array.dtype.kind in "OSUMmc":
        raise UserError(f"images of type {array.dtype}; expected uint8 or floating point")
    if array.dtype.kind in "iub" and array.dtype != np.uint8:
        raise UserError(f"images of type {array.dtype}: a distance between integers, such as tokens, says nothing")
    require_finite(array, name="images")
    unit = unit_of(array)
    for start in range(0, len(array), _BLOCK):
        yield np.asarray(array[start : start + _BLOCK], np.float64) / unit
