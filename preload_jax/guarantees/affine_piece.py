"""The affine piece at the far end of a ray: G(u₀ + t·u) = t·s + a + o(1) for all large t."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from preload_jax.devices.batches import to_float
from preload_jax.guarantees import germs
from preload_jax.guarantees.ray_inputs import ray_starts, single_directions


@dataclass(frozen=True)
class Features:
    """The backbone as a function of its variables and images."""

    backbone: nn.Module

    def __call__(self, variables: Any, images: Any) -> Any:
        return self.backbone.apply(variables, images, train=False)


def ray_slopes(
    backbone: nn.Module,
    variables: Mapping[str, Any],
    directions: Num[Array, "n ..."] | Num[np.ndarray, "n ..."],
) -> Float[Array, "n d"]:
    """s = lim_{t→∞} G(t·u) / t, in float32, as the network's germ has it.

    Args:
        backbone: a module `f(images, *, train)` → features that grow at most linearly.
        variables: the backbone's: {"params": …, "batch_stats": …}.
        directions: u, any length except 0; s is proportional to it.  They are no images: uint8 is taken as it is.

    Raises:
        UserError: for an operation without a rule, and for a direction that is 0 or not finite.  Traced ones, under
            `jax.jit`, are not looked at.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(64,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> directions = jax.random.normal(jax.random.key(1), (5, 4, 4, 1))
        >>> backbone = {"params": variables["params"]["backbone"]}
        >>> guarantees.ray_slopes(model.backbone, backbone, directions).shape
        (5, 64)
    """
    return germs.coefficients(Features(backbone), variables, _directions(directions), None, power=1, leading=True)


def ray_constants(
    backbone: nn.Module,
    variables: Mapping[str, Any],
    directions: Num[Array, "n ..."] | Num[np.ndarray, "n ..."],
    *,
    starts: Num[Array, "n ..."] | Num[np.ndarray, "n ..."] | None = None,
) -> Float[Array, "n d"]:
    """a = lim_{t→∞} G(u₀ + t·u) − t·s, with s the slopes of `ray_slopes`, in float32.

    Args:
        backbone, variables, directions: as for `ray_slopes`.
        starts: u₀, [n, ...] as the directions, and images as `predict` takes them (uint8 is divided by 255); 0 when
            None.

    Raises:
        UserError: as `ray_slopes` does, and for starts that `predict` would refuse.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(64,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> directions = jax.random.normal(jax.random.key(1), (5, 4, 4, 1))
        >>> backbone = {"params": variables["params"]["backbone"]}
        >>> constants = guarantees.ray_constants(model.backbone, backbone, directions)
        >>> slopes = guarantees.ray_slopes(model.backbone, backbone, directions)
        >>> features = model.backbone.apply(backbone, 100.0 * directions, train=False)
        >>> bool(jnp.allclose(features, 100.0 * slopes + constants, atol=1e-3))
        True
    """
    u = _directions(directions)
    if starts is None:
        origins = jnp.zeros(u.shape, jnp.float32)
    elif isinstance(starts, jax.core.Tracer):
        origins = to_float(starts)
    else:
        origins = jnp.asarray(ray_starts(starts, jax.ShapeDtypeStruct(u.shape, np.float32)))
    return germs.coefficients(Features(backbone), variables, u, origins, power=0, leading=False)


def _directions(directions: Any) -> Any:
    """In float32; traced ones as they are."""
    return directions if isinstance(directions, jax.core.Tracer) else jnp.asarray(single_directions(directions))
