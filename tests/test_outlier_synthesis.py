"""DOE's step: the perturbation's direction, size and average, and the step's two updates."""

from dataclasses import replace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import losses, outlier_synthesis, training
from preload_jax.losses import Hyperparameters
from preload_jax.steps import Batch
from tests import toy

KEY = jax.random.key(0)
METHOD = toy.method("doe_ft")
TASK = toy.task(METHOD, total_steps=10, optimizer="sgd")
HYPER = Hyperparameters(learning_rate=1e-2, weight_decay=0.0)


def state():
    variables = training.init_variables(TASK.model, toy.SHAPE, key=KEY)
    return training.init_state(variables, task=TASK, method=METHOD)


def batch(n=32):
    data = toy.data()
    return Batch(data.images[:n] / 255.0, data.labels[:n], data.outliers[:n] / 255.0)


def test_the_direction_lowers_the_sensitivity_to_the_scale():
    direction = outlier_synthesis._sensitivity_direction(state(), batch(), TASK)

    def sensitivity(params):
        logits = TASK.model.apply({"params": params}, batch().outliers)
        step = 1e-3
        up, down = (losses.uniform_cross_entropy(s * logits).mean() for s in (1 + step, 1 - step))
        return ((up - down) / (2 * step)) ** 2

    # To first order the square falls by the direction's squared length times the step.
    length = sum(float(jnp.sum(d**2)) for d in jax.tree.leaves(direction))
    before = sensitivity(state().params)
    after = sensitivity(jax.tree.map(lambda w, d: w + 0.05 * before / length * d, state().params, direction))
    np.testing.assert_allclose(after / before, 0.95, atol=0.03)


def test_rescaled_to_each_kernels_norm_and_zero_elsewhere():
    params = state().params
    direction = jax.tree.map(jnp.ones_like, params)
    rescaled = outlier_synthesis._rescale(direction, params)
    for w, r in zip(jax.tree.leaves(params), jax.tree.leaves(rescaled), strict=True):
        expected = np.linalg.norm(np.ravel(w)) if w.ndim > 1 else 0.0
        np.testing.assert_allclose(np.linalg.norm(np.ravel(r)), expected, rtol=1e-5)
    nothing = outlier_synthesis._rescale(jax.tree.map(jnp.zeros_like, params), params)
    chex.assert_tree_all_finite(nothing)


def test_the_average_takes_the_first_whole():
    memory = outlier_synthesis.init_memory({"w": jnp.zeros(2)})
    memory = outlier_synthesis._average_perturbation(memory, {"w": jnp.array([1.0, 2.0])}, decay=0.6)
    np.testing.assert_allclose(memory["perturbation"]["w"], [1.0, 2.0])
    memory = outlier_synthesis._average_perturbation(memory, {"w": jnp.array([2.0, 2.0])}, decay=0.6)
    np.testing.assert_allclose(memory["perturbation"]["w"], [0.4 * 1 + 0.6 * 2, 2.0], rtol=1e-6)


def test_warm_up_is_the_plain_step():
    task = replace(TASK, warmup_steps=1)
    warm, _ = METHOD.step(state(), batch(), KEY, task=task, hyper=HYPER)
    plain, _ = toy.steps.gradient_step(state(), batch(), KEY, task=task, hyper=HYPER)
    chex.assert_trees_all_close(warm.params, plain.params, rtol=1e-6)
    after, _ = METHOD.step(warm, batch(), KEY, task=task, hyper=HYPER)
    assert int(after.memory["count"]) == 1


def test_the_perturbation_is_taken_off_again():
    # With a learning rate of 0 nothing but the perturbation could move the weights.
    after, _ = METHOD.step(state(), batch(), KEY, task=TASK, hyper=HYPER._replace(learning_rate=0.0))
    chex.assert_trees_all_close(after.params, state().params, atol=1e-6)
    assert int(after.step) == 1


def test_two_updates_at_one_step_of_the_schedule(monkeypatch):
    # Without a perturbation the step is: an update on λ·L_OE, then one on CE, both at the step's learning rate.
    monkeypatch.setattr(outlier_synthesis, "STRENGTHS", (0.0,))
    hyper = HYPER._replace(ood_weight=2.0)
    after, metrics = METHOD.step(state(), batch(), KEY, task=TASK, hyper=hyper)

    def ood_loss(params):
        return 2.0 * losses.uniform_cross_entropy(TASK.model.apply({"params": params}, batch().outliers)).mean()

    def in_loss(params):
        logits = TASK.model.apply({"params": params}, batch().images)
        return losses.cross_entropy(logits, batch().labels).mean()

    expected = state()
    for loss in (ood_loss, in_loss):
        expected = toy.steps.descend(expected, jax.grad(loss)(expected.params), task=TASK, hyper=hyper)
    chex.assert_trees_all_close(after.params, expected.params, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(after.opt_state, expected.opt_state, rtol=1e-4, atol=1e-6)
    assert int(after.step) == 1
    chex.assert_tree_all_finite((after, metrics))


def test_no_outliers():
    with pytest.raises(ValueError, match="DOE needs auxiliary OOD images"):
        METHOD.step(state(), batch()._replace(outliers=None), KEY, task=TASK, hyper=HYPER)
