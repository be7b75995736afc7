"""Convolution and pooling as one: every form is the plain one, its gradients included; what ties do."""

import chex
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax import lax
from jax.test_util import check_grads

from preload_jax.models import conv_pool
from preload_jax.models.conv_pool import conv_max_pool, max_pool_2x2
from tests.toy import enable_x64

FORMS = [conv_pool._plainly, conv_pool._in_blocks, conv_pool._in_strides, conv_pool._in_windows, conv_pool._by_spectra]


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
    y = jax.jit(f)(x, kernel)
    weights = jnp.asarray(weights, y.dtype)
    return y, jax.jit(jax.grad(lambda *a: jnp.sum(f(*a) * weights), (0, 1)))(x, kernel)


@pytest.mark.parametrize("form", [*(form.__name__ for form in FORMS), "conv_max_pool"])
@pytest.mark.parametrize("channels", [1, 3])
def test_values_and_gradients_are_those_of_the_reference(form, channels):
    x, kernel = _inputs((3, 8, 12, channels), 4)
    weights = np.random.default_rng(1).normal(size=(3, 4, 6, 4)).astype(np.float32)
    with enable_x64(True):
        expected = _values_and_gradients(_reference, x, kernel, weights)
    found = _values_and_gradients(getattr(conv_pool, form), x, kernel, weights)
    chex.assert_trees_all_close(
        found, jax.tree.map(lambda a: np.asarray(a, np.float32), expected), rtol=2e-5, atol=2e-4
    )


def test_on_a_cpu_one_channel_is_done_in_blocks_and_others_plainly():
    def text(channels):
        return jax.jit(conv_max_pool).lower(*_inputs((2, 8, 8, channels), 4)).as_text()

    assert "3x3x4x16x" in text(1)
    assert "3x3x" not in text(2)


@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="lowers the branches of all platforms")
@pytest.mark.parametrize(
    ("images", "channels", "devices", "by_spectra"),
    [(32, 8, 1, True), (31, 8, 1, False), (32, 7, 1, False), (32, 8, 2, False), (32, 1, 1, False)],
)
def test_on_one_cpu_many_images_of_many_channels_are_done_by_spectra(
    images, channels, devices, by_spectra, monkeypatch
):
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    text = jax.jit(lambda *arrays: conv_max_pool(*arrays)).lower(*_inputs((images, 8, 8, channels), 4)).as_text()
    assert ("stablehlo.convolution" not in text) == by_spectra


@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="lowers the branches of all platforms")
def test_on_a_tpu_windows_are_strides_for_one_channel_and_xla_s_own_for_others():
    def text(platform, channels):
        gradient = jax.jit(jax.grad(lambda x, kernel: conv_max_pool(x, kernel).sum()))
        return gradient.trace(*_inputs((2, 8, 8, channels), 4)).lower(lowering_platforms=(platform,)).as_text()

    assert "select_and_scatter" in text("tpu", 2)
    assert "select_and_scatter" not in text("tpu", 1) + text("cuda", 2)
    # Every second pixel, and back in between others.
    assert "0:8:2" in text("tpu", 1)
    assert "0:8:2" not in text("cuda", 1)


@hypothesis.given(
    height=st.integers(1, 5), width=st.integers(1, 5), features=st.integers(1, 3), seed=st.integers(0, 2**16)
)
@hypothesis.settings(deadline=None, max_examples=15)
def test_blocks_give_what_the_plain_form_gives(height, width, features, seed):
    x, kernel = _inputs((2, 2 * height, 2 * width, 1), features, seed=seed)
    plain, blocks = (jax.jit(f)(x, kernel) for f in (conv_pool._plainly, conv_pool._in_blocks))
    np.testing.assert_allclose(blocks, plain, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_forward_and_reverse_mode_agree_with_finite_differences(form):
    with enable_x64(True):
        arrays = [jnp.asarray(array, jnp.float64) for array in _inputs((2, 4, 4, 1), 3)]
        check_grads(jax.jit(form), arrays, order=1, modes=["fwd", "rev"])


def test_pooling_is_the_maximum_of_each_window():
    x = jax.random.randint(jax.random.key(0), (2, 6, 4, 3), 0, 9).astype(jnp.float32)
    expected = np.asarray(x).reshape(2, 3, 2, 2, 2, 3).max((2, 4))
    np.testing.assert_array_equal(max_pool_2x2(x), expected)


@pytest.mark.parametrize(
    ("window", "first"), [([1, 1, 1, 1], 0), ([0, 2, 2, 1], 1), ([0, 1, 3, 3], 2), ([1, 1, 1, 2], 3)]
)
def test_the_first_of_equal_maxima_gets_the_gradient(window, first):
    x = jnp.asarray(window, jnp.float32).reshape(1, 2, 2, 1)
    # A kernel that leaves the image as it is.
    same = jnp.zeros((5, 5, 1, 1)).at[2, 2].set(1.0)
    # By spectra equal maxima are equal up to rounding only, and any of them may be the larger.
    for form in set(FORMS) - {conv_pool._by_spectra}:
        gradient = jax.grad(lambda x, form=form: form(x, same).sum())(x)
        np.testing.assert_array_equal(gradient.ravel(), np.eye(4)[first])


def test_the_type_is_kept():
    x, kernel = (jnp.asarray(array, jnp.bfloat16) for array in _inputs((2, 4, 4, 1), 3))
    for form in FORMS:
        assert form(x, kernel).dtype == jnp.bfloat16
