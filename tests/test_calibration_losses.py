"""Label smoothing, mixup, the focal loss, MMCE and low confidence: against other toolkits, equations and hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from preload_jax import losses

# Drawn once; the numbers below are what other toolkits make of them.
Z = np.array(
    [
        [0.251, -0.264, 1.281, 0.21], [-1.071, 0.723, 2.608, 1.894], [-1.407, -2.531, -1.247, 0.083],
        [-4.65, -0.438, -2.492, -1.465], [-1.089, -0.633, 0.823, 2.085], [-0.257, 2.733, -1.33, 0.703],
        [1.807, 0.188, -1.487, -1.843], [-0.915, 0.44, -2.019, -0.418], [-0.318, 1.082, 0.429, 0.711],
        [-1.308, -0.259, 1.568, 2.987], [-2.518, 3.028, 2.692, 1.563], [0.529, -0.628, 2.916, 3.921],
    ]
)  # fmt: skip
Y = np.array([0, 0, 1, 3, 1, 3, 1, 0, 3, 3, 0, 0])
LOGITS, LABELS = jnp.asarray(Z, jnp.float32), jnp.asarray(Y, jnp.int32)


def test_label_smoothing_is_that_of_torch():
    # torch 2.13, CrossEntropyLoss(label_smoothing=0.1).
    np.testing.assert_allclose(
        losses.label_smoothing(LOGITS, LABELS, label_smoothing=0.1), 2.5276481475935557, rtol=1e-6
    )
    whole = losses.label_smoothing(LOGITS, LABELS, label_smoothing=0.0)
    np.testing.assert_array_equal(whole, losses.classification(LOGITS, LABELS))


# torch-uncertainty 0.13.0, FocalLoss(gamma).
@pytest.mark.parametrize(
    ("gamma", "expected"), [(0.0, 2.5729064809268887), (1.0, 2.366391264155489), (3.0, 2.068201751533803)]
)
def test_the_focal_loss_is_that_of_torch_uncertainty(gamma, expected):
    np.testing.assert_allclose(losses.focal(LOGITS, LABELS, focal_gamma=gamma), expected, rtol=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 3.0])
def test_the_focal_loss_and_its_slope_are_finite_where_a_prediction_is_certain(gamma):
    logits, labels = jnp.array([[200.0, 0.0], [0.0, 200.0]]), jnp.array([0, 0])
    value, slope = jax.value_and_grad(lambda z: losses.focal(z, labels, focal_gamma=gamma))(logits)
    # The first example is right and costs nothing, the second costs its cross-entropy.
    np.testing.assert_allclose(value, 100.0, rtol=1e-6)
    np.testing.assert_allclose(slope, [[0.0, 0.0], [-0.5, 0.5]], atol=1e-6)


def test_mmce_is_that_of_netcal():
    # netcal 1.4.0, metrics.confidence.MMCE.
    np.testing.assert_allclose(jnp.sqrt(losses.squared_mmce(LOGITS, LABELS)), 0.48205595342923324, rtol=1e-5)


def test_mmce_by_hand():
    # One right and one wrong prediction, of confidence 1/2 and (by ln 3) 3/4.
    logits, labels = jnp.array([[0.0, 0.0], [jnp.log(3.0), 0.0]]), jnp.array([0, 1])
    kernel = np.exp(-0.25 / 0.4)
    expected = (0.5**2 + 0.75**2 - 2 * 0.5 * 0.75 * kernel) / 4
    np.testing.assert_allclose(losses.squared_mmce(logits, labels), expected, rtol=1e-5)
    ce = (np.log(2.0) + np.log(4.0)) / 2
    np.testing.assert_allclose(losses.mmce(logits, labels, mmce_weight=3.0), ce + 3.0 * np.sqrt(expected), rtol=1e-5)


def test_mmces_slope_is_finite_where_the_penalty_is_0():
    # Certain and right.
    logits, labels = jnp.array([[300.0, 0.0]]), jnp.array([0])
    slope = jax.grad(lambda z: losses.mmce(z, labels, mmce_weight=2.0))(logits)
    assert bool(jnp.isfinite(slope).all())


def test_mixup_is_the_cross_entropy_to_the_mixed_labels():
    partners = Y[::-1].copy()
    mixed = 0.7 * np.eye(4)[Y] + 0.3 * np.eye(4)[partners]
    expected = -(mixed * log_softmax(Z, axis=1)).sum(axis=1).mean()
    found = losses.mixup(LOGITS, LABELS, partners=jnp.asarray(partners, jnp.int32), share=0.7)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_low_confidence_is_the_mean_of_the_largest_log_probability():
    expected = -log_softmax(Z, axis=1)[np.arange(12), Y].mean() + 0.3 * np.log(softmax(-Z, axis=1).max(axis=1)).mean()
    np.testing.assert_allclose(losses.low_confidence(LOGITS, LABELS, -LOGITS, ood_weight=0.3), expected, rtol=1e-5)
    # No lower than −λ log K, where all classes are alike.
    least = losses.low_confidence(LOGITS, LABELS, jnp.zeros((3, 4))) - losses.classification(LOGITS, LABELS)
    np.testing.assert_allclose(least, -np.log(4.0), rtol=1e-5)
