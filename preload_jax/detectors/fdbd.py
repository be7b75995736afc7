"""fDBD: the mean distance to the other classes' decision boundaries, over that to the mean feature (Liu, Qin 2024)."""

from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax.detectors import moments, norms
from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.far_away import Ray
from preload_jax.errors import UserError

# A distance of 0 is taken for this: the score is finite, or clipped as any is that overflows.
_LEAST = float(np.finfo(np.float64).tiny)


def fit(training: Training) -> dict[str, Any]:
    """The mean feature [d], and the distances ‖w_m − w_c‖ of the head's columns [K, K], 1 on the diagonal.

    Raises:
        UserError: where two columns are the same: there is no boundary between the two classes.
    """
    assert training.head is not None
    columns = training.head[0].T
    gaps = np.stack([np.linalg.norm(columns - w, axis=1) for w in columns]) + np.eye(len(columns))
    if (gaps == 0.0).any():
        first, second = np.argwhere(gaps == 0.0)[0]
        raise UserError(f"classes {first} and {second} have the same weights; there is no boundary between them")
    return {"mean": moments.mean(training), "gaps": gaps}


def score(fitted: dict[str, Any], outputs: Outputs) -> Float[np.ndarray, "n"]:
    """Σ_{c ≠ m} (z_m − z_c)/‖w_m − w_c‖ / (K − 1) / ‖g − μ‖; at μ the largest number, or 0 if all z are equal."""
    # Differences of large logits, and distances of small weights, need float64's range.
    g, z = outputs.features, outputs.logits.astype(np.float64)
    top, classes = z.argmax(axis=1), z.shape[1]
    # The sum over a short axis as a product, which is faster.
    boundary = ((z[np.arange(len(z)), top][:, None] - z) / fitted["gaps"][top]) @ np.full(classes, 1.0 / (classes - 1))
    lengths, scales = norms.distances(g, fitted["mean"].astype(g.dtype))
    # One factor after the other: their product may overflow.
    return boundary / np.maximum(lengths, _LEAST) / scales


def limit(fitted: dict[str, Any], ray: Ray) -> np.ndarray:
    """The same of the slopes, over ‖s‖: the direction alone decides.  Where s = 0, the score at a."""
    slopes = np.where(ray.moving[:, None], ray.logit_slopes, ray.logit_constants)
    top = ray.top
    gaps = fitted["gaps"][top]
    rows = np.arange(len(top))
    boundary = np.sum((slopes[rows, top][:, None] - slopes) / gaps, axis=1) / (slopes.shape[1] - 1)
    away = np.where(ray.moving[:, None], ray.slopes, ray.constants - fitted["mean"])
    return boundary / np.maximum(np.linalg.norm(away, axis=1), _LEAST)
