"""The last layer with a Gaussian posterior: logits that a variance pulls together."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from preload_jax.errors import UserError, unknown
from preload_jax.models.guards import overflow_guard
from preload_jax.models.heads import MAX_FEATURE, linear_logits

STRUCTURES = ("kron", "full")
# Of the probit approximation: σ(z) is nearly Φ(√(π/8) z).
PROBIT = math.pi / 8.0


class LaplaceHead(nn.Module):
    """z_c(x) / √(1 + π/8 · v_c(x)): the softmax is a last-layer Laplace approximation's predictive.

    z_c = w_cᵀ g + b_c are the logits at the trained weights, and v_c(x) = g̃ᵀ Σ_c g̃ with g̃ = (g, 1) their variances
    under the posterior of the last layer's weights (MacKay, 1992; Kristiadi et al., 2020).  The weights are parameters
    under "linear", as of a `LinearHead`; Σ is kept in "batch_stats", and `bayes.fit_laplace` computes it.

    Both are divided by the largest feature before they are squared, so that nothing overflows at any finite input.

    Attributes:
        num_classes: K.
        structure: "kron" (v_c = Σ_i (Qᵀg)_i² ω_ic + ω_c: Q in "basis" [d, d], ω in "variances" [d + 1, K]) or "full"
            (v_c = ‖F_cᵀ g̃‖²: F in "factor" [K, d + 1, d + 1]).
        zero_bias: how the biases start, see `LinearHead`.

    Raises:
        UserError: when it is called, for another structure.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.models import LaplaceHead
        >>> head, features = LaplaceHead(3), jnp.ones((5, 8))
        >>> variables = head.init(jax.random.key(0), features)
        >>> head.apply(variables, features).shape, variables["batch_stats"]["variances"].shape
        ((5, 3), (9, 3))
    """

    num_classes: int
    structure: str = "kron"
    zero_bias: bool = True

    @property
    def has_ood_class(self) -> bool:
        """Whether the last logit is the OOD class: never."""
        return False

    @nn.compact
    def __call__(self, features: Float[Array, "n d"], images: Num[Array, "n ..."] | None = None) -> Float[Array, "n k"]:
        if self.structure not in STRUCTURES:
            raise UserError(unknown("structure", self.structure, STRUCTURES))
        g = overflow_guard(jnp.clip)(features.astype(jnp.float32), -MAX_FEATURE, MAX_FEATURE)
        logits = linear_logits(g, self.num_classes, self.zero_bias)
        size = jnp.maximum(jnp.abs(g).max(axis=1, keepdims=True), 1.0)
        deviation = size * jnp.sqrt(PROBIT * self._variances(g / size, 1.0 / size))
        more = self._more_deviation(images)
        if more is not None:
            deviation = jnp.hypot(deviation, math.sqrt(PROBIT) * more)
        # √(1 + u²) without a u² that overflows.
        return logits / jnp.hypot(1.0, deviation)

    def _more_deviation(self, images: Num[Array, "n ..."] | None) -> Float[Array, "n 1"] | None:
        """The standard deviation that the input itself adds to every logit's; None where it adds none."""
        return None

    def _variances(self, g: Float[Array, "n d"], one: Float[Array, "n 1"]) -> Float[Array, "n k"]:
        """v_c(x) / m², of features divided by m and of 1 / m."""
        d = g.shape[1]
        highest = jax.lax.Precision.HIGHEST
        if self.structure == "kron":
            basis = self.variable("batch_stats", "basis", jnp.eye, d)
            variances = self.variable("batch_stats", "variances", jnp.ones, (d + 1, self.num_classes))
            rotated = jnp.matmul(g, basis.value, precision=highest)
            squares = jnp.concatenate([jnp.square(rotated), jnp.square(one)], axis=1)
            return jnp.matmul(squares, variances.value, precision=highest)
        factor = self.variable("batch_stats", "factor", lambda: jnp.tile(jnp.eye(d + 1), (self.num_classes, 1, 1)))
        with_one = jnp.concatenate([g, one], axis=1)
        return jnp.square(jnp.einsum("nd,kde->nke", with_one, factor.value, precision=highest)).sum(axis=2)
