"""A network's forward pass over any number of images; its errors are in `tests/bad_inputs`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax.devices import forward
from preload_jax.training import loop
from tests import toy

IMAGES = np.random.default_rng(0).integers(0, 256, (7, *toy.SHAPE), np.uint8)


@pytest.fixture(scope="module")
def network():
    model = toy.model()
    return model, loop.init_variables(model, toy.SHAPE, key=jax.random.key(0))


@pytest.mark.parametrize("batch_size", [1, 3, 7, 500])
def test_predictions_do_not_depend_on_the_batch(network, batch_size):
    model, variables = network
    logits, features = forward.predict(model, variables, IMAGES, batch_size=batch_size, features=True)
    whole, whole_features = model.apply(variables, jnp.asarray(IMAGES, jnp.float32) / 255, features=True)
    assert (logits.shape, logits.dtype) == ((7, 4), np.float32)
    np.testing.assert_allclose(logits, whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(features, whole_features, rtol=1e-5, atol=1e-6)


def test_bytes_and_floats_are_the_same_images(network):
    as_bytes, _ = forward.predict(*network, IMAGES)
    as_floats, features = forward.predict(*network, (IMAGES / np.float32(255)).astype(np.float32))
    np.testing.assert_allclose(as_bytes, as_floats, atol=1e-6)
    assert features is None


@pytest.mark.parametrize("dtype", [">f4", ">f8", "<f8", "f2"])
def test_other_floats_are_the_same_images(network, dtype):
    images = IMAGES / np.float32(255)
    expected, _ = forward.predict(*network, images.astype(dtype).astype(np.float32))
    # Half precision goes through the network's cast, the others are made float32 first.
    found, _ = forward.predict(*network, images.astype(dtype))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_bytes_become_fractions_and_floats_stay():
    as_floats = forward.to_float(jnp.array([[[[0]], [[255]]]], jnp.uint8))
    np.testing.assert_array_equal(as_floats.reshape(-1), [0.0, 1.0])
    far = jnp.full((1, 2, 2, 1), 1e4)
    np.testing.assert_array_equal(forward.to_float(far), far)
