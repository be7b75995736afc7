"""What a network's variables look like: their names and shapes, and whether given ones are its own."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax import serialization

from preload_jax.errors import UserError

_COLLECTIONS = ("params", "batch_stats")
# Of `models.WithDistance`, whose fields may hold them instead.
_IN_FIELDS = ("center", "scale")


def shapes_of(model: nn.Module, image_shape: tuple[int, ...]) -> Any:
    """The shapes of a model's variables; no array is made, however large the images are said to be."""
    images = jax.ShapeDtypeStruct((1, *image_shape), np.float32)
    return jax.eval_shape(model.init, jax.random.key(0), images)


def difference(template: Any, tree: Mapping[str, Any]) -> tuple[str, str | None, str | None] | None:
    """The first array by name whose shape is not the template's: (name, its shape, the template's); None for none."""
    expected, got = _shapes(serialization.to_state_dict(template)), _shapes(tree)
    for name in sorted(expected.keys() | got.keys()):
        if expected.get(name) != got.get(name):
            return name, got.get(name), expected.get(name)
    return None


def require_own(model: nn.Module, variables: Any, image_shape: tuple[int, ...]) -> None:
    """Raises a UserError unless variables have the names of the model's own.

    A network ignores variables that it does not look for, and so would answer, wrongly, with those of a network that
    has a layer or a logit more.  Shapes are left to the network itself: they may be wrong for the images' sake.

    Args:
        model: any module f(images).
        variables: {"params", "batch_stats", …}; other collections are not looked at.
        image_shape: of one image.
    """
    if not isinstance(variables, Mapping) or not isinstance(variables.get("params"), Mapping):
        raise UserError(
            f'the variables are a {type(variables).__name__}; expected {{"params": …}}, as model.init and fit return'
        )
    try:
        expected = _names(model, tuple(image_shape))
    except TypeError:  # A module that cannot be hashed; where that matters, JAX says so.
        return
    if expected is None:
        return
    got = _shapes({name: variables.get(name, {}) for name in _COLLECTIONS})
    body = getattr(model, "backbone", None)
    in_fields = {
        f"batch_stats/backbone/distance_{field}" for field in _IN_FIELDS if getattr(body, field, None) is not None
    }
    missing = expected.keys() - got.keys() - in_fields
    extra = got.keys() - expected.keys()
    if extra:
        # What a network makes in training alone, such as the layers of an auxiliary loss, is its own, too.
        extra -= (_names(model, tuple(image_shape), train=True) or {}).keys()
    for name in sorted(missing | extra):
        raise UserError(
            f"the variables are of another network: {name} is {got.get(name, 'missing')},"
            f" the model has {expected.get(name, 'nothing')} there; give the model's own"
        )


@lru_cache(maxsize=64)
def _names(model: nn.Module, image_shape: tuple[int, ...], *, train: bool = False) -> dict[str, str] | None:
    """The model's names, None where images of the shape do not pass through it; it says so itself, and better."""
    try:
        found = _shapes_in_training(model, image_shape) if train else shapes_of(model, image_shape)
    except Exception:
        return None
    return _shapes({name: found.get(name, {}) for name in _COLLECTIONS})


def _shapes_in_training(model: nn.Module, image_shape: tuple[int, ...]) -> Any:
    images, key = jax.ShapeDtypeStruct((2, *image_shape), np.float32), jax.random.key(0)
    return jax.eval_shape(lambda x: model.init({"params": key, "dropout": key}, x, train=True), images)


def _shapes(tree: Any) -> dict[str, str]:
    """The path and shape of every array of a nested dict, as text."""
    leaves = jax.tree_util.tree_leaves_with_path(nn.meta.unbox(tree))
    return {path_name(path): f"an array {list(np.shape(leaf))}" for path, leaf in leaves}


def path_name(path: Any) -> str:
    """The path of a leaf of nested dicts, such as "params/head/linear/kernel"."""
    return "/".join(str(getattr(entry, "key", getattr(entry, "idx", entry))) for entry in path)
