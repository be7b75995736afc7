"""Convolution and pooling as one: the plain ones on every platform, gradients included; what ties do; the cost."""

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
from hypothesis import strategies as st
from jax import lax
from jax.test_util import check_grads

from preload_jax.models import conv_pool
from preload_jax.models.conv_pool import max_pool_2x2
from tests.platforms import as_on
from tests.toy import enable_x64

# A platform, and the numbers of images and of channels.  One CPU has a way of its own for many of both.
CASES = [("cpu", 3, 1), ("cpu", 3, 3), ("cpu", 32, 8), ("tpu", 3, 1), ("tpu", 3, 3), ("cuda", 3, 1), ("cuda", 3, 3)]


@pytest.fixture(autouse=True)
def _one_device(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)


def conv_max_pool(x, kernel):
    """A new function for JAX, which keeps what it traced for another platform."""
    return conv_pool.conv_max_pool(x, kernel)


def _reference(x, kernel):
    """Of XLA's own window maximum, and in float64: nothing of the module."""
    x, kernel = (jnp.asarray(array, jnp.float64) for array in (x, kernel))
    y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _inputs(shape, features, *, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (shape, (5, 5, shape[-1], features))
    return tuple(jnp.asarray(rng.normal(size=size), jnp.float32) for size in shapes)


def _values_and_gradients(f, x, kernel, weights):
    y = jax.jit(lambda *a: f(*a))(x, kernel)
    weights = jnp.asarray(weights, y.dtype)
    return y, jax.jit(jax.grad(lambda *a: jnp.sum(f(*a) * weights), (0, 1)))(x, kernel)


@pytest.mark.parametrize(("platform", "images", "channels"), CASES)
def test_values_and_gradients_are_those_of_the_reference(platform, images, channels):
    x, kernel = _inputs((images, 8, 12, channels), 4)
    weights = np.random.default_rng(1).normal(size=(images, 4, 6, 4)).astype(np.float32)
    with enable_x64(True):
        expected = _values_and_gradients(_reference, x, kernel, weights)
    with as_on(platform):
        found = _values_and_gradients(conv_max_pool, x, kernel, weights)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * np.abs(b).max())


@hypothesis.given(
    height=st.integers(1, 5), width=st.integers(1, 5), features=st.integers(1, 3), seed=st.integers(0, 2**16)
)
@hypothesis.settings(deadline=None, max_examples=15)
def test_one_channel_of_any_size_is_as_in_scipy(height, width, features, seed):
    x, kernel = _inputs((2, 2 * height, 2 * width, 1), features, seed=seed)
    with as_on("cpu"):
        found = jax.jit(lambda *a: conv_max_pool(*a))(x, kernel)
    x, kernel = (np.asarray(array, np.float64) for array in (x, kernel))
    y = [
        [scipy.signal.correlate(image[..., 0], k[0], mode="same") for k in np.moveaxis(kernel, (3, 2), (0, 1))]
        for image in x
    ]
    expected = np.array(y).reshape(2, features, height, 2, width, 2).max((3, 5)).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("platform", "images", "channels"), CASES)
def test_forward_and_reverse_mode_agree_with_finite_differences(platform, images, channels):
    with enable_x64(True), as_on(platform):
        arrays = [jnp.asarray(array, jnp.float64) for array in _inputs((images, 4, 4, channels), 3)]
        check_grads(jax.jit(lambda *a: conv_max_pool(*a)), arrays, order=1, modes=["fwd", "rev"])


@pytest.mark.parametrize(
    ("images", "channels", "devices", "less"),
    [(32, 8, 1, True), (31, 8, 1, False), (32, 7, 1, False), (32, 8, 2, False)],
)
def test_on_one_cpu_many_images_of_many_channels_take_fewer_operations(images, channels, devices, less, monkeypatch):
    """Than the convolution has, which at this size is 0.84 of two for each tap: others fall on the border."""
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    compiled = jax.jit(lambda *a: conv_max_pool(*a)).lower(*_inputs((images, 14, 14, channels), 64)).compile()
    share = compiled.cost_analysis()["flops"] / (2 * images * 14 * 14 * 25 * channels * 64)
    assert share < 0.65 if less else 0.8 < share < 0.9


def test_pooling_is_the_maximum_of_each_window():
    x = jax.random.randint(jax.random.key(0), (2, 6, 4, 3), 0, 9).astype(jnp.float32)
    expected = np.asarray(x).reshape(2, 3, 2, 2, 2, 3).max((2, 4))
    np.testing.assert_array_equal(max_pool_2x2(x), expected)


@pytest.mark.parametrize(
    ("window", "first"), [([1, 1, 1, 1], 0), ([0, 2, 2, 1], 1), ([0, 1, 3, 3], 2), ([1, 1, 1, 2], 3)]
)
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("platform", ["cpu", "tpu", "cuda"])
def test_the_first_of_equal_maxima_gets_the_gradient(platform, channels, window, first):
    """Of few images, that is: where there are many, they are equal up to rounding, and any of them may be larger."""
    x = jnp.tile(jnp.asarray(window, jnp.float32).reshape(1, 2, 2, 1), channels)
    # A kernel that leaves the image as it is.
    same = jnp.zeros((5, 5, channels, channels)).at[2, 2].set(jnp.eye(channels))
    with as_on(platform):
        gradient = jax.grad(lambda x: conv_max_pool(x, same).sum())(x)
    for channel in range(channels):
        np.testing.assert_array_equal(gradient[..., channel].ravel(), np.eye(4)[first])


@pytest.mark.parametrize(("platform", "images", "channels"), CASES)
def test_the_type_is_kept(platform, images, channels):
    x, kernel = (jnp.asarray(array, jnp.bfloat16) for array in _inputs((images, 4, 4, channels), 3))
    with as_on(platform):
        assert conv_max_pool(x, kernel).dtype == jnp.bfloat16
