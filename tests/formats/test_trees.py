"""Nested dicts of arrays: taken apart and put together; another architecture; shapes without arrays."""

import re
import resource

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import make_classifier
from preload_jax.devices.variables import shapes_of
from preload_jax.errors import UserError
from preload_jax.formats import trees

TREE = {"dense": {"kernel": np.ones((30, 40), np.float32), "bias": np.arange(3.0)}, "scale": np.float32(2)}


def test_flat_and_back():
    flat = trees.flatten(TREE)
    assert sorted(flat) == ["dense/bias", "dense/kernel", "scale"]
    assert flat["scale"].shape == ()
    back = trees.unflatten(flat)
    assert jax.tree.structure(back) == jax.tree.structure(TREE)
    jax.tree.map(np.testing.assert_array_equal, back, TREE)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"a": np.ones(3)}, "a is missing, expected an array [3]"),
        ({"dense": {"kernel": np.ones((30, 41)), "bias": np.ones(3)}}, "an array [30, 40], expected an array [30, 41]"),
        ({"dense": {"kernel": np.ones((30, 40))}}, "dense/bias is an array [3], expected nothing of that name"),
    ],
)
def test_another_architecture_is_refused(template, message):
    tree = {"dense": {"kernel": np.ones((30, 40)), "bias": np.ones(3)}}
    with pytest.raises(UserError, match=f"does not fit the model: .*{re.escape(message)}"):
        trees.restore_like(template, tree)


def test_the_structure_is_the_templates():
    template = (jnp.zeros(3), {"a": jax.ShapeDtypeStruct((2,), np.float32)})
    restored = trees.restore_like(template, {"0": np.ones(3), "1": {"a": np.ones(2)}})
    assert jax.tree.structure(restored) == jax.tree.structure(template)


def test_shapes_of_huge_images_cost_nothing():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = make_classifier("wide_resnet", "linear", num_classes=3, depth=10, widen_factor=1)
    shapes = shapes_of(model, (16_000, 16_000, 3))
    assert shapes["params"]["head"]["linear"]["kernel"].shape == (64, 3)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB; the images alone are 3 GB
