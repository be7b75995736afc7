"""How far is far: the norm of the embedding beyond which no class can reach a confidence."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from preload_jax.checks import as_array, is_real, require_finite, require_share
from preload_jax.errors import UserError
from preload_jax.guarantees.head_parameters import known_nonnegative, read_head
from preload_jax.short_repr import short_repr

_BISECTIONS = 100
_NEWTON_STEPS = 100
# λ comes this many halvings close to the smallest weight: M_c is far below any float32 target there.
_MAX_HALVINGS = 200.0


@dataclass(frozen=True)
class SafeRadius:
    """‖G(x)‖₂ ≥ radius implies P(c | x) ≤ confidence for all c ≤ K.

    Attributes:
        confidence: the confidence asked for.
        radius: the largest of `class_radii`, in the units of the embedding; inf for a linear head, which has no radius.
        class_radii: the radius of each class c alone, [k]; 0 if the class never exceeds the confidence.
        nonnegative: whether embeddings ≥ 0 were assumed.  If so, the radius says nothing about negative ones.
        width: d, the width of the embeddings.  A distance that follows them is not part of the norm.

    Example: see `safe_radius`.
    """

    confidence: float
    radius: float
    class_radii: Float[np.ndarray, "k"]
    nonnegative: bool = True
    width: int | None = None

    __repr__ = short_repr

    def share_beyond(self, features: Float[Array, "n d"] | Float[np.ndarray, "n d"]) -> float:
        """The share of embeddings whose norm is at least the radius.

        Args:
            features: [n, d], n ≥ 1, or [n, d + 1], whose last column is the distance of a `models.WithDistance`.

        Raises:
            UserError: for negative embeddings of a radius that assumes there are none; for another shape, what is no
                real number, and masked ones.
        """
        embeddings = self._embeddings(features)
        lowest = float(np.min(embeddings, initial=0.0))
        if self.nonnegative and lowest < 0.0:
            raise UserError(
                f"embeddings reach {lowest:.3g}, but the radius assumes that none is negative: compute it with "
                "nonnegative=False"
            )
        return float(np.mean(np.linalg.norm(embeddings, axis=1) >= self.radius))

    def _embeddings(self, features: Any) -> Float[np.ndarray, "n d"]:
        """In float64, without a distance that follows them."""
        array = as_array(features, name="embeddings")
        if not is_real(array.dtype):
            raise UserError(f"embeddings of type {array.dtype}; expected real numbers [n, d]")
        d = self.width
        if array.ndim != 2 or not array.size or (d is not None and array.shape[1] not in (d, d + 1)):
            columns = "d" if d is None else f"{d}], or [n, {d + 1}"
            more = "" if d is None else " with a distance as the last column"
            raise UserError(f"embeddings of shape {list(array.shape)}; expected [n, {columns}]{more}, n at least 1")
        require_finite(array, name="embeddings")
        return array.astype(np.float64)[:, :d]


def safe_radius(
    head_variables: Mapping[str, Any],
    confidence: float,
    *,
    exponent: int = 2,
    nonnegative: bool | None = None,
    min_weight: float = 0.0,
    min_distance_weight: float | None = None,
) -> SafeRadius:
    """A radius R such that ‖G(x)‖ ≥ R implies P(c | x) ≤ confidence for every class, by the closed form.

    P(c | g) ≤ sigmoid(z_c − z_{K+1}), and the closed form restricted to the outside of a ball,

        M_c(R) = max over ‖g‖ ≥ R of Σ_j w⁺_cj g_j − v_j g_j^e + b_c − b_{K+1},     w⁺ = max(w, 0),

    is concave in g_j², so its Lagrangian is exact: at a multiplier λ the g_j solve w⁺_j = e v_j g_j^{e−1} − 2λ g_j, for
    e = 2 g_j = w⁺_j / (2 (v_j − λ)).  R is where M_c falls to log(confidence / (1 − confidence)), found by bisection
    in λ and rounded up.  If w_c ≥ 0, it is the smallest radius that the pair of logits (c, K+1) allows.

    Args:
        head_variables: `variables["params"]["head"]`.
        confidence: between 0 and 1, both excluded.
        exponent: the head's even power.
        nonnegative: True if embeddings are ≥ 0 (`nonnegative_embeddings` proves it of a network).  With False, or None
            for "not known", `|w_c|` takes the place of w⁺_c.  The radius is then never smaller.
        min_weight, min_distance_weight: the head's floors: with `exponent` they are `models.head_options(head)`.
            The distance of `models.WithDistance` only adds to the OOD logit: the norm is that of the embedding
            without it.

    Raises:
        UserError: for a confidence outside (0, 1), parameters that are not a head's or not finite, or a `nonnegative`
            that is none of True, False and None.

    Example:
        >>> import numpy as np
        >>> from preload_jax import guarantees
        >>> head = {
        ...     "linear": {"kernel": np.array([[2.0, -2.0]]), "bias": np.zeros(2)},
        ...     "ood": {"raw_weights": np.zeros(1), "bias": np.array(0.0)},
        ... }
        >>> found = guarantees.safe_radius(head, 0.5)  # 2g − g² ≤ 0 from g = 2 on
        >>> round(found.radius, 4), found.share_beyond(np.array([[3.0], [0.5]]))
        (2.0, 0.5)
    """
    confidence = require_share("confidence", confidence)
    nonnegative = known_nonnegative(nonnegative)
    head = read_head(head_variables, exponent=exponent, min_weight=min_weight, min_distance_weight=min_distance_weight)
    width = head.weights.shape[1]
    if head.square_weights is None:
        return SafeRadius(confidence, math.inf, np.full(len(head.weights), math.inf), nonnegative, width)
    weights = np.maximum(head.weights, 0.0) if nonnegative else np.abs(head.weights)
    # What M_c may be at most, without its constant b_c − b_o.
    targets = math.log(confidence) - math.log1p(-confidence) - head.bias + head.ood_bias
    v = head.square_weights
    radii = np.array(
        [
            _quadratic_radius(w, v, target) if exponent == 2 else _power_radius(w, v, target, exponent=exponent)
            for w, target in zip(weights, targets, strict=True)
        ]
    )
    return SafeRadius(confidence, float(radii.max()), radii, nonnegative, width)


def _quadratic_radius(w: np.ndarray, v: np.ndarray, target: float) -> float:
    """Exponent 2: λ = v_min (1 − 2^−s) approaches v_min, where g_j = w_j / (2 (v_j − λ)) grows without limit."""
    smallest = v.min()
    excess = v - smallest

    def at(s: float) -> tuple[float, float]:
        distance = excess + smallest * 2.0**-s  # v − λ without cancellation
        g = w / (2.0 * distance)
        return float(w @ g - v @ g**2), float(np.linalg.norm(g))

    if at(0.0)[0] <= target:
        return 0.0
    low, high = 0.0, _MAX_HALVINGS
    value, radius = at(high)
    if value > target:
        # w = 0 at v_min, so that g stays bounded: the rest of the length goes into that coordinate.
        return _rounded_up(math.sqrt(radius**2 + (value - target) / smallest))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if at(middle)[0] <= target else (middle, high)
    return _rounded_up(at(high)[1])


def _power_radius(w: np.ndarray, v: np.ndarray, target: float, *, exponent: int) -> float:
    """Exponents above 2: every λ ≥ 0 has its g, which grows without limit."""

    def at(multiplier: float) -> tuple[float, float]:
        g = _stationary(w, v, multiplier, exponent=exponent)
        return float(w @ g - v @ g**exponent), float(np.linalg.norm(g))

    if at(0.0)[0] <= target:
        return 0.0
    high = 1.0
    while at(high)[0] > target:
        high *= 16.0
    low = 0.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if at(middle)[0] <= target else (middle, high)
    return _rounded_up(at(high)[1])


def _stationary(w: np.ndarray, v: np.ndarray, multiplier: float, *, exponent: int) -> np.ndarray:
    """The largest root of h(g) = e v g^{e−1} − 2λ g − w, by Newton from above, where h is convex and increasing."""
    e = exponent
    g = np.maximum((2.0 * w / (e * v)) ** (1.0 / (e - 1)), (4.0 * multiplier / (e * v)) ** (1.0 / (e - 2)))
    for _ in range(_NEWTON_STEPS):
        slope = e * (e - 1) * v * g ** (e - 2) - 2.0 * multiplier
        height = e * v * g ** (e - 1) - 2.0 * multiplier * g - w
        step = np.divide(height, slope, out=np.zeros_like(g), where=slope > 0.0)
        g = np.maximum(g - step, 0.0)
        if (np.abs(step) <= 1e-14 * g).all():
            break
    return g


def _rounded_up(radius: float) -> float:
    # Far above the rounding of sums of d ≤ 10⁵ terms, far below anything that matters.
    return radius * (1.0 + 1e-10)
