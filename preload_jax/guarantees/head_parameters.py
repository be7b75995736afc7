"""A head's parameters in float64 on the host, told apart by what is there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax.checks import as_array, is_real
from preload_jax.errors import UserError
from preload_jax.integers import require_flag
from preload_jax.models import Classifier, LinearHead, MCDropout, SquareLogitHead
from preload_jax.models.ood_logit import MAX_LOG_WEIGHT, check_exponent, weight_floor


@dataclass(frozen=True)
class HeadParameters:
    """z_c = w_cᵀg + b_c and, with a square-logit head, z_{K+1} = Σ_j v_j g_j^exponent + ood_bias.

    Attributes:
        weights: w_c, one row a class (the transpose of the kernel).
        bias: b_c.
        square_weights: v = min_weight + exp(w') > 0, exp(w') limited to exp(±80) as the head limits it; None for a
            linear head.
        distance_weight: v_r, of the distance that the OOD class alone sees; None for a head without it.
        ood_bias: b_{K+1}; 0 for a linear head.
        exponent: even, ≥ 2.
    """

    weights: Float[np.ndarray, "k d"]
    bias: Float[np.ndarray, "k"]
    square_weights: Float[np.ndarray, "d"] | None
    ood_bias: float
    exponent: int
    distance_weight: float | None = None


def read_head(
    head_variables: Mapping[str, Any],
    *,
    exponent: int = 2,
    min_weight: float = 0.0,
    min_distance_weight: float | None = None,
) -> HeadParameters:
    """The parameters of a `LinearHead` or `SquareLogitHead`, as float64; the options are `models.head_options`.

    A square logit with one weight more than the classes have sees the distance, last.

    Raises:
        UserError: when they are not a head's, do not fit each other in shape, or hold NaN or infinity.
    """
    check_exponent(exponent)
    parameters = head_variables.get("params", head_variables) if isinstance(head_variables, Mapping) else head_variables
    if not isinstance(parameters, Mapping):
        raise UserError(
            f"expected a head's parameters, got a {type(parameters).__name__}; pass variables['params']['head']"
        )
    if "linear" not in parameters:
        raise UserError(
            f"expected a head's parameters with an entry 'linear', got entries {sorted(parameters)}; "
            "pass variables['params']['head']"
        )
    weights = _float64(_entry(parameters, "linear", "kernel"), "linear/kernel").T
    bias = _float64(_entry(parameters, "linear", "bias"), "linear/bias")
    if weights.ndim != 2 or bias.shape != weights.shape[:1]:
        raise UserError(
            f"linear/kernel has shape {weights.T.shape} and linear/bias {bias.shape}, expected (d, K) and (K,)"
        )
    if not weights.size:
        raise UserError(
            f"linear/kernel has shape {weights.T.shape}, expected (d, K) with a feature and a class at least; pass the"
            " parameters of a head that was made for features"
        )
    if "ood" not in parameters:
        return HeadParameters(weights, bias, None, 0.0, exponent)
    raw_weights = _float64(_entry(parameters, "ood", "raw_weights"), "ood/raw_weights")
    ood_bias = _float64(_entry(parameters, "ood", "bias"), "ood/bias")
    if ood_bias.size != 1:
        raise UserError(f"ood/bias has shape {ood_bias.shape}, expected one number")
    width = weights.shape[1]
    if raw_weights.shape not in ((width,), (width + 1,)):
        raise UserError(
            f"ood/raw_weights has shape {raw_weights.shape}, expected {(width,)}, the embedding's width, or one more"
            " for the distance"
        )
    distance = len(raw_weights) > width
    floor = weight_floor(
        len(raw_weights), min_weight=min_weight, min_distance_weight=min_distance_weight, distance=distance
    )
    v = np.exp(np.clip(raw_weights, -MAX_LOG_WEIGHT, MAX_LOG_WEIGHT)) + (0.0 if floor is None else floor)
    return HeadParameters(weights, bias, v[:width], ood_bias.item(), exponent, float(v[-1]) if distance else None)


def known_nonnegative(nonnegative: Any) -> bool:
    """Whether embeddings are known to be ≥ 0; None is for "not known".

    Raises:
        UserError: for what is neither None nor a bool.
    """
    return nonnegative is not None and require_flag("nonnegative", nonnegative)


def require_one_head(model: Any) -> None:
    """Refuses what does not answer by one linear head or square logit of its features, such as a mean over networks.

    Raises:
        UserError: for these.
    """
    head = getattr(model, "head", model)
    # One's own subclass may compute anything of the same parameters.
    known = type(head) in (LinearHead, SquareLogitHead)
    if not known or type(model) not in (Classifier, type(head)):
        got = type(model if known or isinstance(model, MCDropout) else head).__name__
        raise UserError(f"expected a Classifier with a LinearHead or a SquareLogitHead, got {got}")


def _entry(parameters: Mapping[str, Any], layer: str, name: str) -> Any:
    if not isinstance(parameters[layer], Mapping):
        raise UserError(
            f"the head's {layer!r} is a {type(parameters[layer]).__name__}, expected its arrays by name; pass"
            " variables['params']['head']"
        )
    if name not in parameters[layer]:
        raise UserError(f"the head lacks {layer}/{name}, got entries {sorted(parameters[layer])}; a bias may be zeros")
    return parameters[layer][name]


def _float64(values: Any, name: str) -> np.ndarray:
    given = as_array(values, name=f"the head's {name}")
    if not is_real(given.dtype):
        raise UserError(f"the head's {name} is of type {given.dtype}; expected real numbers: pass the model's own")
    array = given.astype(np.float64)
    if not np.isfinite(array).all():
        raise UserError(
            f"the head's {name} holds NaN or infinity; expected finite parameters: restore a good checkpoint"
        )
    return array
