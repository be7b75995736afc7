"""A network's forward pass over any number of images, in padded batches."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from preload_jax.checks import as_array
from preload_jax.devices import batches, companions, compilation, programs, sharding, sharing
from preload_jax.devices.batches import of_type, to_float
from preload_jax.devices.variables import inputs_of, require_own

# Of a compiled call, where nobody says another.
BATCH_SIZE = 500


def predict(
    model: Any,
    variables: Mapping[str, Any],
    images: np.ndarray,
    *,
    batch_size: int = BATCH_SIZE,
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
        mesh: devices of this process that share each batch, which is made as many images larger as it takes.  A mesh of
            several processes' devices shares out the batches, too: each process calls this with the same images, and
            has all outputs.

    Returns:
        (logits [n, K] or [n, K+1], features [n, d] or None), float32.

    Raises:
        UserError: for no images, another type of numbers or shape, or images that are not finite.
    """
    apply = partial(_apply, model=model, features=features)
    _, (logits, *others) = passed(model, variables, images, apply, batch_size=batch_size, mesh=mesh)
    return logits, others[0] if features else None


def passed(
    model: Any,
    variables: Mapping[str, Any],
    images: Any,
    apply: partial[Sequence[Any]],
    *,
    batch_size: int,
    mesh: Mesh | None,
    fill: bool = True,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """What apply(variables, batch) makes of any number of images, and the images as the network takes them.

    Args:
        model, variables, images, batch_size, mesh: see `predict`.
        apply: compiled, with the model and what is asked of it as keywords; batches are of one size, filled up.
        fill: whether images that are fewer than a batch are filled up to it.

    Raises:
        UserError: as `predict`, and for a network that joins the rows of a batch: it would answer about an image by
            what stands beside it, and by what fills the batch up.
    """
    images, batch_size = sharing.agreed(
        lambda: _admitted(model, variables, as_array(images, name="images"), batch_size),
        mesh,
        array=lambda admitted: admitted[0],
    )
    model_now = programs.digest_of_model(
        model,
        partial(apply.func.__wrapped__, **apply.keywords),  # type: ignore[attr-defined]
        variables,
        jax.ShapeDtypeStruct((batch_size, *images.shape[1:]), images.dtype),
    )
    apply = partial(apply, now=model_now) if model_now else apply
    own, given = sharding.own(mesh), variables
    batch_size = batch_size if fill else min(batch_size, len(images))
    if own is not None:
        batch_size = math.ceil(batch_size / own.size) * own.size
        variables = jax.tree.map(lambda x: sharding.put(x, own), variables)

    def compute(padded: np.ndarray) -> Sequence[Any]:
        return apply(variables, padded if own is None else sharding.put(padded, own, sharding.AXIS))

    companions.require_alone_once(apply, given, compute, images, batch_size)
    parts = sharing.outputs((padded for padded, _ in batches.padded(images, batch_size)), compute, mesh)
    return images, [np.concatenate(part)[: len(images)] for part in zip(*parts, strict=True)]


def require_rows_alone(model: nn.Module, variables: Mapping[str, Any], image_shape: tuple[int, ...]) -> None:
    """Refuses, before it is trained, a network that joins the rows of a batch in evaluation; see `companions`."""
    apply = partial(_apply, model=model, features=False, now=programs.key_of_training(model))
    companions.require_alone_before_training(model, variables, apply, inputs_of(model, image_shape))


def _admitted(model: Any, variables: Any, images: np.ndarray, batch_size: int) -> tuple[np.ndarray, int]:
    """(the images as the network takes them, the batch's size), after a look at all that a forward pass is given.

    Raises:
        UserError: as `predict`, and for variables of another network.
    """
    given = images.dtype
    images, batch_size = batches.admitted(images, batch_size)
    if isinstance(model, nn.Module):
        images = of_type(inputs_of(model, images.shape[1:]).dtype, images, given=given)
        require_own(model, variables, images.shape[1:], count=len(images))
    return images, batch_size


# `now`, the digest of what the model computes, is read by the cache alone.
@partial(compilation.jit, static_argnames=("model", "features", "now"))
def _apply(variables: dict[str, Any], images: Array, *, model: Any, features: bool, now: str = "") -> tuple[Array, ...]:
    out: Any = model.apply(variables, to_float(images), features=features)
    return out if features else (out,)
