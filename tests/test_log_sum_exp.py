"""Log-sum-exp and softmax of logits that are scaled in the same compiled program, against SciPy in float64."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from preload_jax.log_sum_exp import log_softmax, log_sum_exp, softmax

PAIRS = {
    "log_sum_exp": (log_sum_exp, lambda z: scipy.special.logsumexp(z, axis=1), lambda z: jax.nn.logsumexp(z, axis=-1)),
    "log_softmax": (log_softmax, lambda z: scipy.special.log_softmax(z, axis=1), jax.nn.log_softmax),
    "softmax": (softmax, lambda z: scipy.special.softmax(z, axis=1), jax.nn.softmax),
}


def _scaled(function):
    return jax.jit(lambda z, beta: function(beta * z))


COMPILED = {name: _scaled(ours) for name, (ours, _, _) in PAIRS.items()}


@settings(max_examples=100, deadline=None)
@given(
    hnp.arrays(np.float32, (4, 5), elements=st.floats(-1.0, 1.0, width=32)),
    st.sampled_from([1e-3, 1.0, 1e4, 1e8, 1e12, 1e20, 1e30, 1e38]),
    st.floats(2**-7, 1.0, width=32),
)
@example(np.array([[1.0, 0.0, 0.5, -1.0, 1.0]] * 4, np.float32), 1e20, np.float32(0.1))
def test_of_scaled_logits_they_are_scipys_in_float64(z, size, beta):
    z = (z * size).astype(np.float32)
    rounded = (z * np.float32(beta)).astype(np.float64)
    found = {name: np.asarray(function(z, np.float32(beta)), np.float64) for name, function in COMPILED.items()}
    # Differences of logits may be wrong by a rounding of the largest.
    lost = 2.0 * np.finfo(np.float32).eps * np.abs(rounded).max(axis=1)
    for name in ("log_sum_exp", "log_softmax"):
        error = np.abs(found[name] - PAIRS[name][1](rounded))
        assert (error.reshape(4, -1) <= 1e-5 + 2.0 * lost[:, None]).all()
    np.testing.assert_allclose(found["softmax"].sum(axis=1), 1.0, rtol=1e-5)
    told = lost < 1e-4
    np.testing.assert_allclose(found["softmax"][told], PAIRS["softmax"][1](rounded)[told], atol=5e-4)
    alone = np.sort(rounded, axis=1)
    alone = alone[:, -1] - alone[:, -2] > 30.0 + 2.0 * lost
    np.testing.assert_array_equal(found["softmax"][alone].argmax(axis=1), rounded[alone].argmax(axis=1))
    np.testing.assert_allclose(found["softmax"][alone].max(axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_are_those_of_jax(name):
    ours, _, theirs = PAIRS[name]
    z = jnp.array([[0.3, -2.0, 5.0], [1.0, 1.0, 1.0], [4.0, 4.0, -30.0]])
    chex.assert_trees_all_close(jax.jacobian(ours)(z), jax.jacobian(theirs)(z), atol=1e-6)
    squares = [jax.hessian(lambda z, f=f: jnp.sum(jnp.square(f(z))))(z) for f in (ours, theirs)]
    chex.assert_trees_all_close(*squares, rtol=1e-5, atol=1e-5)


def test_infinities():
    inf = np.inf
    z = jnp.array([[inf, 1.0, 2.0], [-inf, 1.0, 2.0], [-inf, -inf, -inf], [np.nan, 1.0, 2.0]])
    np.testing.assert_allclose(log_sum_exp(z), [inf, np.logaddexp(1.0, 2.0), -inf, np.nan], rtol=1e-6)
    np.testing.assert_allclose(softmax(z[1:2]), [[0.0, 1.0 / (1.0 + np.e), np.e / (1.0 + np.e)]], rtol=1e-6)
    assert log_softmax(z[1:2])[0, 0] == -inf


def test_jax_alone_is_wrong_here():
    """If this fails, compilers have become careful, and the functions may go."""
    if jax.default_backend() != "cpu":
        pytest.skip("another device's compiler may round otherwise")
    z = np.array([[1e20, 1.0, 0.0]], np.float32)
    assert not np.allclose(_scaled(jax.nn.softmax)(z, 0.1), [[1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(_scaled(softmax)(z, 0.1), [[1.0, 0.0, 0.0]])
