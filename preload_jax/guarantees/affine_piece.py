"""The affine piece at the far end of a ray: G(u₀ + t·u) = t·s + a + o(1) for all large t."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from preload_jax.guarantees import germs


@dataclass(frozen=True)
class Features:
    """The backbone as a function of its variables and images."""

    backbone: nn.Module

    def __call__(self, variables: Any, images: Any) -> Any:
        return self.backbone.apply(variables, images, train=False)


def ray_slopes(
    backbone: nn.Module, variables: Mapping[str, Any], directions: Float[Array, "n ..."]
) -> Float[Array, "n d"]:
    """s = lim_{t→∞} G(t·u) / t, in float32, as the network's germ has it.

    Args:
        backbone: a module `f(images, *, train)` → features that grow at most linearly.
        variables: the backbone's: {"params": …, "batch_stats": …}.
        directions: u, any length except 0; s is proportional to it.

    Raises:
        UserError: for an operation without a rule.

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
    return germs.coefficients(Features(backbone), variables, directions, None, power=1, leading=True)


def ray_constants(
    backbone: nn.Module,
    variables: Mapping[str, Any],
    directions: Float[Array, "n ..."],
    *,
    starts: Float[Array, "n ..."] | None = None,
) -> Float[Array, "n d"]:
    """a = lim_{t→∞} G(u₀ + t·u) − t·s, with s the slopes of `ray_slopes`, in float32.

    Args:
        backbone, variables, directions: as for `ray_slopes`.
        starts: u₀, [n, ...] as the directions; 0 when None.

    Raises:
        UserError: as `ray_slopes` does.

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
    starts = jnp.zeros_like(directions) if starts is None else starts
    return germs.coefficients(Features(backbone), variables, directions, starts, power=0, leading=False)
