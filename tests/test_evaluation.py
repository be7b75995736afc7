"""Scores, and metrics against scikit-learn and float64; the errors are in `tests/bad_inputs`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import sklearn.metrics

from preload_jax import detectors, evaluation, scores
from preload_jax.devices import forward
from preload_jax.evaluation import Scorer
from preload_jax.training import loop as training
from tests import toy


@pytest.fixture(scope="module")
def network():
    model = toy.model()
    return model, training.init_variables(model, toy.SHAPE, key=jax.random.key(0))


IMAGES = np.random.default_rng(0).integers(0, 256, (7, *toy.SHAPE), np.uint8)


def test_one_image(network):
    logits, _ = forward.predict(*network, IMAGES[:1])
    right = int(logits[0, :3].argmax())
    found = evaluation.in_domain_metrics(logits, np.array([right]), has_ood_class=True)
    probability = np.exp(logits[0, right] - np.log(np.exp(logits[0]).sum()))
    assert found["size"] == 1
    assert found["mmc"] == pytest.approx(probability, rel=1e-5)
    # Right, unless the OOD class is the largest.
    assert found["accuracy"] == float(logits[0].argmax() == right)
    assert found["ece"] == pytest.approx(1 - probability, rel=1e-5)
    assert found["log_likelihood"] == pytest.approx(np.log(probability), rel=1e-5)
    one = np.zeros(1, np.float32)
    ood = evaluation.ood_metrics(one, one, logits_ood=logits, has_ood_class=True)
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
    scores_in, scores_ood = rng.normal(1, 1, 101).astype(np.float32), rng.normal(0, 1, 60).astype(np.float32)
    ood = evaluation.ood_metrics(
        scores_in, scores_ood, logits_ood=logits_ood, has_ood_class=has_ood_class, ood_positive=True
    )
    is_in, values = np.arange(161) < 101, np.concatenate([scores_in, scores_ood])
    assert ood["fpr95"] == pytest.approx((scores_ood >= np.sort(scores_in)[5]).mean())
    assert ood["auroc"] == pytest.approx(sklearn.metrics.roc_auc_score(is_in, values), abs=1e-6)
    assert ood["fpr95_ood_positive"] == pytest.approx((scores_in <= np.quantile(scores_ood, 0.95)).mean())
    for name, positive, given in (("aupr", is_in, values), ("aupr_ood_positive", ~is_in, -values)):
        precision, recall, _ = sklearn.metrics.precision_recall_curve(positive, given)
        assert ood[name] == pytest.approx(sklearn.metrics.auc(recall, precision), abs=1e-5)
    assert (ood["mmc"], ood["size"]) == (pytest.approx(p_ood.max(axis=1).mean(), rel=1e-5), 60)


def _calibration_error(p, labels):
    confidence = p.max(axis=1)
    gap = (p.argmax(axis=1) == labels) - confidence
    return np.abs(np.bincount(np.ceil(confidence * 15).astype(int) - 1, gap, minlength=15)).sum() / len(labels)


@pytest.mark.parametrize("rule", ["max_probability", "in_domain_probability", "negative_energy"])
def test_a_scorer_gives_logits_and_its_rules_score(network, rule):
    outputs = Scorer(*network, True, rule)(IMAGES, batch_size=3)
    logits, _ = forward.predict(*network, IMAGES)
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs.scores, getattr(scores, rule)(jnp.asarray(logits)), rtol=1e-4, atol=1e-5)


def test_a_scorers_rule_without_a_name_goes_with_the_ood_class(network):
    for has_ood_class, rule in ((True, "in_domain_probability"), (False, "max_probability")):
        found = Scorer(*network, has_ood_class)(IMAGES).scores
        np.testing.assert_array_equal(found, Scorer(*network, has_ood_class, rule)(IMAGES).scores)


def test_a_fitted_detector_scores_features(network):
    images = np.random.default_rng(1).integers(0, 256, (40, *toy.SHAPE), np.uint8)
    _, features = forward.predict(*network, images, features=True)
    fitted = detectors.fit("ddu", detectors.Outputs(features), np.arange(40) % 2, num_classes=2)
    found = Scorer(*network, True, fitted)(images)
    np.testing.assert_allclose(found.scores, detectors.score(fitted, detectors.Outputs(features)), rtol=1e-5)
    assert found.logits.shape == (40, 4)


def test_an_evaluation_is_the_metrics_of_its_scores_and_makes_sets_when_their_turn_comes(network):
    scorer, labels, order = Scorer(*network, True), np.arange(7) % 3, []
    near, far = IMAGES[::-1].copy(), 255 - IMAGES

    def make(name, images):
        def load():
            order.append(name)
            return images

        return load

    results, found = evaluation.evaluate(
        scorer,
        IMAGES,
        labels,
        {"near": make("near", near), "far": make("far", far)},
        on_set=lambda name, done: order.append((name, done)),
    )
    assert order == [("in_domain", 1), "near", ("near", 2), "far", ("far", 3)]
    logits = scorer(IMAGES).logits
    assert results["in_domain"] == evaluation.in_domain_metrics(logits, labels, has_ood_class=True)
    for name, images in (("near", near), ("far", far)):
        np.testing.assert_array_equal(found[name], scorer(images).scores)
        expected = evaluation.ood_metrics(
            found["in_domain"], found[name], logits_ood=scorer(images).logits, has_ood_class=True
        )
        assert results["ood"][name] == expected
