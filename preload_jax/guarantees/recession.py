"""The affine piece of a network at the far end of a ray: G(u₀ + t·u) = t·s + a for all large t.

Scaling every offset of a piecewise-affine network by ε scales its constant alone: with H(u, ε) the network whose
biases, BN means and BN offsets are multiplied by ε, applied to u + ε·u₀,

    H(u, ε) = ε G(u₀ + u/ε) = s + ε·a       for all small ε > 0.

So s = H(u, 0), the *recession network*, has no limit left to approximate, and a is the derivative of H by ε.  The
derivative is taken at ε = 1e-25, not at 0: where a unit's slope is exactly 0 its constant must decide whether it is
active, and ε·a keeps that sign without disturbing any slope that is not 0.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Offsets by collection and name, as Flax's Dense, Conv and BatchNorm call them.
_OFFSETS = (("params", "bias"), ("batch_stats", "mean"))
# Above float32's smallest normal number times any sensible gain, below its rounding errors.
_EPSILON = 1e-25


def ray_slopes(
    backbone: nn.Module, variables: Mapping[str, Any], directions: Float[Array, "n ..."]
) -> Float[Array, "n d"]:
    """s = lim_{t→∞} G(t·u) / t, by the recession network in float32 at the highest matmul precision.

    Args:
        backbone: a module `f(images, *, train)` → features, piecewise affine with `train=False`.
        variables: the backbone's: {"params": …, "batch_stats": …}.
        directions: u, any length except 0; s is proportional to it.

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
    return _perturbed(backbone, variables, directions, None, jnp.float32(0.0))


def ray_constants(
    backbone: nn.Module,
    variables: Mapping[str, Any],
    directions: Float[Array, "n ..."],
    *,
    starts: Float[Array, "n ..."] | None = None,
) -> Float[Array, "n d"]:
    """a = lim_{t→∞} G(u₀ + t·u) − t·s, with u₀ = `starts` (0 when None).

    Exact, up to float32 rounding, where no two inputs of a maximum have equal slopes other than 0 and unequal
    constants; there the derivative is the mean of the two.

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
    h = partial(_perturbed, backbone, variables, directions, starts)
    return jax.jvp(h, (jnp.float32(_EPSILON),), (jnp.float32(1.0),))[1]


def _perturbed(
    backbone: nn.Module, variables: Mapping[str, Any], directions: Array, starts: Array | None, epsilon: Array
) -> Any:
    """H(u, ε)."""
    inputs = directions if starts is None else directions + epsilon * starts
    # GPUs and TPUs would otherwise round float32 products to tf32 or bfloat16.
    with jax.default_matmul_precision("highest"):
        return _in_float32(backbone).apply(_scale_offsets(variables, epsilon), inputs, train=False)


def _scale_offsets(variables: Mapping[str, Any], factor: Array) -> Any:
    def scale(path: Any, leaf: Array) -> Array:
        is_offset = (path[0].key, path[-1].key) in _OFFSETS
        return leaf * factor.astype(leaf.dtype) if is_offset else leaf

    return jax.tree_util.tree_map_with_path(scale, dict(variables))


def _in_float32(backbone: nn.Module) -> nn.Module:
    """The same backbone computing in float32 where it was told to compute in less."""
    dtype = getattr(backbone, "dtype", None)
    half = dtype is not None and jnp.finfo(dtype).bits < 32
    return backbone.clone(dtype=jnp.float32) if half else backbone
