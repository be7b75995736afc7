"""A model's outputs on images, as detectors take them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.checks import as_array
from preload_jax.detectors.data import Head, Outputs
from preload_jax.detectors.table import get
from preload_jax.devices import compilation
from preload_jax.devices.batches import regrouped, to_float
from preload_jax.devices.forward import admitted
from preload_jax.errors import UserError
from preload_jax.models import Classifier, WithDistance


def seen_by_classes(model: Any, features: Any) -> Any:
    """The features [n, d] that the K classes see: without the distance of a `WithDistance`, which is the last."""
    return features[:, :-1] if isinstance(model.backbone, WithDistance) else features


@dataclass(frozen=True)
class _Network:
    """images → Outputs: a function that JAX can trace, whose variables travel as arguments."""

    model: Classifier

    def __call__(self, variables: Any, images: Any) -> Outputs:
        logits, features = self.model.apply(variables, to_float(images), features=True)
        return Outputs(seen_by_classes(self.model, features), logits)


def outputs(
    model: Classifier,
    variables: Mapping[str, Any],
    images: Any,
    *,
    maps: bool = False,
    keep_images: bool = False,
    batch_size: int = 500,
) -> Outputs:
    """Features and logits of images, in padded batches, and what else detectors may need.

    Args:
        model, variables: the classifier.
        images: uint8 in [0, 255] or floating point in [0, 1], [n, h, w, c]; or an iterator of blocks of them.
        maps: whether to keep the outputs of the backbone's own layers too, in order (for Gram and the layer ensemble).
        keep_images: whether to keep the images, as float32 in [0, 1], and the network (for ODIN).
        batch_size: images a compiled call.

    Raises:
        UserError: for no images, images that are not finite or of another type or shape, or variables of another
            network.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import detectors, make_classifier
        >>> model = make_classifier("mlp", "linear", num_classes=3, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> outputs = detectors.outputs(model, variables, np.zeros((5, 4, 4, 1), np.uint8))
        >>> outputs.features.shape, outputs.logits.shape
        ((5, 8), (5, 3))
    """
    found, seen = [], []
    size = 0
    for batch in _batches(model, variables, images, batch_size):
        size = size or len(batch)  # of the first, which all are filled up to
        padded = np.pad(batch, ((0, size - len(batch)), *((0, 0),) * (batch.ndim - 1)))
        found.append([np.asarray(x)[: len(batch)] for x in _apply(variables, padded, model, maps)])
        seen += [batch] if keep_images else []
    if not found:
        raise UserError("no images; give at least one")
    logits, features, *layers = (np.concatenate(parts) for parts in zip(*found, strict=True))
    features = seen_by_classes(model, features)
    kept: dict[str, Any] = {"maps": tuple(layers)} if maps else {}
    if keep_images:
        images = np.concatenate(seen)
        if images.dtype == np.int32:
            raise UserError(
                "detectors that need images move them along a gradient, and integers, such as tokens, have none: leave"
                " out ODIN, and noise"
            )
        kept |= {
            "images": np.asarray(to_float(jnp.asarray(images))),
            "network": jax.tree_util.Partial(_Network(model), variables),
        }
    return Outputs(features, logits, **kept)


def _batches(model: Classifier, variables: Any, images: Any, batch_size: int) -> Iterator[np.ndarray]:
    """Batches of one size, but for the last, as the network takes them."""
    blocks = regrouped(images, batch_size) if isinstance(images, Iterator) else [as_array(images, name="images")]
    for block in blocks:
        block, size = admitted(model, variables, block, batch_size)
        yield from (np.asarray(block[start : start + size]) for start in range(0, len(block), size))


def outputs_for(
    names: Iterable[str], model: Classifier, variables: Mapping[str, Any], images: Any, *, batch_size: int = 500
) -> Outputs:
    """`outputs` with all that the detectors of these names need."""
    needs = {need for name in names for need in get(name).needs}
    return outputs(
        model,
        variables,
        images,
        maps="maps" in needs,
        keep_images=bool(needs & {"images", "network"}),
        batch_size=batch_size,
    )


def linear_head(variables: Mapping[str, Any]) -> Head | None:
    """(kernel [d, K], bias [K]) of a library's head, as NumPy arrays; None for another's."""
    linear = variables["params"].get("head", {}).get("linear")
    return None if linear is None else (np.asarray(linear["kernel"]), np.asarray(linear["bias"]))


@partial(compilation.jit, static_argnames=("model", "maps"))
def _apply(variables: Any, images: Any, model: Any, maps: bool) -> Any:
    if not maps:
        return model.apply(variables, to_float(images), features=True)

    def of_backbone(module: Any, method: str) -> bool:
        path: tuple[str, ...] = module.scope.path if module.scope is not None else ()
        return method == "__call__" and len(path) == 2 and path[0] == "backbone"

    applied: Any = model.apply(
        variables, to_float(images), features=True, capture_intermediates=of_backbone, mutable=["intermediates"]
    )
    both, state = applied
    layers = state.get("intermediates", {}).get("backbone", {})
    if not layers:
        raise UserError(
            f"the backbone is a {type(model.backbone).__name__} without Linen layers of its own, whose outputs could be"
            " kept; choose a detector that needs no maps"
        )
    return [*both, *(layer["__call__"][0] for layer in layers.values())]
