"""ViM: the energy against a virtual logit, the scaled norm of the residual (Wang et al., 2022)."""

from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax.detectors import far_away, moments, residual, subspace
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.largest import largest, log_sum_exp
from preload_jax.errors import UserError


def fit(training: Training, *, dims: int | None) -> dict[str, Any]:
    """The origin [d], the directions R [d, d − dims] and the scale α = mean of max_c z_c over mean of ‖Rᵀ(g − o)‖.

    Raises:
        UserError: where no training feature has a residual.
    """
    origin, directions = subspace.fit(training, dims)

    def of_block(block: Outputs, _: Any) -> list[float]:
        norms = residual.norm(origin, directions, block.features)
        return [largest(block.logits).sum(dtype=np.float64), norms.sum(dtype=np.float64)]

    logits, norms = moments.telling_totals(training, of_block)
    if norms == 0.0:
        raise UserError("no training feature leaves the principal space; give a smaller dims")
    return {"origin": origin, "directions": directions, "alpha": np.float64(logits / norms)}


def score(fitted: dict[str, Any], outputs: Outputs, *, dims: int | None) -> Float[np.ndarray, "n"]:
    """log Σ_c exp z_c − α‖Rᵀ(g − o)‖."""
    return log_sum_exp(outputs.logits) - fitted["alpha"] * residual.norms_of(fitted, outputs.features)


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, dims: int | None) -> np.ndarray:
    """The sign of p₁ − α‖Rᵀs‖; where it is 0, that of the rest.

    With r = Rᵀs ≠ 0, ‖t·r + Rᵀ(a − o)‖ = t‖r‖ + rᵀRᵀ(a − o)/‖r‖ + O(1/t).
    """
    r, rest = ray.slopes @ fitted["directions"], (ray.constants - fitted["origin"]) @ fitted["directions"]
    norm = np.linalg.norm(r, axis=1)
    constant = np.where(
        norm > 0.0, np.sum(r * rest, axis=1) / np.where(norm > 0.0, norm, 1.0), np.linalg.norm(rest, axis=1)
    )
    alpha = fitted["alpha"]
    return far_away.log_sum(ray.logit_slopes - alpha * norm[:, None], ray.logit_constants - alpha * constant[:, None])
