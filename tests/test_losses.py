"""Losses against the released code's values, literal values, and their gradients."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from absl.testing import parameterized

from preload_jax import losses
from tests.golden.rebuild import REFERENCE

GOLDEN = {name: np.asarray(value) for name, value in REFERENCE["losses"].items()}
LABELS = jnp.asarray(GOLDEN["labels"])


WITH_OUTLIERS = (
    losses.extra_class,
    losses.extra_class_whole,
    losses.outlier_exposure,
    losses.outlier_exposure_class_mean,
    losses.energy_margins,
)


def logits(name):
    return jnp.asarray(GOLDEN[name], jnp.float32)


def margins(objective):
    return {"margin_in": -4.0, "margin_ood": -2.0} if objective is losses.energy_margins else {}


class PerExample(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    def test_reference_values(self):
        cases = [
            (losses.cross_entropy, (logits("logits_in"), LABELS), "cross_entropy_in"),
            (losses.uniform_cross_entropy, (logits("logits_out"),), "uniform_cross_entropy_out"),
            (losses.energy, (logits("logits_in"),), "energy_in"),
            (losses.energy, (logits("logits_out"),), "energy_out"),
        ]
        for function, arguments, expected in cases:
            np.testing.assert_allclose(self.variant(function)(*arguments), GOLDEN[expected], rtol=1e-5)

    @chex.variants(with_jit=True, without_jit=True)
    def test_literal_values(self):
        even = jnp.zeros((1, 4))
        np.testing.assert_allclose(
            self.variant(losses.cross_entropy)(even, jnp.zeros(1, jnp.int32)), [np.log(4)], rtol=1e-6
        )
        np.testing.assert_allclose(self.variant(losses.uniform_cross_entropy)(even), [np.log(4)], rtol=1e-6)
        np.testing.assert_allclose(self.variant(losses.energy)(even), [-np.log(4)], rtol=1e-6)


class Objectives(parameterized.TestCase):
    @parameterized.parameters(
        (losses.outlier_exposure, "in", "out", {"ood_weight": 0.5}, "oe_paper"),
        (losses.outlier_exposure_class_mean, "in", "out", {"ood_weight": 0.5}, "oe_released_code"),
        (
            losses.energy_margins,
            "in",
            "out",
            {"ood_weight": 0.1, "margin_in": -4.0, "margin_ood": -2.0},
            "energy_ft",
        ),
        (losses.extra_class, "in_extra", "out_extra", {"ood_weight": 0.3}, "extra_class_concatenated_mean"),
    )
    def test_reference_values(self, objective, inside, outside, numbers, expected):
        value = objective(logits(f"logits_{inside}"), LABELS, logits(f"logits_{outside}"), **numbers)
        np.testing.assert_allclose(value, GOLDEN[expected], rtol=1e-5)

    @parameterized.parameters(*WITH_OUTLIERS)
    def test_the_ood_term_is_a_mean_over_the_ood_images(self, objective):
        outside = logits("logits_out")
        once, twice = (
            objective(logits("logits_in"), LABELS, ood, ood_weight=0.3, **margins(objective))
            for ood in (outside, jnp.tile(outside, (2, 1)))
        )
        np.testing.assert_allclose(twice, once, rtol=1e-5)

    @parameterized.parameters(*WITH_OUTLIERS)
    def test_the_ood_weight_counts_what_outliers_add(self, objective):
        arguments = (logits("logits_in"), LABELS, logits("logits_out"))
        none, one, three = (objective(*arguments, ood_weight=w, **margins(objective)) for w in (0.0, 1.0, 3.0))
        np.testing.assert_allclose(three - none, 3 * (one - none), rtol=1e-5)
        half = 0.5 if objective is losses.extra_class else 1.0
        np.testing.assert_allclose(none, half * losses.classification(*arguments), rtol=1e-6)

    def test_the_whole_is_the_papers_sum_and_the_half_is_the_released_codes(self):
        inside, outside = (np.asarray(GOLDEN[f"logits_{name}_extra"], np.float64) for name in ("in", "out"))
        rows = np.arange(len(inside))
        ce_in = -scipy.special.log_softmax(inside, axis=1)[rows, GOLDEN["labels"]].mean()
        ce_ood = -scipy.special.log_softmax(outside, axis=1)[:, -1].mean()
        expected = ce_in + 0.3 * ce_ood
        np.testing.assert_allclose(GOLDEN["extra_class_paper"], expected, rtol=1e-6)
        arguments = (logits("logits_in_extra"), LABELS, logits("logits_out_extra"))
        np.testing.assert_allclose(losses.extra_class_whole(*arguments, ood_weight=0.3), expected, rtol=1e-6)
        np.testing.assert_allclose(losses.extra_class(*arguments, ood_weight=0.3), expected / 2, rtol=1e-6)

    def test_recipes_of_outlier_exposure_differ_by_exactly_the_number_of_classes(self):
        arguments = (logits("logits_in"), LABELS, logits("logits_out"))
        without = losses.classification(*arguments)
        paper = losses.outlier_exposure(*arguments, ood_weight=0.5) - without
        released = losses.outlier_exposure_class_mean(*arguments, ood_weight=0.5) - without
        np.testing.assert_allclose(paper / released, 5.0, rtol=1e-5)

    def test_margins_are_the_right_way_round(self):
        in_domain = losses.squared_hinge(jnp.array([-30.0]) - (-25.0))
        ood = losses.squared_hinge(-7.0 - jnp.array([-30.0]))
        np.testing.assert_array_equal(in_domain, [0.0])
        np.testing.assert_array_equal(ood, [529.0])

    @parameterized.parameters(*WITH_OUTLIERS)
    def test_gradients_are_finite_for_large_logits(self, objective):
        for scale in (1.0, 1e4):
            inside, outside = scale * logits("logits_in"), scale * logits("logits_out")
            gradients = jax.grad(
                lambda a, b: objective(a, LABELS, b, ood_weight=0.5, **margins(objective)), argnums=(0, 1)
            )(inside, outside)
            chex.assert_tree_all_finite(gradients)

    def test_gradient_of_the_extra_class_agrees_with_finite_differences(self):
        chex.assert_numerical_grads(
            lambda a, b: losses.extra_class(jnp.asarray(a), LABELS, jnp.asarray(b), ood_weight=0.3),
            (logits("logits_in_extra"), logits("logits_out_extra")),
            order=1,
            atol=2e-3,
            rtol=2e-3,
        )


@pytest.mark.parametrize("label", [0, 4])
def test_cross_entropy_of_a_probability_that_rounds_to_one_is_not_zero(label):
    # softmax gives exactly 1 in float32; the loss of the other class must still be the logit difference.
    sharp = jnp.zeros((1, 5)).at[0, 0].set(40.0)
    value = losses.cross_entropy(sharp, jnp.array([label]))
    np.testing.assert_allclose(value, [4 * np.exp(-40.0) if label == 0 else 40.0], atol=1e-6)


@pytest.mark.parametrize("label", [-1, -4, 4, 9])
def test_a_label_that_is_no_class_makes_the_loss_nan(label):
    # JAX would take −1 for the last logit, the OOD class's, and what is too large for the largest.
    logits, labels = jnp.arange(8.0).reshape(2, 4), jnp.array([label, 0])
    for found in (losses.cross_entropy(logits, labels), jax.jit(losses.cross_entropy)(logits, labels)):
        np.testing.assert_array_equal(np.isnan(found), [True, False])
    assert np.isnan(losses.mean_cross_entropy(logits, labels))
    assert np.isnan(losses.mean_cross_entropy(logits, labels, jnp.ones(4)))


def test_a_class_without_a_weight_makes_the_loss_nan():
    logits, labels = jnp.ones((4, 4)), jnp.arange(4)
    assert np.isnan(losses.mean_cross_entropy(logits, labels, jnp.ones(3)))
    assert np.isfinite(losses.mean_cross_entropy(logits, labels, jnp.ones(4)))


@pytest.mark.parametrize(
    "loss", [lambda z: losses.cross_entropy(z, LABELS), losses.uniform_cross_entropy, losses.energy]
)
def test_half_precision_logits_are_computed_in_float32(loss):
    half = logits("logits_in").astype(jnp.bfloat16)
    found = loss(half)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, loss(half.astype(jnp.float32)))
