"""The last layer with a Gaussian posterior, and beside it the variance of infinitely many features of the input."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from preload_jax.errors import UserError
from preload_jax.models.laplace_head import LaplaceHead

# Beyond it u^{3/2} overflows in float32; only pixels that hardly vary (by 1e-10) get there, far away.
_MOST = 1e25


class RGPRHead(LaplaceHead):
    """z_c(x) / √(1 + π/8 · (v_c(x) + k(x, x))): a `LaplaceHead` with the variance of a Gaussian process of the input.

    k(x, x) = σ²/(3 D) Σ_j abs(x̂_j)³ is the variance of the double-sided cubic spline kernel, the limit of infinitely
    many ReLU features, with x̂ = (x − μ) / s for the training images' mean and standard deviation of each of D pixels
    (Kristiadi et al., 2021).  It grows like t³ where logits grow like t, so all of them tend to 0 far away.

    μ, s and σ are kept in "batch_stats", beside the posterior; `bayes.fit_rgpr` measures them.

    Attributes:
        num_classes, structure, zero_bias: see `LaplaceHead`.

    Raises:
        UserError: when it is called without images, on integers, or on images of another shape than μ's.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models import RGPRHead
        >>> head, features, images = RGPRHead(3), jnp.ones((5, 8)), jnp.ones((5, 4, 4, 1))
        >>> variables = head.init(jax.random.key(0), features, images)
        >>> head.apply(variables, features, images).shape, variables["batch_stats"]["spline_center"].shape
        ((5, 3), (4, 4, 1))
    """

    @property
    def sees_images(self) -> bool:
        """Whether a `Classifier` hands it the images beside their features: always."""
        return True

    def _more_deviation(self, images: Num[Array, "n ..."] | None) -> Float[Array, "n 1"]:
        """√k(x, x)."""
        if images is None or not jnp.issubdtype(images.dtype, jnp.floating):
            given = "nothing" if images is None else images.dtype
            raise UserError(f"the variance of RGPR is of images in floating point, got {given}: integers have none")
        shape = images.shape[1:]
        center = self.variable("batch_stats", "spline_center", jnp.zeros, shape).value
        scale = self.variable("batch_stats", "spline_scale", jnp.ones, shape).value
        deviation = self.variable("batch_stats", "spline_deviation", jnp.ones, ())
        if center.shape != shape:
            raise UserError(
                f"images {list(images.shape)} with a center {list(center.shape)}; expected one image's shape"
            )
        away = jnp.abs(images.astype(jnp.float32) - center[None]) / scale[None]
        away = jax.lax.collapse(jnp.minimum(away, _MOST), 1)
        # The largest one apart, so that no cube overflows.
        largest = jnp.maximum(away.max(axis=1, keepdims=True), 1.0)
        cubes = jnp.mean((away / largest) ** 3, axis=1, keepdims=True)
        return deviation.value * largest * jnp.sqrt(largest) * jnp.sqrt(cubes / 3.0)
