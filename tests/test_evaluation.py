"""Predictions that do not depend on batches, metrics of few images; its errors are in `tests/bad_inputs`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import evaluation, training
from tests import toy


@pytest.fixture(scope="module")
def network():
    model = toy.model()
    return model, training.init_variables(model, toy.SHAPE, key=jax.random.key(0))


IMAGES = np.random.default_rng(0).integers(0, 256, (7, *toy.SHAPE), np.uint8)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 500])
def test_predictions_do_not_depend_on_the_batch(network, batch_size):
    model, variables = network
    logits, features = evaluation.predict(model, variables, IMAGES, batch_size=batch_size, features=True)
    whole, whole_features = model.apply(variables, jnp.asarray(IMAGES, jnp.float32) / 255, features=True)
    assert (logits.shape, logits.dtype) == ((7, 4), np.float32)
    np.testing.assert_allclose(logits, whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(features, whole_features, rtol=1e-5, atol=1e-6)


def test_bytes_and_floats_are_the_same_images(network):
    as_bytes, _ = evaluation.predict(*network, IMAGES)
    as_floats, features = evaluation.predict(*network, (IMAGES / np.float32(255)).astype(np.float32))
    np.testing.assert_allclose(as_bytes, as_floats, atol=1e-6)
    assert features is None


def test_one_image(network):
    logits, _ = evaluation.predict(*network, IMAGES[:1])
    right = int(logits[0, :3].argmax())
    found = evaluation.in_domain_metrics(logits, np.array([right]), has_ood_class=True)
    probability = np.exp(logits[0, right] - np.log(np.exp(logits[0]).sum()))
    assert found["size"] == 1
    assert found["mmc"] == pytest.approx(probability, rel=1e-5)
    # Right, unless the OOD class is the largest.
    assert found["accuracy"] == float(logits[0].argmax() == right)
    assert found["ece"] == pytest.approx(1 - probability, rel=1e-5)
    assert found["log_likelihood"] == pytest.approx(np.log(probability), rel=1e-5)
    scores = np.zeros(1, np.float32)
    ood = evaluation.ood_metrics(scores, scores, logits_ood=logits, has_ood_class=True)
    assert (ood["auroc"], ood["fpr95"], ood["size"]) == (0.5, 1.0, 1)


def test_nan_scores_raise_with_the_count():
    bad, good = np.array([np.nan, 1.0], np.float32), np.array([0.0], np.float32)
    logits = np.zeros((1, 4), np.float32)
    with pytest.raises(ValueError, match="1 of 2 in-domain scores are NaN"):
        evaluation.ood_metrics(bad, good, logits_ood=logits, has_ood_class=True)
