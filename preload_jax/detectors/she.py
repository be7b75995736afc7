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
        raise UserError(
            f"class {int(counts.argmin())} has no correctly classified examples; SHE stores their mean"
            + moments.if_ood_class(counts)
        )
    return {"patterns": sums / counts[:, None]}


def score(fitted: dict[str, Any], outputs: Outputs, *, euclidean: bool) -> Float[Array, "n"]:
    """gᵀμ_c, or −‖g − μ_c‖ if `euclidean`, with c the predicted class."""
    pattern = jnp.asarray(fitted["patterns"])[jnp.argmax(outputs.logits, axis=-1)]
    if euclidean:
        return -norms.norm(outputs.features - pattern)
    return _product(outputs.features, pattern)


def _product(x: Float[Array, "n d"], y: Float[Array, "n d"]) -> Float[Array, "n"]:
    """xᵀy of each row, whose sign is right where products overflow: those of both signs would make a sum of any.

    Rows are made smaller by powers of two, by as much as is needed and no more: by nothing where none can overflow.
    """
    exponents = sum(jnp.frexp(jnp.max(jnp.abs(each), axis=-1))[1] for each in (x, y))
    beyond = jnp.maximum(exponents + x.shape[1].bit_length() - (jnp.finfo(x.dtype).maxexp - 2), 0)
    first, second = beyond // 2, beyond - beyond // 2
    small = jnp.sum(_times(x, -first) * _times(y, -second), axis=-1)
    # By one power after the other: their product may overflow.
    return _times(_times(small[:, None], first), second)[:, 0]


def _times(x: Float[Array, "n d"], exponents: Array) -> Float[Array, "n d"]:
    """x times 2^e of each row."""
    return x * jnp.ldexp(jnp.ones_like(x[:, 0]), exponents)[:, None]


def limit(fitted: dict[str, Any], ray: far_away.Ray, *, euclidean: bool) -> np.ndarray:
    """Inner product: the sign of sᵀμ_m with m the class of the largest slope.  Euclidean: −∞ where s ≠ 0."""
    pattern = fitted["patterns"][ray.top]
    if euclidean:
        return np.where(ray.moving, -np.inf, -np.linalg.norm(ray.constants - pattern, axis=1))
    return far_away.in_the_end(np.sum(ray.slopes * pattern, axis=1), np.sum(ray.constants * pattern, axis=1))
