"""SHE: how well features match the stored pattern of the predicted class (Zhang et al., 2023)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors import far_away, moments, norms
from preload_jax.detectors.data import Outputs, Training
from preload_jax.errors import UserError


def fit(training: Training, *, euclidean: bool) -> dict[str, Any]:
    """The mean features μ_c of the correctly classified examples of each class, [K, d].

    Raises:
        UserError: where a class has none.
    """
    k = training.num_classes

    def of_block(block: Outputs, labels: np.ndarray) -> list[np.ndarray]:
        right = block.logits.argmax(axis=1) == labels
        return [
            np.bincount(labels[right], minlength=k),
            moments.group_sums(block.features[right], labels[right], k),
        ]

    counts, sums = moments.totals(training, of_block)
    if counts.min() == 0:
        raise UserError(f"class {int(counts.argmin())} has no correctly classified examples; SHE stores their mean")
    return {"patterns": sums / counts[:, None]}


def score(fitted: dict[str, Any], outputs: Outputs, *, euclidean: bool) -> Float[Array, "n"]:
    """gᵀμ_c, or −‖g − μ_c‖ if `euclidean`, with c the predicted class."""
    pattern = jnp.asarray(fitted["patterns"])[jnp.argmax(outputs.logits, axis=-1)]
    if euclidean:
        return -norms.norm(outputs.features - pattern)
    (g, g_scale), (mu, mu_scale) = _shrunk(outputs.features), _shrunk(pattern)
    # By one scale after the other: their product may overflow, or be what division turns into 0.
    return jnp.sum(g * mu, axis=-1) * g_scale * mu_scale


def _shrunk(x: Array) -> tuple[Array, Array]:
    """Each row over a power of two, [n, d], and the powers [n]: so small that no sum of products overflows.

    Rows of usual size stay as they are.  Products that overflow with both signs would make a sum of any sign.
    """
    bits = jnp.finfo(x.dtype).maxexp
    power, large = bits // 2 + 8, jnp.max(jnp.abs(x), axis=-1) > 2.0 ** (bits // 4)
    down, up = (jnp.where(large, 2.0**sign, 1.0).astype(x.dtype) for sign in (-power, power))
    return x * down[:, None], up


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, euclidean: bool) -> np.ndarray:
    """Inner product: the sign of sᵀμ_m with m the class of the largest slope.  Euclidean: −∞ where s ≠ 0."""
    pattern = fitted["patterns"][ray.top]
    if euclidean:
        return np.where(ray.moving, -np.inf, -np.linalg.norm(ray.constants - pattern, axis=1))
    return far_away.in_the_end(np.sum(ray.slopes * pattern, axis=1), np.sum(ray.constants * pattern, axis=1))
