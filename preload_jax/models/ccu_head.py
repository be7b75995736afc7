"""CCU (Meinke and Hein, 2020): a softmax that gives way to the uniform distribution where outliers are likelier."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from preload_jax.errors import UserError
from preload_jax.log_sum_exp import log_softmax, log_sum_exp
from preload_jax.models.guards import overflow_guard
from preload_jax.models.heads import linear_logits

# Values of an image: its metric is a square matrix of them.
MOST_VALUES = 4096
# θ ≥ 2 σ, as the paper enforces it; of log-variances.
LOG_MARGIN = math.log(4.0)
# Beyond this distance an image is pulled back along its ray, so that no square overflows.
_FARTHEST = 1e12
# Variances within e^±20, which keep every exponent finite.
MOST_LOG_VARIANCE = 20.0


class Densities(nn.Module):
    """(log p(x | i), log p(x | o)) of two Gaussian mixtures in the metric d, up to a constant that both share.

    p(x | i) = 1/M Σ_k σ_k^−D exp(−d(x, μ_k)² / (2 σ_k²)), likewise p(x | o) with ν_l and θ_l, of D values, and
    d(x, y) = ‖Wᵀ(x − y)‖₂ with W Wᵀ = C⁻¹ for the training images' covariance C.  Where a θ_l exceeds every σ_k,
    p(x | i) / p(x | o) → 0 far away.

    Parameters: "in_means" and "out_means" [M, D], as Wᵀ(μ − c); "in_log_variances" and "out_log_variances" [M].  Kept
    in "batch_stats": "center" c, of an image's shape, and "whitening" W [D, D].

    Attributes:
        components: M, of each mixture.
    """

    components: int

    @nn.compact
    def __call__(self, images: Num[Array, "n ..."]) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
        if not jnp.issubdtype(images.dtype, jnp.floating):
            raise UserError(f"CCU's densities are of images in floating point, got {images.dtype}: integers have none")
        shape, size = images.shape[1:], math.prod(images.shape[1:])
        if size > MOST_VALUES:
            raise UserError(
                f"images of {size:,} values; CCU's metric is a matrix of {size:,} × {size:,}: give images of at most"
                f" {MOST_VALUES:,} values"
            )
        center = self.variable("batch_stats", "center", jnp.zeros, shape).value
        whitening = self.variable("batch_stats", "whitening", jnp.eye, size).value
        if center.shape != shape:
            raise UserError(
                f"images {list(images.shape)} with a center {list(center.shape)}; expected one image's shape"
            )
        away = (images.astype(jnp.float32) - center[None]).reshape(images.shape[0], size)
        white = _pulled_back(jnp.matmul(away, whitening, precision="highest"))
        found = [self._mixture(white, *each) for each in (("in", 0.0), ("out", LOG_MARGIN))]
        return found[0], found[1]

    def _mixture(self, white: Float[Array, "n d"], name: str, log_variance: float) -> Float[Array, "n"]:
        size = white.shape[1]
        means = self.param(f"{name}_means", nn.initializers.zeros, (self.components, size))
        constant = nn.initializers.constant(log_variance)
        log_variances = self.param(f"{name}_log_variances", constant, (self.components,))
        log_variances = jax.lax.clamp(-MOST_LOG_VARIANCE, log_variances, MOST_LOG_VARIANCE)
        products = jnp.matmul(white, means.T, precision="highest")
        squares = jnp.square(white).sum(axis=1)[:, None] - 2.0 * products + jnp.square(means).sum(axis=1)[None]
        exponents = -0.5 * (size * log_variances[None] + jnp.maximum(squares, 0.0) * jnp.exp(-log_variances)[None])
        return log_sum_exp(exponents) - math.log(self.components)


class CCUHead(nn.Module):
    """log p(y | x) = log (p(y | x, i) p(x | i) p(i) + 1/K p(x | o) p(o)) − log (p(x | i) p(i) + p(x | o) p(o)).

    p(y | x, i) is the softmax of linear logits, and p(x | i), p(x | o) are the densities of training images and of
    outliers (Meinke and Hein, 2020, eq. 3 and 4).  The K outputs are log-probabilities.  Far away they are −log K.

    The linear layer's parameters are under "linear", the densities' under "densities" (`Densities`);
    "log_prior_odds", log p(o) / p(i), is kept in "batch_stats".  `fit` measures and trains them.

    Attributes:
        num_classes: K.
        components: M, Gaussians of each mixture.
        zero_bias: how the biases start, see `LinearHead`.

    Raises:
        UserError: when it is called on integers, on images of more than 4,096 values, or of another shape than the
            center's.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models import CCUHead
        >>> head, features, images = CCUHead(4, components=2), jnp.ones((5, 8)), jnp.ones((5, 4, 4, 1))
        >>> variables = head.init(jax.random.key(0), features, images)
        >>> far = head.apply(variables, features, 1e4 * images)
        >>> far.shape, jnp.exp(far[0]).round(4).tolist()
        ((5, 4), [0.25, 0.25, 0.25, 0.25])
    """

    num_classes: int
    components: int = 100
    zero_bias: bool = True

    @property
    def has_ood_class(self) -> bool:
        """Whether the last logit is the OOD class: never."""
        return False

    @property
    def sees_images(self) -> bool:
        """Whether a `Classifier` hands it the images beside their features: always."""
        return True

    @nn.compact
    def __call__(self, features: Float[Array, "n d"], images: Num[Array, "n ..."]) -> Float[Array, "n k"]:
        log_p = log_softmax(linear_logits(features, self.num_classes, self.zero_bias))
        log_in, log_out = Densities(self.components, name="densities")(images)
        prior = self.variable("batch_stats", "log_prior_odds", jnp.zeros, ())
        # log p(i | x) / p(o | x); far away hugely negative, but finite.
        log_odds = (log_in - log_out - prior.value)[:, None]
        log_uniform = -math.log(self.num_classes)
        return jnp.logaddexp(log_p + jax.nn.log_sigmoid(log_odds), log_uniform + jax.nn.log_sigmoid(-log_odds))


@overflow_guard
def _pulled_back(white: Array) -> Array:
    # The largest entry apart, so that no square overflows.
    apart = jax.lax.stop_gradient(white)
    largest = jnp.maximum(jnp.max(jnp.abs(apart), axis=1, keepdims=True), 1.0)
    length = largest * jnp.linalg.norm(apart / largest, axis=1, keepdims=True)
    return white * (_FARTHEST / jnp.maximum(length, _FARTHEST))
