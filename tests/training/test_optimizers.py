"""The optimisers against hand-computed steps and PyTorch's documented update rules."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from preload_jax.training import optimizers
from preload_jax.training.optimizers import Optimizer

PARAMS = {"w": jnp.array([1.0, -2.0])}
GRADIENTS = [{"w": jnp.array([0.5, 0.1])}, {"w": jnp.array([-0.2, 0.3])}]


def run(optimizer, *, weight_decay, learning_rate=0.1, scale=1.0):
    transformation, params = optimizer.direction(weight_decay), PARAMS
    state = transformation.init(params)
    for gradient in jax.tree.map(lambda g: scale * g, GRADIENTS):
        with jax.numpy_dtype_promotion("standard"):  # Optax mixes types
            direction, state = transformation.update(gradient, state, params)
        params = optimizers.apply(params, direction, learning_rate=jnp.asarray(learning_rate))
    return np.asarray(params["w"])


def test_sgd_is_nesterov_with_coupled_decay():
    w, buffer, decay = np.array([1.0, -2.0]), np.zeros(2), 0.01
    for gradient in GRADIENTS:
        g = np.asarray(gradient["w"]) + decay * w
        buffer = 0.9 * buffer + g
        w = w - 0.1 * (g + 0.9 * buffer)
    np.testing.assert_allclose(run(Optimizer("sgd"), weight_decay=decay), w, rtol=1e-6)


# Gradients as small as ε, too.
@pytest.mark.parametrize(("scale", "decay"), [(1.0, 0.01), (1e-8, 0.0)])
def test_adam_has_coupled_decay_not_adamws(scale, decay):
    w, m, v = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for t, gradient in enumerate(GRADIENTS, start=1):
        g = scale * np.asarray(gradient["w"]) + decay * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(run(Optimizer("adam"), weight_decay=decay, scale=scale), w, rtol=1e-5)


def test_parameters_keep_their_type():
    params = {"w": jnp.ones(2, jnp.bfloat16)}
    assert optimizers.apply(params, params, learning_rate=jnp.float32(0.5))["w"].dtype == jnp.bfloat16


def test_the_gradient_is_clipped_before_decay():
    transformation = Optimizer("sgd", momentum=0.0, clip_norm=1.0).direction(0.5)
    gradient = {"w": jnp.array([30.0, 40.0])}
    direction, _ = transformation.update(gradient, transformation.init(PARAMS), PARAMS)
    np.testing.assert_allclose(direction["w"], [0.6 + 0.5, 0.8 - 1.0], rtol=1e-6)


def test_cosine_is_optaxs():
    schedule = optax.cosine_decay_schedule(0.3, 40)
    for step in (0, 1, 20, 39, 40):
        value = optimizers.cosine(jnp.array(step), learning_rate=0.3, total_steps=40)
        np.testing.assert_allclose(value, schedule(step), atol=1e-7)


def test_another_learning_rate_needs_no_compilation():
    calls = []

    @jax.jit
    def step(learning_rate, weight_decay):
        calls.append(1)
        transformation = Optimizer("adam").direction(weight_decay)
        with jax.numpy_dtype_promotion("standard"):
            direction, _ = transformation.update(GRADIENTS[0], transformation.init(PARAMS), PARAMS)
        return optimizers.apply(PARAMS, direction, learning_rate=learning_rate)

    for rate in (0.1, 0.2, 0.3):
        step(jnp.asarray(rate), jnp.asarray(rate))
    assert len(calls) == 1


def test_unknown_optimizer():
    with pytest.raises(ValueError, match=r"unknown optimizer 'lion'; expected one of \['sgd', 'adam'\]"):
        Optimizer("lion")
