"""What CCU's two densities prove: the confidence in a ball around an input, and beyond a distance from the data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
import scipy.special
from jaxtyping import Array, Float, Num

from preload_jax.checks import as_points, in_units, require_number, require_share, require_unmasked
from preload_jax.devices.variables import plain
from preload_jax.errors import UserError
from preload_jax.models import CCUHead, Classifier
from preload_jax.models.ccu_head import MOST_LOG_VARIANCE
from preload_jax.models.classifier import MAX_INPUT
from preload_jax.short_repr import short_repr

# The network's densities are float32: relative to the sizes of their terms, at least.
_ROUNDING = 1e-5
_UNIT_ROUNDOFF = 2.0**-24
# Far beyond where float32 holds the densities.
_FARTHEST = 1e10


@dataclass(frozen=True)
class DensityRadius:
    """‖x − center‖₂ ≥ radius implies P(c | x) ≤ confidence for all c ≤ K, whatever the backbone; so does d ≥ in_metric.

    Attributes:
        confidence: the confidence asked for.
        radius: in units of the classifier's inputs, images in [0, 1]; inf if there is none.
        relative: radius / scale.
        in_metric: the same in d(x, c) = ‖Wᵀ(x − c)‖₂, which knows in which directions images vary.
        center: c, the mean of the training images.
        scale: their root mean square distance from it, √tr C.
        whitening: W, [D, D].

    Example: see `density_radius`.
    """

    confidence: float
    radius: float
    relative: float
    in_metric: float
    center: Float[np.ndarray, "..."]
    scale: float
    whitening: Float[np.ndarray, "d d"]

    __repr__ = short_repr

    def distances(self, images: Num[Array, "n ..."] | Num[np.ndarray, "n ..."]) -> Float[np.ndarray, "n"]:
        """d(x, c) of each image, uint8 or in [0, 1] or beyond; a UserError for images that `predict` would refuse."""
        return np.linalg.norm(_whitened(images, self.center, self.whitening), axis=1)

    def share_beyond(self, images: Num[Array, "n ..."] | Num[np.ndarray, "n ..."]) -> float:
        """The share of images whose d(x, c) is at least `in_metric`, as that of all beyond `radius` is."""
        return float(np.mean(self.distances(images) >= self.in_metric))


def density_radius(model: Classifier, variables: Mapping[str, Any], confidence: float) -> DensityRadius:
    """The distance from the training mean beyond which CCU reaches a confidence in no class, for any backbone.

    P(c | x) ≤ (r + 1/K) / (r + 1) with r = p(x | i) p(i) / (p(x | o) p(o)).  On the sphere d(x, c) = t a Gaussian of
    the images over one of the outliers, N_k / N_l, has the largest logarithm

        q_kl(t) = D log (θ_l / σ_k) − (t² + ‖m_k‖²) / (2 σ_k²) + (t² + ‖n_l‖²) / (2 θ_l²) + t ‖m_k / σ_k² − n_l / θ_l²‖

    with m_k = Wᵀ(μ_k − c) and n_l = Wᵀ(ν_l − c).  It is a parabola, which falls for θ_l > σ_k from some t on.  So
    log r ≤ log Σ_k exp min_l max_{s ≥ t} q_kl(s) − log p(o) / p(i) at distances of t and more, and bisection finds
    where that is small enough.  Ours: the paper has the existence of such a distance (its theorem 3.1), by the triangle
    inequality.

    Computed in float64 with the stored parameters, and raised for the network's float32: by 1e-5 of each term, and by
    what rounding can make of Wᵀ(x − c), γ ‖W‖_F ‖x − c‖ with γ = (D + 2) 2⁻²⁴.  Where W's singular values lie so far
    apart that this is as large as Wᵀ(x − c) itself, there is no radius.

    Args:
        model: a `Classifier` with a `CCUHead`.
        variables: its variables.
        confidence: between 1/K and 1, both excluded.

    Raises:
        UserError: for another head, a confidence outside (1/K, 1), or parameters that are not finite.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "ccu", num_classes=3, components=2, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> found = guarantees.density_radius(model, variables, 0.5)
        >>> far = found.center + found.radius * np.eye(16).reshape(16, 4, 4, 1)
        >>> probabilities = jnp.exp(model.apply(variables, jnp.asarray(far, jnp.float32)))
        >>> found.share_beyond(far), bool((probabilities <= 0.5).all())
        (1.0, True)
    """
    densities = read_densities(model, variables)
    classes = model.head.num_classes
    confidence = require_share("confidence", confidence)
    if confidence <= 1.0 / classes:
        raise UserError(f"confidence must be above 1/K = {1.0 / classes:g}, which CCU has far away, got {confidence:g}")
    # r ≤ (p − 1/K) / (1 − p).
    allowed = math.log(confidence - 1.0 / classes) - math.log1p(-confidence)
    at = np.zeros((1, densities.whitening.shape[0]))

    def proved(t: float) -> bool:
        return bool(densities.largest_log_ratio(at, t, math.inf)[0] <= allowed)

    low, high = 0.0, 0.0 if proved(0.0) else 1.0
    while not proved(high) and high < _FARTHEST:
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high and high < _FARTHEST:
        middle = (low + high) / 2.0
        low, high = (low, middle) if proved(middle) else (middle, high)
    # Of W, in float64: the shortest length that it makes of a unit vector is where C is largest.
    lengths = np.sqrt(np.maximum(np.linalg.eigvalsh(densities.whitening @ densities.whitening.T), 0.0))
    scale = float(np.sqrt(np.sum(1.0 / np.maximum(lengths, np.finfo(np.float64).tiny) ** 2)))
    in_metric, radius = high * (1.0 + _ROUNDING), high * (1.0 + 2.0 * _ROUNDING) / lengths[0]
    if high >= _FARTHEST or radius + np.linalg.norm(densities.center) >= MAX_INPUT:
        in_metric = radius = math.inf
    return DensityRadius(
        confidence,
        float(radius),
        float(radius / scale),
        float(in_metric),
        densities.center,
        scale,
        densities.whitening,
    )


def density_ball(
    model: Classifier,
    variables: Mapping[str, Any],
    images: Num[Array, "n ..."] | Num[np.ndarray, "n ..."],
    radius: float,
) -> Float[np.ndarray, "n"]:
    """The largest confidence of any class in the balls d(x, x̃) ≤ radius around inputs: CCU's theorem 3.1.

    P(c | x̃) ≤ (r + 1/K) / (r + 1), r = p(x̃ | i) p(i) / (p(x̃ | o) p(o)), and r is bounded as in `density_radius`, by the
    largest ratio of each pair of Gaussians in the ball.  The paper takes the triangle inequality for that.

    Args:
        model: a `Classifier` with a `CCUHead`.
        variables: its variables.
        images: x, uint8, or floating point as the network takes them; [n, …].
        radius: in the metric d(x, y) = ‖Wᵀ(x − y)‖₂, at least 0.

    Raises:
        UserError: for another head, a negative radius, or images that are not finite or of another shape.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "ccu", num_classes=3, components=2, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> guarantees.density_ball(model, variables, np.full((1, 4, 4, 1), 9.0), 1.0).round(4).tolist()
        [0.3333]
    """
    densities = read_densities(model, variables)
    radius = require_number("radius", radius, at_least=0.0)
    at = _whitened(images, densities.center, densities.whitening)
    log_ratio = densities.largest_log_ratio(at, 0.0, radius)
    share = scipy.special.expit(log_ratio)
    return np.minimum((share + (1.0 - share) / model.head.num_classes) * (1.0 + 1e-6), 1.0)


@dataclass(frozen=True)
class Densities:
    """The two mixtures in float64: means in the metric's coordinates, and variances."""

    center: np.ndarray
    whitening: np.ndarray
    in_means: np.ndarray
    in_log_variances: np.ndarray
    out_means: np.ndarray
    out_log_variances: np.ndarray
    log_prior_odds: float

    @property
    def uniform_far_away(self) -> bool:
        """Whether p(x | i) / p(x | o) → 0 along every ray: some θ_l exceeds every σ_k."""
        return bool(self.out_log_variances.max() > self.in_log_variances.max())

    def largest_log_ratio(self, at: Float[np.ndarray, "n d"], nearest: float, farthest: float) -> np.ndarray:
        """A bound on log p(x | i) p(i) / (p(x | o) p(o)) for all x whose distance from `at` is in between, [n]."""
        return np.array([self._largest_from(point, nearest, farthest) for point in at]) - self.log_prior_odds

    @cached_property
    def blur(self) -> float:
        """What float32 makes of w = Wᵀ(x − c) is off by at most so much of ‖w‖."""
        shortest = np.linalg.svd(self.whitening, compute_uv=False)[-1]
        error = _gamma(len(self.whitening)) * np.linalg.norm(self.whitening)
        return float(error / shortest) if shortest > 0.0 else math.inf

    def _largest_from(self, at: np.ndarray, nearest: float, farthest: float) -> float:
        size = len(at)
        to_in, to_out = at - self.in_means, at - self.out_means
        a, b = np.exp(-self.in_log_variances)[:, None], np.exp(-self.out_log_variances)[None]
        squares_in, squares_out = np.square(to_in).sum(axis=1)[:, None], np.square(to_out).sum(axis=1)[None]
        # At x = at + ρu, ‖u‖ = 1, the log-ratio of a pair is constant + ρ uᵀ(…) + curvature ρ².
        constant = 0.5 * (size * (self.out_log_variances[None] - self.in_log_variances[:, None]))
        constant = constant - 0.5 * (squares_in * a - squares_out * b)
        slope = np.sqrt(np.maximum(squares_in * a**2 - 2.0 * a * b * (to_in @ to_out.T) + squares_out * b**2, 0.0))
        curvature = 0.5 * (b - a)
        # The network is at w + δ, ‖δ‖ ≤ blur (‖at‖ + ρ), and the gradient at w is at most slope + ρ |b − a|.
        blur, length, bend = self.blur, np.linalg.norm(at), np.abs(b - a)
        rising = np.maximum(b - a, 0.0) * blur**2
        constant = constant + blur * length * slope + 0.5 * rising * length**2
        curvature = curvature + blur * bend + 0.5 * rising
        slope = slope + blur * (slope + length * bend) + rising * length
        # What float32 may round: of ‖x‖² ≤ 2 (‖at‖² + ρ²), of the means and of the logarithms.
        away, means = 2.0 * np.square(at).sum(), [np.square(m).sum(axis=1) for m in (self.in_means, self.out_means)]
        sizes = (away + means[0][:, None]) * a + (away + means[1][None]) * b
        sizes = sizes + 0.5 * size * (np.abs(self.in_log_variances)[:, None] + np.abs(self.out_log_variances)[None])
        rounding = max(_ROUNDING, _gamma(size))
        constant, curvature = constant + rounding * sizes, curvature + 2.0 * rounding * (a + b)
        falling = curvature < 0.0
        top = np.where(falling, slope / np.where(falling, -2.0 * curvature, 1.0), np.inf)
        rho = np.clip(top, nearest, farthest)
        with np.errstate(invalid="ignore"):
            pairs = np.where(np.isfinite(rho), constant + slope * rho + curvature * rho**2, np.inf)
        return float(scipy.special.logsumexp(pairs.min(axis=1)))


def _gamma(size: int) -> float:
    """The error of a sum of so many products, of the sum of their magnitudes (Higham, 2002, chapter 3)."""
    return (size + 2) * _UNIT_ROUNDOFF


def read_densities(model: Classifier, variables: Mapping[str, Any]) -> Densities:
    head = getattr(model, "head", None)
    if type(head) is not CCUHead:
        raise UserError(f"expected a classifier with a CCUHead, got {type(head).__name__}: no other has densities")
    found = plain(variables)
    require_unmasked(*jax.tree.leaves(found))
    params, stats = found["params"]["head"]["densities"], found["batch_stats"]["head"]
    arrays = {name: np.asarray(x, np.float64) for name, x in {**params, **stats["densities"]}.items()}
    log_prior_odds = float(stats["log_prior_odds"])
    if not all(np.isfinite(x).all() for x in arrays.values()) or not math.isfinite(log_prior_odds):
        raise UserError("the head's densities hold NaN or infinity; expected finite parameters")
    for name in ("in_log_variances", "out_log_variances"):
        arrays[name] = np.clip(arrays[name], -MOST_LOG_VARIANCE, MOST_LOG_VARIANCE)
    return Densities(**arrays, log_prior_odds=log_prior_odds)


def _whitened(images: Any, center: np.ndarray, whitening: np.ndarray) -> Float[np.ndarray, "n d"]:
    points = as_points(images, shape=center.shape)
    return (in_units(points) - center).reshape(len(points), -1) @ whitening
