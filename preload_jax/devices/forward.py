"""A network's forward pass over any number of images, in padded batches."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Num

from preload_jax.checks import check_images, require_integer
from preload_jax.devices import compilation, sharding
from preload_jax.devices.variables import require_own


def predict(
    model: Any,
    variables: Mapping[str, Any],
    images: np.ndarray,
    *,
    batch_size: int = 500,
    features: bool = False,
    mesh: Mesh | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Logits, and on request features, of any number of images, in evaluation mode.

    Compiled once for a shape: the last batch is padded and what belongs to the padding is dropped.

    Args:
        model, variables: the classifier.
        images: uint8 in [0, 255] or floating point in [0, 1] (far-away images may be any finite size), [n, h, w, c].
        batch_size: images a compiled call.
        features: whether to return G(x) too.
        mesh: devices of this process that share each batch, which is made as many images larger as it takes.

    Returns:
        (logits [n, K] or [n, K+1], features [n, d] or None), float32.

    Raises:
        UserError: for no images, another type of numbers or shape, or images that are not finite.
    """
    images, batch_size = admitted(model, variables, images, batch_size)
    if mesh is not None:
        batch_size = math.ceil(batch_size / mesh.size) * mesh.size
        variables = jax.tree.map(lambda x: sharding.put(x, mesh), variables)
    logits, embeddings = [], []
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        missing = batch_size - len(batch)
        padded = np.pad(batch, ((0, missing), *((0, 0),) * (batch.ndim - 1))) if missing else batch
        given = padded if mesh is None else sharding.put(padded, mesh, sharding.AXIS)
        batch_logits, batch_features = _apply(variables, given, model=model, features=features)
        logits.append(np.asarray(batch_logits)[: len(batch)])
        if features:
            embeddings.append(np.asarray(batch_features)[: len(batch)])
    return np.concatenate(logits), np.concatenate(embeddings) if features else None


def admitted(model: Any, variables: Any, images: np.ndarray, batch_size: int) -> tuple[np.ndarray, int]:
    """(the images as the network takes them, the batch's size), after a look at all that a forward pass is given.

    Raises:
        UserError: as `predict`, and for variables of another network.
    """
    images = as_network_takes(images)
    check_images(images)
    if isinstance(model, nn.Module):
        require_own(model, variables, images.shape[1:])
    return images, require_integer("batch_size", batch_size, at_least=1)


def as_network_takes(images: np.ndarray) -> np.ndarray:
    """The images in this machine's byte order, float64 and longer as float32: what overflows there is infinite."""
    with np.errstate(over="ignore"):
        if images.dtype.kind == "f" and images.dtype.itemsize > 4:
            return images.astype(np.float32)
        return images if images.dtype.isnative else images.astype(images.dtype.newbyteorder("="))


def to_float(images: Num[Array, "n h w c"]) -> Num[Array, "n h w c"]:
    """uint8 in [0, 255] → float32 in [0, 1]; floating-point images are returned as they are."""
    return images.astype(jnp.float32) / 255.0 if images.dtype == jnp.uint8 else images


@partial(compilation.jit, static_argnames=("model", "features"))
def _apply(variables: dict[str, Any], images: Array, *, model: Any, features: bool) -> tuple[Array, Any]:
    out: Any = model.apply(variables, to_float(images), features=features)
    return out if features else (out, None)
