"""Relation: how many training examples are alike in features and in prediction (Kim et al., 2023)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array

from preload_jax.detectors import bank, far_away
from preload_jax.detectors.data import Outputs, Training
from preload_jax.devices import threads

Fitted = dict[str, Any]


def fit(training: Training, *, power: float, cutoff: float) -> Fitted:
    """The normalised features and the probabilities of the training data, [n, d + K]."""

    def both(block: Outputs) -> np.ndarray:
        return np.concatenate([bank.unit(block.features), _probabilities(block)], axis=1)

    return {"bank": bank.collect(training, both), "classes": np.int64(training.num_classes)}


def _probabilities(outputs: Outputs) -> np.ndarray:
    # Logits may lie farther apart than the largest number.
    with np.errstate(over="ignore"):
        return np.asarray(scipy.special.softmax(outputs.logits, axis=1))


def score(fitted: Fitted, outputs: Outputs, *, power: float, cutoff: float) -> np.ndarray:
    """Σ_i r_i^q [r_i > τ], r_i = max(0, ĝᵀĝ_i)·pᵀp_i, [n]."""
    return _sum(fitted, bank.unit(outputs.features), _probabilities(outputs), power, cutoff)


def _sum(fitted: Fitted, x: np.ndarray, p: np.ndarray, power: float, cutoff: float) -> np.ndarray:
    width = x.shape[1]
    if jax.default_backend() == "cpu":
        return threads.in_parts(
            lambda x, p: (_sum_on_host(x, p, fitted["bank"], power, cutoff),), x, p, rows=bank.HOST_QUERIES
        )[0]
    total = np.zeros(len(x))
    for _, piece in bank.pieces(fitted["bank"]):
        features, probabilities = jnp.asarray(piece[:, :width]), jnp.asarray(piece[:, width:])
        for start in range(0, len(x), bank.QUERIES):
            rows = slice(start, start + bank.QUERIES)
            given = x[rows].astype(piece.dtype), p[rows].astype(piece.dtype)
            total[rows] += np.asarray(_relations(*given, features, probabilities, power=power, cutoff=cutoff))
    return total


def _sum_on_host(x: np.ndarray, p: np.ndarray, stored: np.ndarray, power: float, cutoff: float) -> np.ndarray:
    total = np.zeros(len(x))
    for start in range(0, len(stored), bank.HOST_PIECE):
        features, probabilities = np.split(stored[start : start + bank.HOST_PIECE], [x.shape[1]], axis=1)
        relation = x @ features.T
        np.multiply(np.maximum(relation, 0.0, out=relation), p @ probabilities.T, out=relation)
        np.multiply(relation, relation > cutoff, out=relation)
        total += np.sum(relation if power == 1.0 else relation**power, axis=1)
    return total


@partial(jax.jit, static_argnames=("power", "cutoff"))
def _relations(x: Any, p: Any, features: Array, probabilities: Array, *, power: float, cutoff: float) -> Array:
    similar = jnp.matmul(x, features.T, precision="highest"), jnp.matmul(p, probabilities.T, precision="highest")
    relation = jnp.maximum(similar[0], 0.0) * similar[1]
    return jnp.sum(jnp.where(relation > cutoff, relation**power, 0.0), axis=-1)


def limit(fitted: Fitted, ray: far_away.Ray, *, power: float, cutoff: float) -> np.ndarray:
    """The score at s / ‖s‖ and the unit vector of the class of the largest slope."""
    p = far_away.probabilities(ray.logit_slopes, ray.logit_constants)
    return _sum(fitted, ray.direction, p, power, cutoff)
