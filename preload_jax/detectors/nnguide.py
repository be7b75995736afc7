"""NNGuide: the energy, guided by similar training features of high energy (Park et al., 2023)."""

from typing import Any

import numpy as np

from preload_jax.detectors import bank, far_away
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.largest import log_sum_exp
from preload_jax.errors import UserError

Fitted = dict[str, Any]


def fit(training: Training, *, k: int) -> Fitted:
    """The training features, each normalised and times its energy, [n, d].

    Raises:
        UserError: where there are fewer than k.
    """
    stored = bank.collect(training, lambda block: bank.unit(block.features) * log_sum_exp(block.logits)[:, None])
    if not 1 <= k <= len(stored):
        raise UserError(f"k = {k}; expected 1 to {len(stored)}, the number of training examples")
    return {"bank": stored}


def _guidance(fitted: Fitted, x: np.ndarray, k: int) -> np.ndarray:
    values, _ = bank.nearest(x.astype(fitted["bank"].dtype), fitted["bank"], k)
    return np.asarray(values).mean(axis=1)


def score(fitted: Fitted, outputs: Outputs, *, k: int) -> np.ndarray:
    """E(g) · mean of the k largest E(g_i) ĝᵀĝ_i, [n]."""
    return _guidance(fitted, bank.unit(outputs.features), k) * log_sum_exp(outputs.logits)


def limit(fitted: Fitted, ray: far_away.Ray, *, k: int) -> np.ndarray:
    """The guidance tends to that of s / ‖s‖ and the energy goes as the largest slope: the sign of their product."""
    guidance = _guidance(fitted, ray.direction, k).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return guidance * far_away.log_sum(ray.logit_slopes, ray.logit_constants)
