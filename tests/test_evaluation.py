"""Predictions that do not depend on batches, metrics of few images; its errors are in `tests/bad_inputs`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import sklearn.metrics

from preload_jax import evaluation
from preload_jax.training import loop as training
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


@pytest.mark.parametrize("has_ood_class", [True, False])
def test_metrics_are_those_of_scikit_learn_and_float64(has_ood_class):
    rng = np.random.default_rng(0)
    logits, logits_ood = (2 * rng.normal(size=(n, 4)).astype(np.float32) for n in (101, 60))
    num_classes = 4 - has_ood_class
    labels = rng.integers(0, num_classes, 101)
    p, p_ood = (scipy.special.softmax(x.astype(np.float64), axis=1)[:, :num_classes] for x in (logits, logits_ood))
    found = evaluation.in_domain_metrics(logits, labels, has_ood_class=has_ood_class)
    correct, confidence = logits.argmax(axis=1) == labels, p.max(axis=1)
    assert (found["accuracy"], found["size"]) == (pytest.approx(correct.mean()), 101)
    assert found["brier"] == pytest.approx(((p - np.eye(num_classes)[labels]) ** 2).sum(axis=1).mean(), rel=1e-5)
    assert found["log_likelihood"] == pytest.approx(
        -sklearn.metrics.log_loss(labels, p / p.sum(axis=1, keepdims=True)) + np.log(p.sum(axis=1)).mean(), rel=1e-5
    )
    assert found["mmc"] == pytest.approx(confidence.mean(), rel=1e-5)
    # The released code's leaves out what is most confident.
    kept = confidence < 14 / 15
    both = [_calibration_error(p[rows], labels[rows]) for rows in (np.full(101, True), kept)]
    for released_code_ece, expected in zip((False, True), both, strict=True):
        value = evaluation.in_domain_metrics(
            logits, labels, has_ood_class=has_ood_class, released_code_ece=released_code_ece
        )["ece"]
        assert value == pytest.approx(expected, rel=1e-4)
    assert both[0] != pytest.approx(both[1], rel=1e-2)
    # 101 scores: the 5th percentile is one of them, so that nothing is interpolated.
    scores, scores_ood = rng.normal(1, 1, 101).astype(np.float32), rng.normal(0, 1, 60).astype(np.float32)
    ood = evaluation.ood_metrics(
        scores, scores_ood, logits_ood=logits_ood, has_ood_class=has_ood_class, ood_positive=True
    )
    is_in, values = np.arange(161) < 101, np.concatenate([scores, scores_ood])
    assert ood["fpr95"] == pytest.approx((scores_ood >= np.sort(scores)[5]).mean())
    assert ood["auroc"] == pytest.approx(sklearn.metrics.roc_auc_score(is_in, values), abs=1e-6)
    assert ood["fpr95_ood_positive"] == pytest.approx((scores <= np.quantile(scores_ood, 0.95)).mean())
    for name, positive, given in (("aupr", is_in, values), ("aupr_ood_positive", ~is_in, -values)):
        precision, recall, _ = sklearn.metrics.precision_recall_curve(positive, given)
        assert ood[name] == pytest.approx(sklearn.metrics.auc(recall, precision), abs=1e-5)
    assert (ood["mmc"], ood["size"]) == (pytest.approx(p_ood.max(axis=1).mean(), rel=1e-5), 60)


def _calibration_error(p, labels):
    confidence = p.max(axis=1)
    gap = (p.argmax(axis=1) == labels) - confidence
    return np.abs(np.bincount(np.ceil(confidence * 15).astype(int) - 1, gap, minlength=15)).sum() / len(labels)


def test_scores_are_the_methods():
    rng = np.random.default_rng(0)
    logits, features = rng.normal(size=(5, 4)).astype(np.float32), rng.normal(size=(5, 2))
    for name in ("preload", "energy_ft"):
        method = toy.method(name)
        np.testing.assert_allclose(evaluation.score(method, logits), method.score(jnp.asarray(logits)), rtol=1e-6)
    fitted = detectors.fit("ddu", detectors.Outputs(rng.normal(size=(20, 2))), np.arange(20) % 2)
    found = evaluation.score(toy.method("ddu"), logits, features=features, detector=fitted)
    np.testing.assert_array_equal(found, detectors.score(fitted, detectors.Outputs(features)))


def test_float64_images_are_taken_as_float32(network):
    images = IMAGES / 255
    np.testing.assert_array_equal(
        evaluation.predict(*network, images)[0], evaluation.predict(*network, images.astype(np.float32))[0]
    )
