"""Nested dicts of arrays: their shapes, and the structure that they had before they were written."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import serialization, traverse_util

from preload_jax.errors import UserError
from preload_jax.models import Classifier


def restore_like(template: Any, tree: Mapping[str, Any]) -> Any:
    """The nested dicts that were read, in the structure of `template`.

    Args:
        template: a pytree of arrays, or of their shapes.
        tree: nested dicts of arrays, such as a checkpoint's.

    Raises:
        UserError: when names or shapes differ (of another architecture).
    """
    differs = difference(template, tree)
    if differs is not None:
        name, got, expected = differs
        raise UserError(
            f"the checkpoint does not fit the model: {name} is {got or 'missing'},"
            f" expected {expected or 'nothing of that name'}"
        )
    return serialization.from_state_dict(template, dict(tree))


def difference(template: Any, tree: Mapping[str, Any]) -> tuple[str, str | None, str | None] | None:
    """The first array by name whose shape is not the template's: (name, its shape, the template's); None for none."""
    expected, got = _shapes(serialization.to_state_dict(template)), _shapes(tree)
    for name in sorted(expected.keys() | got.keys()):
        if expected.get(name) != got.get(name):
            return name, got.get(name), expected.get(name)
    return None


def shapes_of(model: Classifier, image_shape: tuple[int, ...]) -> Any:
    """The shapes of a model's variables; no array is made, however large the images are said to be."""
    images = jax.ShapeDtypeStruct((1, *image_shape), np.float32)
    return jax.eval_shape(model.init, jax.random.key(0), images)


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Arrays of a nested dict by their paths, such as "params/head/linear/kernel"."""
    return {_name(path): np.array(leaf, order="C") for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def unflatten(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The nested dict that `flatten` took apart."""
    return traverse_util.unflatten_dict({tuple(name.split("/")): array for name, array in arrays.items()})


def _shapes(tree: Any) -> dict[str, str]:
    """The path and shape of every array of a nested dict, as text."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): f"an array {list(np.shape(leaf))}" for path, leaf in leaves}


def _name(path: Any) -> str:
    return "/".join(str(entry.key) for entry in path)
