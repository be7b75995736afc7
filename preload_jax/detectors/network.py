"""A model's outputs on images, as detectors take them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from preload_jax.checks import as_array
from preload_jax.detectors.data import Head, Outputs
from preload_jax.detectors.functions import OfModel
from preload_jax.detectors.table import get
from preload_jax.devices import batches, compilation, forward, reading, sharding, sharing, training_range
from preload_jax.devices.batches import to_float
from preload_jax.devices.sharding import Devices
from preload_jax.devices.variables import takes
from preload_jax.errors import UserError
from preload_jax.integers import require_integer
from preload_jax.models import Classifier, WithDistance


def seen_by_classes(model: Any, features: Any) -> Any:
    """The features [n, d] that the K classes see: without the distance of a `WithDistance`, which is the last."""
    return features[:, :-1] if isinstance(model.backbone, WithDistance) else features


@dataclass(frozen=True)
class _Network(OfModel):
    """images → Outputs: a function that JAX can trace, whose variables travel as arguments."""

    model: Classifier

    def __call__(self, variables: Any, images: Any) -> Outputs:
        logits, features = self.model.apply(variables, to_float(images), features=True)
        return Outputs(seen_by_classes(self.model, features), logits)


@dataclass(frozen=True)
class Batches:
    """A network's outputs on batches of inputs, computed anew in each pass: what `outputs` gives of an iterable.

    Attributes:
        of_batch: a batch's inputs → their `Outputs`.
        begin: gives the batches anew.
        size: inputs of each `Outputs`, but for the last.
        mesh: the devices that share the passes.
    """

    of_batch: Callable[[np.ndarray], Outputs]
    begin: Callable[[], Iterable[Any]]
    size: int
    mesh: Mesh | None = None
    _read: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def __iter__(self) -> Iterator[Any]:
        """`Outputs`, or (`Outputs`, labels) where the batches have labels.

        Raises:
            UserError: at the end of a pass that had more or fewer inputs than the first: detectors are fitted in
                several passes, and would mix two sets.
        """
        count = 0
        for inputs, labels in sharing.read(reading.regrouped(self.begin(), self.size), self.mesh):
            count += len(inputs)
            found = self.of_batch(inputs)
            yield found if labels is None else (found, labels)
        self._read.append(count)
        if count != self._read[0]:
            raise UserError(
                f"the batches had {self._read[0]:,} inputs when they were first read, and {count:,} now; give what"
                " yields the same batches each time"
            )


def outputs(
    model: Classifier,
    variables: Mapping[str, Any],
    images: Any,
    *,
    maps: bool = False,
    keep_images: bool = False,
    batch_size: int = 500,
    devices: Devices | None = None,
) -> Outputs | Batches:
    """Features and logits of images, in padded batches, and what else detectors may need.

    They say how many classes the head has, so that `fit` leaves out the logit of an OOD class by itself.  Where all
    logits are to count as classes, give `fit` their number as num_classes.

    Args:
        model, variables: the classifier.
        images: uint8 in [0, 255] or floating point in [0, 1], [n, h, w, c].  Or batches, which may be larger than
            memory: what yields arrays, pairs or dictionaries again whenever it is iterated, or a function that returns
            that.  `fit` and `score` then run the network in each pass, and take labels from the batches that have them.
        maps: whether to keep the outputs of the backbone's own layers too, in order (for Gram and the layer ensemble).
        keep_images: whether to keep the images, as float32 in [0, 1], and the network (for ODIN).
        batch_size: images a compiled call.
        devices: None: this process's first one.  Or how many share each batch, or "all"; of several processes, of
            each: all call this with the same inputs, each computes its part, and all have the outputs.

    Returns:
        `Outputs` of an array, or an iterable of them of batches.

    Raises:
        UserError: for no images, images that are not finite or of another type or shape, variables of another
            network, or an iterator, which can be read only once.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import detectors, make_classifier
        >>> model = make_classifier("mlp", "linear", num_classes=3, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> outputs = detectors.outputs(model, variables, np.zeros((5, 4, 4, 1), np.uint8))
        >>> outputs.features.shape, outputs.logits.shape
        ((5, 8), (5, 3))
        >>> batches = [(np.full((2, 4, 4, 1), level, np.uint8), np.array([0, 1])) for level in (0, 100, 200)]
        >>> detector = detectors.fit("knn", detectors.outputs(model, variables, batches), k=1)
        >>> detectors.score(detector, detectors.outputs(model, variables, batches)).shape
        (6,)
    """
    mesh = None if devices is None else sharding.make_mesh(devices)
    sharing.require_same(variables, mesh)
    return _outputs(model, variables, images, maps=maps, keep_images=keep_images, batch_size=batch_size, mesh=mesh)


def outputs_for(
    names: Iterable[str],
    model: Classifier,
    variables: Mapping[str, Any],
    images: Any,
    *,
    batch_size: int = 500,
    mesh: Mesh | None = None,
) -> Outputs:
    """`outputs` of an array, or of an iterator's blocks of one, with all that the detectors of these names need."""
    needs = {need for name in names for need in get(name).needs}
    of_array = partial(
        _of_array,
        model,
        variables,
        maps="maps" in needs,
        keep_images=bool(needs & {"images", "network"}),
        batch_size=batch_size,
        mesh=mesh,
    )
    if not isinstance(images, Iterator):
        return of_array(images)
    groups = batches.regrouped(images, batch_size * sharing.num_processes(mesh))
    found = [of_array(group, fill=True) for group in sharing.read(groups, mesh)]
    if not found:
        raise UserError("no images; give at least one")
    return _joined(found)


def _outputs(
    model: Classifier, variables: Mapping[str, Any], images: Any, *, batch_size: int, mesh: Mesh | None, **kept: bool
) -> Outputs | Batches:
    looked_at = False

    def of_array(inputs: Any) -> Outputs:
        nonlocal looked_at
        if not looked_at:
            looked_at = True
            training_range.warn(as_array(inputs, name="images"), training_range.recall(variables))
        return _of_array(model, variables, inputs, batch_size=batch_size, mesh=mesh, **kept)

    if not reading.is_batches(images, partial(takes, model, variables)):
        return of_array(images)
    batch_size = require_integer("batch_size", batch_size, at_least=1)
    return Batches(of_array, reading.passes(images, name="images"), batch_size * sharing.num_processes(mesh), mesh)


def _of_array(
    model: Classifier,
    variables: Mapping[str, Any],
    images: Any,
    *,
    maps: bool,
    keep_images: bool,
    batch_size: int,
    mesh: Mesh | None,
    fill: bool = False,
) -> Outputs:
    # Few images are a small batch; blocks of many all run in one program.
    images, (logits, features, *layers) = forward.passed(
        model, variables, images, partial(_apply, model=model, maps=maps), batch_size=batch_size, mesh=mesh, fill=fill
    )
    features = seen_by_classes(model, features)
    kept: dict[str, Any] = {"maps": tuple(layers)} if maps else {}
    # A head of the caller's own may have no such number.
    kept["num_classes"] = getattr(model.head, "num_classes", None)
    if keep_images:
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


def _joined(parts: list[Outputs]) -> Outputs:
    def join(*arrays: Any) -> Any:
        return None if arrays[0] is None else np.concatenate(arrays)

    first = parts[0]
    return replace(
        first,
        **{name: join(*(getattr(part, name) for part in parts)) for name in ("features", "logits", "images")},
        maps=None if first.maps is None else tuple(map(join, *(part.maps or () for part in parts))),
    )


def linear_head(variables: Mapping[str, Any]) -> Head | None:
    """(kernel [d, K], bias [K]) of a library's head, as NumPy arrays; None for another's."""
    linear = variables["params"].get("head", {}).get("linear")
    return None if linear is None else (np.asarray(linear["kernel"]), np.asarray(linear["bias"]))


# `now`, the digest of what the model computes, is read by the cache alone.
@partial(compilation.jit, static_argnames=("model", "maps", "now"))
def _apply(variables: Any, images: Any, model: Any, maps: bool, now: str = "") -> Any:
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
    kept = {name: layer["__call__"][0] for name, layer in layers.items()}
    for name, map_ in kept.items():
        if not isinstance(map_, jax.Array) or map_.shape[:1] != images.shape[:1]:
            of = f"an array {list(map_.shape)}" if isinstance(map_, jax.Array) else f"a {type(map_).__name__}"
            raise UserError(
                f"layer {name!r} of the backbone returns {of} for {images.shape[0]} images; maps are arrays with a row"
                " an image: choose a detector that needs no maps"
            )
    return [*both, *kept.values()]
