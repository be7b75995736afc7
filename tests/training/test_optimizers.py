"""The optimisers against hand-computed steps and PyTorch's documented update rules."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from preload_jax.errors import UserError
from preload_jax.training import optimizers
from preload_jax.training.optimizers import Optimizer

PARAMS = {"w": jnp.array([1.0, -2.0])}
GRADIENTS = [{"w": jnp.array([0.5, 0.1])}, {"w": jnp.array([-0.2, 0.3])}]


def updated(*arguments, **numbers):
    with jax.numpy_dtype_promotion("standard"):  # Optax mixes types; so does its caller
        return optimizers.updates(*arguments, **numbers)


def run(optimizer, *, weight_decay, learning_rate=0.1, scale=1.0):
    params, numbers = PARAMS, {"weight_decay": weight_decay, "learning_rate": learning_rate}
    state = optimizers.init(optimizer, params)
    for gradient in jax.tree.map(lambda g: scale * g, GRADIENTS):
        updates, state = updated(optimizer, gradient, state, params, **numbers)
        params = optax.apply_updates(params, updates)
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


def test_the_gradient_is_clipped_before_decay():
    transformation = Optimizer("sgd", momentum=0.0, clip_norm=1.0).direction(0.5)
    gradient = {"w": jnp.array([30.0, 40.0])}
    direction, _ = transformation.update(gradient, transformation.init(PARAMS), PARAMS)
    np.testing.assert_allclose(direction["w"], [0.6 + 0.5, 0.8 - 1.0], rtol=1e-6)


def test_a_transformation_of_optax_is_used_as_it_is():
    numbers = {"weight_decay": 0.01, "learning_rate": 0.1}
    given = optax.chain(optax.add_decayed_weights(0.01), optax.scale_by_adam(), optax.scale(-0.1))
    found = []
    for optimizer in (Optimizer("adam"), given):
        updates, _ = updated(optimizer, GRADIENTS[0], optimizers.init(optimizer, PARAMS), PARAMS, **numbers)
        found.append(updates)
    chex.assert_trees_all_close(*found, rtol=1e-6)
    # Its numbers are its own: the two given here mean nothing.
    other, _ = updated(given, GRADIENTS[0], given.init(PARAMS), PARAMS, weight_decay=9.0, learning_rate=9.0)
    chex.assert_trees_all_equal(other, found[1])


def test_another_learning_rate_needs_no_compilation():
    calls = []

    @jax.jit
    def step(learning_rate, weight_decay):
        calls.append(1)
        numbers = {"weight_decay": weight_decay, "learning_rate": learning_rate}
        optimizer = Optimizer("adam")
        return updated(optimizer, GRADIENTS[0], optimizers.init(optimizer, PARAMS), PARAMS, **numbers)

    for rate in (0.1, 0.2, 0.3):
        step(jnp.asarray(rate), jnp.asarray(rate))
    assert len(calls) == 1


def test_unknown_optimizer():
    with pytest.raises(UserError, match=r"unknown optimizer 'lion'; expected one of sgd, adam"):
        Optimizer("lion")
