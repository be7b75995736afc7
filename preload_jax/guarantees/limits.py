"""Where confidence goes along a ray: the limit of P(y | u₀ + t·u) as t → ∞."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import softmax

from preload_jax.checks import require_finite
from preload_jax.errors import UserError
from preload_jax.guarantees.recession import ray_constants, ray_slopes
from preload_jax.models import Classifier, LinearHead, SquareLogitHead

_jit_slopes = jax.jit(ray_slopes, static_argnums=0)
_jit_constants = jax.jit(ray_constants, static_argnums=0)


@dataclass(frozen=True)
class FarAwayLimit:
    """The limits of n rays.

    Attributes:
        probabilities: lim P(y | u₀ + t·u), one row a ray; the OOD class, where there is one, is last.
        winner: the class whose probability tends to 1, or -1 where none does.
        dead: whether s = 0: the embedding, and so every probability, stays constant far along the ray.
        slope_norm: ‖s‖₂ for a direction of length 1.

    Example: see `far_away_limit`.
    """

    probabilities: Float[np.ndarray, "n k"]
    winner: Int[np.ndarray, "n"]
    dead: Bool[np.ndarray, "n"]
    slope_norm: Float[np.ndarray, "n"]


def far_away_limit(
    model: Classifier,
    variables: Mapping[str, Any],
    directions: Float[Array, "n ..."] | Float[np.ndarray, "n ..."],
    *,
    starts: Float[Array, "n ..."] | Float[np.ndarray, "n ..."] | None = None,
    batch_size: int = 256,
) -> FarAwayLimit:
    """The limit of P(y | u₀ + t·u) as t → ∞, without a t: from the affine piece G = t·s + a at the ray's end.

    - Square-logit head, s ≠ 0: 1 for the extra class (theorem 2), whose logit grows like t².
    - Linear head: softmax(w_cᵀa + b_c) over the classes that share the largest slope w_cᵀs; with one such class, 1.
    - s = 0, any head: the softmax of the head's logits at the constant a.

    The limit is that of exact arithmetic with the stored parameters and the float32 slope s.  s = 0 is taken
    literally: ReLU returns exact zeros, and a unit all of whose inputs are 0 has slope 0 exactly.

    Args:
        model: a `Classifier` whose backbone is piecewise affine (dense, convolution, batch norm, ReLU or leaky ReLU,
            pooling, residual sums) and whose head is a `LinearHead` or a `SquareLogitHead`.
        variables: the classifier's.
        directions: u, images' shape, any length except 0.
        starts: u₀, for rays that start elsewhere than at 0 (FarAway-RD); it matters only where the limit depends on a.
        batch_size: directions computed at once.

    Raises:
        UserError: for a direction of length 0, NaN or infinity, another head, or a backbone that is not piecewise
            affine or has offsets under other names than `bias` and BN's `mean`.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(64,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> directions = jax.random.normal(jax.random.key(1), (5, 4, 4, 1))
        >>> guarantees.far_away_limit(model, variables, directions).winner.tolist()  # the OOD class, K = 3
        [3, 3, 3, 3, 3]
    """
    if not isinstance(model.head, LinearHead | SquareLogitHead):
        raise UserError(f"expected a LinearHead or a SquareLogitHead, got {type(model.head).__name__}: limit unknown")
    backbone_variables = {name: tree["backbone"] for name, tree in variables.items() if "backbone" in tree}
    head_variables = {"params": variables["params"]["head"]}
    units = unit_directions(directions)
    starts = None if starts is None else np.asarray(starts, np.float32)
    slope_of = partial(_jit_slopes, model.backbone, backbone_variables)
    _require_positively_homogeneous(slope_of, units[:batch_size])

    slopes = in_batches(slope_of, units, batch_size=batch_size).astype(np.float64)
    dead = np.abs(slopes).max(axis=1) == 0.0
    if isinstance(model.head, SquareLogitHead):
        leading = np.zeros((len(units), model.head.num_classes + 1), bool)
        leading[:, -1] = True
        leading |= dead[:, None]
    else:
        leading = _largest(slopes, np.asarray(head_variables["params"]["linear"]["kernel"], np.float64))
    # Only where several classes keep up with one another does the limit depend on the constant a.
    undecided = leading.sum(axis=1) > 1
    probabilities = leading.astype(np.float64)
    if undecided.any():
        constants = in_batches(
            lambda u, u0: _jit_constants(model.backbone, backbone_variables, u, starts=u0),
            units[undecided],
            np.zeros_like(units[undecided]) if starts is None else starts[undecided],
            batch_size=batch_size,
        )
        logits = np.asarray(model.head.apply(head_variables, jnp.asarray(constants)), np.float64)
        probabilities[undecided] = softmax(np.where(leading[undecided], logits, -np.inf), axis=1)
    return FarAwayLimit(
        probabilities=probabilities,
        winner=np.where(undecided, -1, leading.argmax(axis=1)),
        dead=dead,
        slope_norm=np.linalg.norm(slopes, axis=1),
    )


def unit_directions(directions: Any) -> Float[np.ndarray, "n ..."]:
    """The directions scaled to Euclidean length 1, float32.

    Raises:
        UserError: when one is 0 or not finite.
    """
    require_finite(directions, name="directions")
    array = np.asarray(directions, np.float64)
    rows = array.reshape(len(array), -1)
    lengths = np.linalg.norm(rows, axis=1)
    if not lengths.all():
        raise UserError(f"direction {int(np.argmin(lengths))} is 0; expected non-zero directions: drop it")
    return (rows / lengths[:, None]).reshape(array.shape).astype(np.float32)


def in_batches(function: Callable[..., Array], *arrays: np.ndarray, batch_size: int) -> np.ndarray:
    """Concatenated function(batches); the last batch is filled up with its last row, so that one shape is compiled."""
    n = len(arrays[0])
    outputs = []
    for first in range(0, n, batch_size):
        rows = np.minimum(np.arange(first, first + min(batch_size, n)), n - 1)
        outputs.append(function(*(jnp.asarray(array[rows]) for array in arrays)))
    return np.concatenate([np.asarray(output) for output in outputs])[:n]


def _largest(slopes: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Which classes have the largest w_cᵀs: equal up to the rounding of a float64 sum of d products."""
    class_slopes = slopes @ kernel
    rounding = 4 * len(kernel) * np.finfo(np.float64).eps * (np.abs(slopes) @ np.abs(kernel))
    return class_slopes + rounding >= (class_slopes - rounding).max(axis=1, keepdims=True)


def _require_positively_homogeneous(slope_of: Callable[[Array], Array], units: np.ndarray) -> None:
    """s(λu) = λ s(u) for λ = 2^±10, which scales floats exactly: false for any other activation or a missed offset."""
    small, large = (
        np.asarray(slope_of(jnp.asarray(units * scale)), np.float64) / scale for scale in (2.0**-10, 2.0**10)
    )
    if not np.allclose(small, large, rtol=0.0, atol=1e-3 * np.abs(large).max()):
        raise UserError(
            "the backbone is not piecewise affine with offsets named 'bias' and 'mean': its recession network "
            "doesn't scale with its input; expected dense, convolution, batch norm, ReLU, pooling and sums only"
        )
