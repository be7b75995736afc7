"""Convolution by spectra against XLA's own, in both precisions; its gradients; what images do to each other."""

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax.test_util import check_grads

from preload_jax.models import spectral
from preload_jax.models.conv_pool import convolve
from tests.toy import enable_x64

TAPS = st.sampled_from([1, 3, 5, 7])


def _inputs(x_shape, kernel_shape, *, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=x_shape), rng.normal(size=kernel_shape)


def _by_spectra(x, kernel):
    return spectral.convolve(x.transpose(1, 2, 0, 3), kernel).transpose(2, 0, 1, 3)


@hypothesis.given(h=st.integers(1, 9), w=st.integers(1, 9), i=TAPS, j=TAPS, seed=st.integers(0, 2**16))
@hypothesis.settings(deadline=None, max_examples=12)
def test_it_is_the_convolution(h, w, i, j, seed):
    with enable_x64(True):
        x, kernel = map(jnp.asarray, _inputs((2, h, w, 3), (i, j, 3, 4), seed=seed))
        np.testing.assert_allclose(_by_spectra(x, kernel), convolve(x, kernel), atol=1e-12)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_rounding_is_small_against_an_image_s_largest_value(scale):
    x, kernel = _inputs((32, 14, 14, 32), (5, 5, 32, 64))
    weights = np.random.default_rng(1).normal(size=(32, 14, 14, 64))

    def all_of(f, *arrays):
        x, kernel, weights = (jnp.asarray(array) for array in arrays)
        y, gradients = jax.vjp(f, scale * x, kernel)
        return [np.asarray(array, np.float64) for array in (y, *gradients(weights))]

    with enable_x64(True):
        exact = all_of(convolve, x, kernel, weights)
    found = all_of(_by_spectra, *(array.astype(np.float32) for array in (x, kernel, weights)))
    for a, b in zip(found, exact, strict=True):
        assert np.abs(a - b).max() < 2e-6 * np.abs(b).max()


def test_gradients_forward_and_back_and_of_second_order():
    with enable_x64(True):
        x, kernel = map(jnp.asarray, _inputs((2, 4, 6, 2), (5, 3, 2, 3)))
        check_grads(jax.jit(_by_spectra), (x, kernel), order=2, modes=["fwd", "rev"])


def test_an_image_s_result_is_its_own():
    x, kernel = (jnp.asarray(array, jnp.float32) for array in _inputs((3, 6, 8, 2), (5, 5, 2, 3)))
    others = x.at[1].set(np.nan).at[2].set(1e20)
    np.testing.assert_allclose(_by_spectra(others, kernel)[0], _by_spectra(x, kernel)[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_rounded_once(dtype):
    x, kernel = (jnp.asarray(array, dtype) for array in _inputs((2, 8, 8, 4), (5, 5, 4, 3)))
    found = _by_spectra(x, kernel)
    assert found.dtype == dtype
    expected = convolve(x.astype(jnp.float32), kernel.astype(jnp.float32))
    np.testing.assert_allclose(found.astype(jnp.float32), expected, rtol=float(jnp.finfo(dtype).eps), atol=1e-4)


def test_several_networks_at_once():
    x, kernels = (jnp.asarray(array, jnp.float32) for array in _inputs((2, 4, 4, 2), (3, 5, 5, 2, 3)))
    found = jax.vmap(_by_spectra, (None, 0))(x, kernels)
    np.testing.assert_allclose(found, [convolve(x, kernel) for kernel in kernels], rtol=1e-5, atol=1e-5)
