"""Confidence along rays, as the network computes it: data for a plot and a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array, Float, Num
from scipy.special import softmax

from preload_jax.checks import as_array, require_finite
from preload_jax.devices.variables import require_rays
from preload_jax.errors import UserError
from preload_jax.guarantees.limits import in_batches
from preload_jax.guarantees.ray_inputs import ray_starts, unit_directions
from preload_jax.integers import require_integer
from preload_jax.short_repr import short_repr


@dataclass(frozen=True)
class ConfidenceProfile:
    """Confidence at m distances along n rays.

    Attributes:
        distances: the distances t, [m].
        confidence: max_{c≤K} P(c | u₀ + t·u), [m, n].
        ood_probability: P(K+1 | u₀ + t·u), [m, n]; 0 if the model has no OOD class.

    Example: see `confidence_profile`.
    """

    distances: Float[np.ndarray, "m"]
    confidence: Float[np.ndarray, "m n"]
    ood_probability: Float[np.ndarray, "m n"]

    __repr__ = short_repr


def confidence_profile(
    model: nn.Module,
    variables: Mapping[str, Any],
    directions: Num[Array, "n ..."] | Num[np.ndarray, "n ..."],
    *,
    num_classes: int,
    starts: Num[Array, "n ..."] | Num[np.ndarray, "n ..."] | None = None,
    distances: Float[np.ndarray, "m"] | None = None,
    batch_size: int = 256,
) -> ConfidenceProfile:
    """Confidence at u₀ + t·u, in the network's own precision.

    Args:
        model: any module `f(images, *, train)` → logits [n, K] or [n, K+1]; a `Classifier` stays put beyond
            `MAX_INPUT`.
        variables: the model's.
        directions: u, images' shape, scaled to length 1; only where they point counts.
        num_classes: K; a logit beyond the first K is the OOD class's.
        starts: u₀, images as `predict` takes them (uint8 is divided by 255); 0 when None.
        distances: t, [m]; 61 from 1 to 1e30 in equal ratios when None.
        batch_size: inputs computed at once.

    Raises:
        UserError: when an input is not finite in float32, for distances that are no numbers [m], for starts that
            `predict` would refuse, or a model with neither K nor K + 1 logits.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(64,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> directions = jax.random.normal(jax.random.key(1), (5, 4, 4, 1))
        >>> profile = guarantees.confidence_profile(
        ...     model, variables, directions, num_classes=3, distances=np.array([1.0, 1e10])
        ... )
        >>> profile.confidence.shape, float(profile.confidence[1].max())
        ((2, 5), 0.0)
    """
    num_classes = require_integer("num_classes", num_classes, at_least=2)
    batch_size = require_integer("batch_size", batch_size, at_least=1)
    distances = np.logspace(0.0, 30.0, 61) if distances is None else _checked(distances)
    units = unit_directions(directions)
    require_rays(model, variables, units.shape[1:])
    given = ray_starts(starts, units)
    starts = np.zeros_like(units) if given is None else given

    # One compiled function for every distance; it is made here because it holds the model.
    @jax.jit
    def logits(images: Array) -> Any:
        return model.apply(variables, images, train=False)

    rows = []
    for t in distances:
        with np.errstate(over="ignore"):
            images = starts + np.float32(t) * units
        require_finite(images, name=f"the rays at t = {t:g}")
        # The softmax in float64: in float32 a confidence of 1 - 1e-8 would be 1.
        rows.append(softmax(in_batches(logits, images, batch_size=batch_size).astype(np.float64), axis=-1))
    values = np.stack(rows)
    if values.shape[-1] not in (num_classes, num_classes + 1):
        raise UserError(f"the model has {values.shape[-1]} logits; expected num_classes = {num_classes}, or one more")
    return ConfidenceProfile(
        distances=distances,
        confidence=values[..., :num_classes].max(axis=-1),
        ood_probability=values[..., num_classes:].sum(axis=-1),
    )


def _checked(distances: Any) -> Float[np.ndarray, "m"]:
    array = as_array(distances, name="distances")
    if array.dtype.kind not in "fiu" or array.ndim != 1 or not len(array):
        raise UserError(f"distances are {array.dtype} {list(array.shape)}; expected numbers [m], m at least 1")
    require_finite(array, name="distances")
    return array.astype(np.float64)
