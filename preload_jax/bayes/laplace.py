"""The last-layer Laplace approximation: fitting, and what it predicts (Kristiadi et al., 2020)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float

from preload_jax.bayes import curvature, prior
from preload_jax.bayes.curvature import Curvature
from preload_jax.checks import as_array, check_labels, require_finite, require_number
from preload_jax.errors import UserError, unknown
from preload_jax.integers import require_integer
from preload_jax.models.laplace_head import PROBIT, STRUCTURES


@dataclass(frozen=True)
class Laplace:
    """A Gaussian posterior of the last layer, N(θ; θ*, (H + δ I)⁻¹), and its predictive.

    Attributes:
        kernel, bias: θ*, the trained weights, [d, K] and [K].
        curvature: H, see `bayes.curvature`.
        prior_precision: δ.

    Example: see `posterior`.
    """

    kernel: Float[np.ndarray, "d k"]
    bias: Float[np.ndarray, "k"]
    curvature: Curvature
    prior_precision: float

    def mean(self, features: Any) -> Float[np.ndarray, "n k"]:
        """The logits at the trained weights."""
        return _checked(features, len(self.kernel)) @ self.kernel + self.bias

    def covariance(self, features: Any) -> Float[np.ndarray, "n k k"]:
        """The covariance of the logits, G̃ᵀ (H + δ I)⁻¹ G̃."""
        return self.curvature.covariances(_checked(features, len(self.kernel)), self.prior_precision)

    def logits(self, features: Any, *, more_variance: Float[np.ndarray, "n"] | float = 0.0) -> Float[np.ndarray, "n k"]:
        """z_c / √(1 + π/8 v_c), whose softmax is the probit predictive (MacKay, 1992); v_c is the variance of z_c.

        Args:
            features: [n, d].
            more_variance: added to every v_c, such as that of `bayes.spline`.
        """
        variances = np.einsum("nkk->nk", self.covariance(features)) + np.reshape(more_variance, (-1, 1))
        return self.mean(features) / np.sqrt(1.0 + PROBIT * variances)

    def probabilities(
        self, features: Any, *, key: Array | None = None, samples: int = 1000
    ) -> Float[np.ndarray, "n k"]:
        """The predictive ∫ softmax(z) N(z; mean, covariance) dz: by probit, or with a key by Monte Carlo.

        Args:
            features: [n, d].
            key: of the standard normal numbers, which all inputs share; None: the probit approximation.
            samples: how many, with a key.
        """
        if key is None:
            return scipy.special.softmax(self.logits(features), axis=1)
        samples = require_integer("samples", samples, at_least=1)
        values, vectors = np.linalg.eigh(self.covariance(features))
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        normal = np.asarray(jax.random.normal(key, (samples, self.kernel.shape[1])), np.float64)
        mean, total = self.mean(features), np.zeros((len(roots), self.kernel.shape[1]))
        for draw in normal:
            total += scipy.special.softmax(mean + roots @ draw, axis=1)
        return total / samples

    def stats(self) -> dict[str, Array]:
        """What a `LaplaceHead` keeps in "batch_stats", in float32."""
        found = self.curvature.stats(self.prior_precision)
        return {name: jnp.asarray(value, jnp.float32) for name, value in found.items()}


def posterior(
    features: Any,
    *,
    head: tuple[Any, Any],
    structure: str = "kron",
    prior_precision: float | None = None,
    validation: tuple[Any, Any] | None = None,
    outliers: Any = None,
    ood_weight: float = 1.0,
) -> Laplace:
    """The posterior of a trained last layer, from its inputs on the training data.

    The curvature needs no labels: that of the cross-entropy depends on the probabilities alone.  A covariance cannot be
    singular, for the prior adds δ > 0 to every eigenvalue of H; those that rounding makes negative count as 0.

    Args:
        features: [n, d], of the training inputs.
        head: (kernel [d, K], bias [K]) of the last layer.
        structure: "kron" (Kronecker factors of W, and b apart from it) or "full".
        prior_precision: δ; None: that of the largest marginal likelihood, or of the largest likelihood of `validation`.
        validation: (features [m, d], labels [m]) of held-out examples, by which δ is chosen.
        outliers: features [m, d] of the outliers that training gave λ times a cross-entropy, as outlier exposure does
            (Kristiadi et al., 2022).  Their curvature counts, too: H = Σ_n H_n + λ n/m Σ_m H_m.
        ood_weight: λ.

    Raises:
        UserError: for another structure, features or a head that do not fit or are not finite, a precision that is not
            in 10⁻⁸ … 10⁸, both a precision and validation examples, or a λ outside 0 … 10⁸.

    Example:
        >>> import numpy as np
        >>> from preload_jax import bayes
        >>> features = np.array([[1.0, 0.2], [0.9, 0.1], [0.1, 1.0], [0.3, 0.8]])
        >>> found = bayes.posterior(features, head=(4.0 * np.eye(2), np.zeros(2)), prior_precision=1.0)
        >>> near, far = found.probabilities(np.array([[1.0, 0.0], [1e6, 0.0]])).max(axis=1)
        >>> float(near.round(3)), float(far.round(3))
        (0.956, 0.999)
    """
    if structure not in STRUCTURES:
        raise UserError(unknown("structure", structure, STRUCTURES))
    kernel, bias = (np.asarray(as_array(each, name="the head"), np.float64) for each in head)
    if kernel.ndim != 2 or bias.shape != kernel.shape[1:] or kernel.shape[1] < 2:
        raise UserError(f"the head is {list(kernel.shape)} and {list(bias.shape)}; expected (kernel [d, K], bias [K])")
    require_finite(kernel, name="the head's weights")
    require_finite(bias, name="the head's biases")
    if prior_precision is not None and validation is not None:
        raise UserError("prior_precision and validation both say what the prior is; leave one out")
    g = _checked(features, len(kernel))
    weights = np.ones(len(g))
    ood_weight = require_number("ood_weight", ood_weight, at_least=0.0, at_most=prior.LARGEST)
    if outliers is not None:
        of_outliers = _checked(outliers, len(kernel))
        weights = np.append(weights, np.full(len(of_outliers), ood_weight * len(g) / len(of_outliers)))
        g = np.concatenate([g, of_outliers])
    found = (curvature.kron if structure == "kron" else curvature.full)(g, g @ kernel + bias, weights)
    if prior_precision is not None:
        precision = prior.checked(prior_precision)
    elif validation is not None:
        precision = prior.by_likelihood(_held_out(kernel, bias, found, *validation))
    else:
        precision = prior.by_evidence(found.eigenvalues, float(np.sum(kernel**2) + np.sum(bias**2)))
    return Laplace(kernel, bias, found, precision)


def _held_out(kernel: np.ndarray, bias: np.ndarray, found: Curvature, features: Any, labels: Any) -> Any:
    """δ → the mean log-likelihood of held-out examples."""
    g, y = _checked(features, len(kernel)), check_labels(labels)
    if len(g) != len(y) or (len(y) and y.max() >= len(bias)):
        raise UserError(f"{len(g)} held-out features, {len(y)} labels; expected one of {len(bias)} classes each")

    def mean(precision: float) -> float:
        log_p = scipy.special.log_softmax(Laplace(kernel, bias, found, precision).logits(g), axis=1)
        return float(log_p[np.arange(len(y)), y].mean())

    return mean


def _checked(features: Any, width: int) -> Float[np.ndarray, "n d"]:
    array = as_array(features, name="features")
    if array.ndim != 2 or array.shape[1] != width or not len(array):
        raise UserError(f"features of shape {list(array.shape)}; the last layer takes [n, {width}], n at least 1")
    require_finite(array, name="features")
    return np.asarray(array, np.float64)


def of_variables(variables: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(kernel [d, K], bias [K]) of a network's last layer."""
    linear = variables["params"]["head"]["linear"]
    return np.asarray(linear["kernel"]), np.asarray(linear["bias"])
