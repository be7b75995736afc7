"""Guarantees are about a function as it is now, not as it was when it was asked about first."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from preload_jax.guarantees import (
    embedding_behaviour,
    far_away_limit,
    germs,
    intervals,
    nonnegative_embeddings,
    ray_certificate,
    ray_slopes,
)
from preload_jax.guarantees.germs import rays
from preload_jax.models import Classifier, LinearHead

RNG = np.random.default_rng(0)
U = RNG.normal(size=(40, 5)).astype(np.float32)
KERNEL = RNG.normal(size=(5, 3)).astype(np.float32)


class OfWeights:
    """A plain object with weights, called as a function."""

    def __init__(self):
        self.kernel = KERNEL

    def __call__(self, images):
        return images @ self.kernel


def closure():
    held = {"kernel": KERNEL}
    return lambda images: images @ held["kernel"], lambda: held.update(kernel=-held["kernel"])


def of_object():
    function = OfWeights()
    return function, lambda: setattr(function, "kernel", -function.kernel)


def of_method():
    function = OfWeights()
    return function.__call__, lambda: setattr(function, "kernel", -function.kernel)


def of_nnx():
    net = nnx.Sequential(nnx.Linear(5, 16, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(16, 3, rngs=nnx.Rngs(1)))

    def train():
        net.layers[2].kernel[...] = -net.layers[2].kernel[...]

    return net, train


@pytest.mark.parametrize("make", [closure, of_object, of_method, of_nnx])
def test_a_function_that_changed_is_asked_anew(make):
    function, change = make()
    for _ in range(2):
        found = far_away_limit(function, None, U)
        expected = np.asarray(function(jnp.asarray(1e6 * U))).argmax(axis=1)
        np.testing.assert_array_equal(found.winner, expected)
        (germ,) = germs.ray_germs(function, U)
        np.testing.assert_allclose(germ.terms[1], np.asarray(function(jnp.asarray(1e6 * U))) / 1e6, atol=1e-4)
        change()


def test_whether_embeddings_grow_and_their_sign_are_asked_anew():
    held: dict[str, Any] = {"kernel": KERNEL, "sign": 1.0}

    def function(images):
        return held["sign"] * jax.nn.relu(images @ held["kernel"])

    assert not embedding_behaviour(function, None, U).always_bounded
    assert nonnegative_embeddings(function, None, (5,))
    held.update(kernel=np.zeros_like(KERNEL), sign=-1.0)
    assert embedding_behaviour(function, None, U).always_bounded
    assert not nonnegative_embeddings(function, None, (5,))


def test_bounds_on_a_box_are_asked_anew():
    held = {"kernel": KERNEL}

    def function(variables, images):
        return images @ held["kernel"]

    first = intervals.output_bounds(function, {}, U, U)[0][0]
    held["kernel"] = -KERNEL
    second = intervals.output_bounds(function, {}, U, U)[0][0]
    np.testing.assert_allclose(second, -first, atol=1e-4)


class Scaled(nn.Module):
    held: Any

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.relu(nn.Dense(4)(images)) * self.held.scale


class Held:
    scale = 1.0


def test_a_module_that_reads_what_changes_is_asked_anew():
    held = Held()
    model = Classifier(Scaled(held), LinearHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 5)))
    own = {"params": variables["params"]["backbone"]}
    slopes = ray_slopes(model.backbone, own, jnp.asarray(U))
    winner, certificate = far_away_limit(model, variables, U).winner, ray_certificate(model, variables, U[:4])
    held.scale = -2.0
    np.testing.assert_allclose(ray_slopes(model.backbone, own, jnp.asarray(U)), -2.0 * slopes, rtol=1e-5)
    expected = np.asarray(model.apply(variables, jnp.asarray(1e6 * U))).argmax(axis=1)
    found = far_away_limit(model, variables, U).winner
    wins = found >= 0  # Not where the embedding is 0.
    assert wins.mean() > 0.8
    np.testing.assert_array_equal(found[wins], expected[wins])
    assert (found != winner).any()
    again = ray_certificate(model, variables, U[:4])
    assert (again.winner != certificate.winner).any()


def test_the_same_function_is_compiled_once():
    function, change = closure()
    far_away_limit(function, None, U)
    size = rays._germs_of_rays._cache_size()
    far_away_limit(function, None, U)
    assert rays._germs_of_rays._cache_size() == size
    change()
    far_away_limit(function, None, U)
    assert rays._germs_of_rays._cache_size() > size
