"""Class weights: the loss against NumPy, "balanced" against scikit-learn, and that a training uses them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from preload_jax import fit, losses, methods
from preload_jax.training import class_weights, stage
from tests import toy

RNG = np.random.default_rng(0)
LOGITS, OTHERS = (RNG.normal(0, 3, (49, 4)).astype(np.float32) for _ in range(2))
LABELS = np.array([0] * 30 + [1] * 12 + [2] * 7)
WEIGHTS = np.array([0.5, 1.0, 4.0])
# Weighed example by example, or with labels of partners, instead of by the cross-entropy alone.
OTHERWISE = {"label_smoothing", "focal", "mixup"}
OBJECTIVES = sorted({row.objective for row in methods.METHODS.values()} - OTHERWISE)


def test_the_loss_is_the_weighted_mean():
    log_probability = LOGITS - np.log(np.exp(LOGITS.astype(np.float64)).sum(axis=1, keepdims=True))
    costs, weights = -log_probability[np.arange(len(LABELS)), LABELS], WEIGHTS[LABELS]
    found = losses.mean_cross_entropy(jnp.asarray(LOGITS), jnp.asarray(LABELS), jnp.asarray(WEIGHTS))
    assert float(found) == pytest.approx((weights * costs).sum() / weights.sum(), rel=1e-5)
    # A class of weight 2 is one whose examples come twice.
    twice = np.concatenate([np.arange(len(LABELS)), np.flatnonzero(LABELS == 1)])
    expected = losses.mean_cross_entropy(jnp.asarray(LOGITS[twice]), jnp.asarray(LABELS[twice]))
    found = losses.mean_cross_entropy(jnp.asarray(LOGITS), jnp.asarray(LABELS), jnp.array([1.0, 2.0, 1.0]))
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_weighs_its_in_domain_part_alone(name):
    objective = stage.OBJECTIVES[name]
    given = tuple(map(jnp.asarray, (LOGITS, LABELS, OTHERS)))
    with_weights = jax.jit(jax.value_and_grad(lambda x, w: objective(x, *given[1:], class_weights=w)))
    plain = jax.jit(jax.value_and_grad(lambda x: objective(x, *given[1:])))(given[0])
    for one, other in zip(plain, with_weights(given[0], jnp.ones(3)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    share = 0.5 if name == "extra_class" else 1.0
    change = losses.mean_cross_entropy(*given[:2], jnp.asarray(WEIGHTS)) - losses.mean_cross_entropy(*given[:2])
    weighted, _ = with_weights(given[0], jnp.asarray(WEIGHTS))
    assert float(weighted - plain[0]) == pytest.approx(share * float(change), abs=1e-5)


@pytest.mark.parametrize("name", ["label_smoothing", "focal"])
def test_a_class_of_weight_2_is_one_whose_examples_come_twice(name):
    objective = stage.OBJECTIVES[name]
    twice = np.concatenate([np.arange(len(LABELS)), np.flatnonzero(LABELS == 1)])
    expected = objective(jnp.asarray(LOGITS[twice]), jnp.asarray(LABELS[twice]))
    found = objective(jnp.asarray(LOGITS), jnp.asarray(LABELS), class_weights=jnp.array([1.0, 2.0, 1.0]))
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    assert float(found) != pytest.approx(float(objective(jnp.asarray(LOGITS), jnp.asarray(LABELS))), rel=1e-3)


def test_mixup_weighs_each_part_by_its_own_labels():
    logits, labels, weights = map(jnp.asarray, (LOGITS, LABELS, WEIGHTS))
    partners = labels[::-1]
    found = losses.mixup(logits, labels, partners=partners, share=0.75, class_weights=weights)
    parts = [losses.mean_cross_entropy(logits, y, weights) for y in (labels, partners)]
    assert float(found) == pytest.approx(0.75 * float(parts[0]) + 0.25 * float(parts[1]), rel=1e-5)


def test_balanced_is_scikit_learns():
    expected = compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    np.testing.assert_allclose(class_weights.numbers("balanced", LABELS, 3), expected, rtol=1e-6)


def trained(method="standard", **given):
    """A rare class, one epoch: the rows of its logits in the last layer."""
    data = toy.data()
    rows = np.flatnonzero((np.asarray(data.labels) != 2) | (np.arange(256) % 8 == 0))[:128]
    images, labels = np.asarray(data.images)[rows], np.asarray(data.labels)[rows]
    model = toy.model(methods.get(method).head)
    outliers = np.asarray(data.outliers) if methods.get(method).uses_outliers else None
    found = fit(model, images, labels, outliers, method=method, epochs=2, batch_size=32, **given)
    return jax.tree.map(np.asarray, found["params"]), labels


def test_a_training_weighs_its_classes():
    plain, labels = trained()
    by_name, _ = trained(class_weights="balanced")
    by_number, _ = trained(class_weights=compute_class_weight("balanced", classes=np.arange(3), y=labels))
    scaled, _ = trained(class_weights=8.0 * compute_class_weight("balanced", classes=np.arange(3), y=labels), devices=2)
    for one, other, again, before in zip(*map(jax.tree.leaves, (by_name, by_number, scaled, plain)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one, again, rtol=1e-3, atol=1e-4)
        assert np.abs(one - before).max() > 1e-3
    ones, _ = trained(class_weights=np.full(3, 2.0))
    for one, other in zip(*map(jax.tree.leaves, (ones, plain)), strict=True):
        np.testing.assert_array_equal(one, other)


# Those whose step calls the objective, or the cross entropy, by itself.
@pytest.mark.parametrize("name", ["mixup", "doe_ft"])
def test_a_step_of_the_methods_own_hands_the_weights_on(name):
    task = toy.task(name, total_steps=4, optimizer="sgd")
    hyper, batch, state = toy.hyper(name, 0.1), toy.batch(16), toy.start(name, task)

    @jax.jit
    def loss(weights):
        numbers = hyper._replace(objective={**hyper.objective, "class_weights": weights})
        return toy.step(name)(state, batch, jax.random.key(0), task=task, hyper=numbers)[1]["loss"]

    assert float(loss(jnp.array([0.1, 1.0, 5.0]))) != pytest.approx(float(loss(jnp.ones(3))), rel=1e-3)
