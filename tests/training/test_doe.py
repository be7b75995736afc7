"""DOE's step: the perturbation's direction, size and average, and the step's two updates."""

from dataclasses import replace
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import losses
from preload_jax.losses import Hyperparameters
from preload_jax.training import doe as outlier_synthesis
from preload_jax.training import loop as training
from preload_jax.training.steps import Batch
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
    chex.assert_trees_all_close(warm.params, plain.params, rtol=1e-6, atol=1e-8)
    after, _ = METHOD.step(warm, batch(), KEY, task=task, hyper=HYPER)
    assert int(after.memory["count"]) == 1


def test_the_perturbation_is_taken_off_again():
    # With a learning rate of 0 nothing but the perturbation could move the weights.
    after, _ = METHOD.step(state(), batch(), KEY, task=TASK, hyper=HYPER._replace(learning_rate=0.0))
    chex.assert_trees_all_close(after.params, state().params, atol=1e-6)
    assert int(after.step) == 1


@pytest.mark.parametrize("strength", [0.0, 0.1])
def test_two_updates_at_one_step_of_the_schedule(strength, monkeypatch):
    # An update on λ·L_OE at w + γP, the perturbation taken off, and one on CE, both at the step's learning rate.
    monkeypatch.setattr(outlier_synthesis, "STRENGTHS", (strength,))
    hyper = HYPER._replace(ood_weight=2.0, weight_decay=0.1, perturbation_decay=0.3)
    before = replace(state(), step=jnp.array(4))
    old = jax.tree.map(jnp.ones_like, before.params)
    before = replace(before, memory={"perturbation": old, "count": jnp.array(1)})
    after, metrics = jax.jit(lambda s: METHOD.step(s, batch(), KEY, task=TASK, hyper=hyper))(before)

    @jax.jit
    def ood_loss(params):
        return 2.0 * losses.uniform_cross_entropy(TASK.model.apply({"params": params}, batch().outliers)).mean()

    @jax.jit
    def in_loss(params):
        logits = TASK.model.apply({"params": params}, batch().images)
        return losses.cross_entropy(logits, batch().labels).mean()

    direction = outlier_synthesis._sensitivity_direction(before, batch(), TASK)
    new = outlier_synthesis._rescale(direction, before.params)
    perturbation = jax.tree.map(lambda p, d: 0.7 * p + 0.3 * d, old, new)
    there = jax.tree.map(lambda w, p: w + strength * p, before.params, perturbation)
    descend = partial(toy.steps.descend, task=TASK, hyper=hyper)
    first = descend(replace(before, params=there), jax.grad(ood_loss)(there))
    back = jax.tree.map(lambda w, p: w - strength * p, first.params, perturbation)
    expected = descend(replace(first, params=back), jax.grad(in_loss)(back))
    chex.assert_trees_all_close(after.params, expected.params, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(after.opt_state, expected.opt_state, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(after.memory, {"perturbation": perturbation, "count": 2}, rtol=1e-4, atol=1e-6)
    assert int(after.step) == 5
    np.testing.assert_allclose(metrics["loss"], ood_loss(there) + in_loss(back), rtol=1e-5)
    right = TASK.model.apply({"params": back}, batch().images).argmax(axis=1) == batch().labels
    np.testing.assert_allclose(metrics["accuracy"], right.mean())


def test_each_of_the_papers_strengths_is_drawn(monkeypatch):
    def keep(state, gradients, **options):
        return replace(state, opt_state=(state.params, state.opt_state))

    monkeypatch.setattr(outlier_synthesis, "descend", keep)
    start = state()
    step = jax.jit(lambda key: METHOD.step(replace(start, opt_state=()), batch(), key, task=TASK, hyper=HYPER)[0])
    # Both branches of the step's condition have to have one structure.
    monkeypatch.setattr(outlier_synthesis, "gradient_step", outlier_synthesis._perturbed_step)
    after = jax.jit(jax.vmap(step))(jax.random.split(KEY, 20))
    _, (perturbed, _) = after.opt_state
    kernels = [tree["backbone"]["dense1"]["kernel"] for tree in (perturbed, start.params, after.memory["perturbation"])]
    strengths = np.linalg.norm(kernels[0] - kernels[1][None], axis=(1, 2)) / np.linalg.norm(kernels[2], axis=(1, 2))
    np.testing.assert_allclose(np.unique(strengths.round(5)), [1e-4, 1e-3, 1e-2], rtol=0.05)


def noisy(**options):
    """The task and the state of a network with dropout and batch statistics."""
    task = replace(TASK, model=toy.noisy_model(**options))
    variables = training.init_variables(task.model, toy.SHAPE, key=KEY)
    return task, training.init_state(variables, task=task, method=METHOD)


def test_the_direction_is_found_without_dropout():
    task, start = noisy()
    direction = jax.jit(partial(outlier_synthesis._sensitivity_direction, start, batch()), static_argnums=0)
    chex.assert_trees_all_equal(direction(task), direction(noisy(dropout=0.0)[0]))


def test_both_passes_move_batch_statistics_and_have_a_dropout_of_their_own(monkeypatch):
    keys, forward = [], outlier_synthesis.forward

    def watching(params, batch_stats, batch, key, **options):
        keys.append(key)
        return forward(params, batch_stats, batch, key, **options)

    @jax.jit
    def step(state):
        hyper = HYPER._replace(learning_rate=0.0)
        after, _ = outlier_synthesis._perturbed_step(state, batch(), KEY, task=task, hyper=hyper)
        # Those of the two passes; the search for the direction, before them, uses none.
        return after, jnp.stack([jax.random.key_data(key) for key in (KEY, *keys[1:])])

    monkeypatch.setattr(outlier_synthesis, "forward", watching)
    monkeypatch.setattr(outlier_synthesis, "STRENGTHS", (0.0,))
    task, start = noisy()
    after, found = step(start)
    assert len(np.unique(found, axis=0)) == len(found) == 3
    # With a learning rate of 0 both passes see the same features.
    both = jnp.concatenate([batch().images, batch().outliers])
    features = both.reshape(len(both), -1) @ start.params["backbone"]["dense"]["kernel"]
    np.testing.assert_allclose(after.batch_stats["backbone"]["bn"]["mean"], 0.19 * features.mean(axis=0), rtol=1e-3)


def test_devices_stay_equal_under_pmap():
    if jax.device_count() < 2:
        pytest.skip("needs 2 devices")
    task, start = noisy(axis_name="devices")
    task = replace(task, axis_name="devices")
    split = jax.tree.map(lambda x: x.reshape(2, -1, *x.shape[1:]), batch())
    step = jax.pmap(lambda s, b: METHOD.step(s, b, KEY, task=task, hyper=HYPER), axis_name="devices", in_axes=(None, 0))
    found = step(start, split)
    one, other = (jax.tree.map(lambda x, i=i: np.asarray(x[i]), found) for i in (0, 1))
    chex.assert_trees_all_equal(one, other)


def test_no_outliers():
    with pytest.raises(ValueError, match="DOE needs auxiliary OOD images"):
        METHOD.step(state(), batch()._replace(outliers=None), KEY, task=TASK, hyper=HYPER)
