"""Nested dicts of arrays: their shapes, and the structure that they had before they were written."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import serialization, traverse_util

from preload_jax.devices.variables import difference, path_name
from preload_jax.errors import UserError


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


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Arrays of a nested dict by their paths, such as "params/head/linear/kernel"."""
    return {path_name(path): np.array(leaf, order="C") for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def unflatten(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The nested dict that `flatten` took apart."""
    return traverse_util.unflatten_dict({tuple(name.split("/")): array for name, array in arrays.items()})
