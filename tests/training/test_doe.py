"""DOE's step: against the rule in NumPy, float64; the warm-up, dropout, batch statistics and devices."""

import copy
from dataclasses import replace
from functools import cache

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from preload_jax import models
from preload_jax.models.classifier import OnePixel
from preload_jax.training import steps
from preload_jax.training.loop import fit_stage
from preload_jax.training.plan import Plan
from preload_jax.training.steps import Batch
from tests import toy

KEY = jax.random.key(0)
STEP = toy.step("doe_ft")
TASK = toy.task("doe_ft", total_steps=10, optimizer="sgd")
STRENGTHS = (1e-2, 1e-3, 1e-4)
RATE, DECAY, WEIGHT, BETA, TOTAL = 0.3, 0.5, 2.0, 0.6, 10


def batch():
    return toy.batch(32)


class Rule:
    """The step on a linear network z = W x + b, in NumPy: DOE (Wang et al., 2023) with Nesterov's SGD.

    The gradient of the squared sensitivity has a closed form there: g = ∂L_OE(s·z)/∂s is the mean of Σ_c p_c z_c − z̄.
    """

    def __init__(self, params):
        self.w = {name: np.asarray(value, np.float64) for name, value in params.items()}
        self.moments = {name: np.zeros_like(value) for name, value in self.w.items()}
        self.perturbation = {name: np.zeros_like(value) for name, value in self.w.items()}
        self.step = 0

    def logits(self, x):
        return x @ self.w["kernel"] + self.w["bias"]

    def direction(self, x):
        """−∇ g², of the kernel's length; biases are not perturbed."""
        z = self.logits(x)
        p = scipy.special.softmax(z, axis=1)
        expected = (p * z).sum(axis=1, keepdims=True)
        g = (expected[:, 0] - z.mean(axis=1)).mean()
        gradient_of_z = (p * (1.0 + z - expected) - 1.0 / z.shape[1]) / len(x)
        found = -2.0 * g * x.T @ gradient_of_z
        return found * np.linalg.norm(self.w["kernel"]) / np.linalg.norm(found)

    def descend(self, x, gradient_of_z, rate):
        gradient = {"kernel": x.T @ gradient_of_z, "bias": gradient_of_z.sum(axis=0)}
        norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
        for name, g in gradient.items():
            g = g / max(norm, 1.0) + DECAY * self.w[name]
            self.moments[name] = 0.9 * self.moments[name] + g
            self.w[name] = self.w[name] - rate * (g + 0.9 * self.moments[name])

    def take(self, x, labels, outliers, strength):
        new, beta = self.direction(outliers), BETA if self.step else 0.0
        self.perturbation["kernel"] = beta * self.perturbation["kernel"] + (1.0 - beta) * new
        rate = RATE * 0.5 * (1.0 + np.cos(np.pi * self.step / TOTAL))
        offset = strength * self.perturbation["kernel"]
        self.w["kernel"] = self.w["kernel"] + offset
        p = scipy.special.softmax(self.logits(outliers), axis=1)
        self.descend(outliers, WEIGHT * (p - 1.0 / p.shape[1]) / len(p), rate)
        self.w["kernel"] = self.w["kernel"] - offset
        p = scipy.special.softmax(self.logits(x), axis=1)
        self.descend(x, (p - np.eye(p.shape[1])[labels]) / len(p), rate)
        self.step += 1


@cache
def linear_network():
    """A task and a state whose network is linear: images of one pixel with 16 channels."""
    task = toy.task(
        "doe_ft", total_steps=TOTAL, optimizer="sgd", model=models.Classifier(OnePixel(), models.LinearHead(3))
    )
    return task, toy.start("doe_ft", task, shape=(1, 1, 16))


def flat(images):
    return np.asarray(images, np.float64).reshape(len(images), 16)


def nearest_strength(rule, kernel, *, given):
    """The strength with which the rule gives this kernel, and how far it is from it."""
    found = {}
    for strength in STRENGTHS:
        other = copy.deepcopy(rule)
        other.take(flat(given.images), np.asarray(given.labels), flat(given.outliers), strength)
        found[strength] = np.abs(other.w["kernel"] - kernel).max()
    best = min(found, key=found.__getitem__)
    assert found[best] < 3e-6
    # No other strength explains it.
    assert sorted(found.values())[1] > 4 * found[best]
    return best


def test_three_steps_are_the_rules_and_each_strength_is_drawn():
    task, state = linear_network()
    given = batch()
    given = Batch(given.images.reshape(32, 1, 1, 16), given.labels, given.outliers.reshape(32, 1, 1, 16))
    hyper = toy.hyper("doe_ft", RATE, ood_weight=WEIGHT, weight_decay=DECAY, perturbation_decay=BETA)
    step = jax.jit(lambda state, key: STEP(state, given, key, task=task, hyper=hyper)[0])
    rule, drawn = Rule(state.params["head"]["linear"]), set()
    for i in range(3):
        after = jax.vmap(step, (None, 0))(state, jax.random.split(jax.random.key(i), 12))
        strengths = [
            nearest_strength(rule, np.asarray(kernel, np.float64), given=given)
            for kernel in after.params["head"]["linear"]["kernel"]
        ]
        drawn |= set(strengths)
        # Goes on with the first of them.
        rule.take(flat(given.images), np.asarray(given.labels), flat(given.outliers), strengths[0])
        state = jax.tree.map(lambda x: x[0], after)
        memory = state.memory["perturbation"]["head"]["linear"]
        np.testing.assert_allclose(memory["kernel"], rule.perturbation["kernel"], rtol=1e-4, atol=1e-5)
        assert not np.asarray(memory["bias"]).any()
        assert int(state.step) == i + 1
    assert drawn == set(STRENGTHS)


def test_the_loss_is_both_and_the_accuracy_the_images():
    task, state = linear_network()
    given = batch()
    given = Batch(given.images.reshape(32, 1, 1, 16), given.labels, given.outliers.reshape(32, 1, 1, 16))
    hyper = toy.hyper("doe_ft", 0.0, ood_weight=WEIGHT, weight_decay=0.0)
    _, metrics = STEP(state, given, KEY, task=task, hyper=hyper)
    rule = Rule(state.params["head"]["linear"])
    z, far = rule.logits(flat(given.images)), rule.logits(flat(given.outliers))
    ce = (scipy.special.logsumexp(z, axis=1) - z[np.arange(32), given.labels]).mean()
    uniform = (scipy.special.logsumexp(far, axis=1) - far.mean(axis=1)).mean()
    # At w + γP for the second, γ at most 1e-2.
    np.testing.assert_allclose(metrics["loss"], ce + WEIGHT * uniform, rtol=2e-2)
    np.testing.assert_allclose(metrics["accuracy"], (z.argmax(axis=1) == given.labels).mean())


@pytest.mark.parametrize("per_call", [1, 3, 8])
def test_warm_up_is_the_plain_step(per_call):
    """Until the step that ends it, wherever calls and epochs end."""
    hyper, task = toy.hyper("doe_ft"), replace(TASK, total_steps=16)
    plan = Plan(256, 32, 2, max_steps_per_call=per_call, warmup_steps=5)

    def states(step, plan):
        start = toy.start("doe_ft", TASK)
        for report in fit_stage(start, toy.data(), key=KEY, task=task, step=step, hyper=hyper, plan=plan):
            yield report.step, jax.tree.map(np.array, report.state)

    found = dict(states(STEP, plan))
    plain = dict(states(steps.gradient_step, plan))
    chex.assert_trees_all_equal(found[5], plain[5])
    chex.assert_trees_all_equal(found[5].memory, toy.start("doe_ft", TASK).memory)
    after = min(step for step in found if step > 5)
    assert found[after].memory["count"] == after - 5
    assert np.abs(found[after].memory["perturbation"]["head"]["linear"]["kernel"]).max() > 0


def test_no_convolution_is_inside_a_condition():
    """XLA's CPU compiler would run it fifty times slower."""
    step = jax.jit(lambda state: STEP(state, batch(), KEY, task=TASK, hyper=toy.hyper("doe_ft")))
    assert "cond[" not in str(jax.make_jaxpr(step)(toy.start("doe_ft", TASK)))


def test_the_perturbation_is_taken_off_again():
    # With a learning rate of 0 nothing but the perturbation could move the weights.
    start = toy.start("doe_ft", TASK)
    after, _ = STEP(start, batch(), KEY, task=TASK, hyper=toy.hyper("doe_ft", 0.0))
    chex.assert_trees_all_close(after.params, start.params, atol=1e-6)
    assert int(after.step) == 1


def test_weights_of_zero_leave_everything_finite():
    task, start = noisy()
    start = replace(start, params=jax.tree.map(jnp.zeros_like, start.params))
    after, _ = STEP(start, batch(), KEY, task=task, hyper=toy.hyper("doe_ft"))
    chex.assert_tree_all_finite(after)


def noisy(**options):
    """The task and the state of a network with dropout and batch statistics."""
    task = replace(TASK, model=toy.noisy_model(**options))
    return task, toy.start("doe_ft", task)


def test_the_direction_is_found_without_dropout():
    found = []
    for dropout in (0.3, 0.0):
        task, start = noisy(dropout=dropout)
        after, _ = STEP(start, batch(), KEY, task=task, hyper=toy.hyper("doe_ft"))
        found.append(after.memory)
    chex.assert_trees_all_equal(*found)


class Drawing(nn.Module):
    """Keeps the last two numbers that it drew, and the mean of its features, as batch statistics."""

    @nn.compact
    def __call__(self, images, *, train=False):
        draws = self.variable("batch_stats", "draws", lambda: jnp.zeros(2))
        if train:
            draws.value = jnp.stack([draws.value[1], jax.random.normal(self.make_rng("dropout"))])
        x = nn.Dense(8, name="dense")(images.reshape(len(images), -1))
        return nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9, name="bn")(x))


def test_both_passes_move_batch_statistics_and_have_a_dropout_of_their_own():
    task = replace(TASK, model=models.Classifier(Drawing(), models.LinearHead(3)))
    start = toy.start("doe_ft", task)
    after, _ = STEP(start, batch(), KEY, task=task, hyper=toy.hyper("doe_ft", 0.0))
    found = after.batch_stats["backbone"]
    assert found["draws"][0] != found["draws"][1]
    # With a learning rate of 0 both passes see the same features, but for a perturbation of a hundredth at most.
    both = jnp.concatenate([batch().images, batch().outliers])
    features = both.reshape(len(both), -1) @ start.params["backbone"]["dense"]["kernel"]
    expected = (features + start.params["backbone"]["dense"]["bias"][None]).mean(axis=0)
    np.testing.assert_allclose(found["bn"]["mean"], 0.19 * expected, rtol=2e-2, atol=2e-3)


def test_devices_stay_equal_under_pmap():
    if jax.device_count() < 2:
        pytest.skip("needs 2 devices")
    task, start = noisy(axis_name="devices")
    task = replace(task, axis_name="devices")
    split = jax.tree.map(lambda x: x.reshape(2, -1, *x.shape[1:]), batch())
    hyper = toy.hyper("doe_ft")
    step = jax.pmap(lambda s, b: STEP(s, b, KEY, task=task, hyper=hyper), axis_name="devices", in_axes=(None, 0))
    found = step(start, split)
    one, other = (jax.tree.map(lambda x, i=i: np.asarray(x[i]), found) for i in (0, 1))
    chex.assert_trees_all_equal(one, other)


def test_no_outliers():
    with pytest.raises(ValueError, match="DOE needs auxiliary OOD images"):
        STEP(toy.start("doe_ft", TASK), batch()._replace(outliers=None), KEY, task=TASK, hyper=toy.hyper("doe_ft"))
