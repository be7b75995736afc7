"""Scores that 32 bits cannot tell apart, sums of very many values, and memory."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preload_jax import metrics

BIG = 2**60
# (in-domain, OOD) of each type, all above one another, and equal once narrowed to 32 bits or made float64.
CLOSE = [
    (np.array([1 + 2e-9, 1 + 3e-9]), np.array([1.0, 1 + 1e-9])),
    (np.array([BIG + 2, BIG + 3]), np.array([BIG, BIG + 1])),
    (np.array([-BIG, -BIG + 1]), np.array([-BIG - 2, -BIG - 1])),
    (np.array([2**64 - 1, 2**64 - 2], np.uint64), np.array([2**64 - 3, 2**64 - 4], np.uint64)),
    (np.array([2**63 + 1, 2**63 + 2], np.uint64), np.array([2**63 - 1, -(2**63)])),
    (np.array([2**53 + 1, 2**53 + 3]), np.array([2.0**53, -np.inf])),
    (np.array([2**24 + 1, 2**24 + 3], np.int32), np.array([2**24, 2**24 - 1], np.float32)),
    (np.array([1e300, np.inf]), np.array([1e299, -1e300])),
]


@pytest.mark.parametrize(("high", "low"), CLOSE)
def test_scores_that_differ_never_tie(high, low):
    for scores_in, scores_ood, expected in ((high, low, (0.0, 1.0, 1.0)), (low, high, (1.0, 0.0, 0.25 + 1 / 6))):
        for ood_positive in (False, True):
            found = (
                metrics.fpr_at_tpr(scores_in, scores_ood, ood_positive=ood_positive),
                metrics.auroc(scores_in, scores_ood),
                metrics.aupr(scores_in, scores_ood, ood_positive=ood_positive),
            )
            # 1/3 · ½(0 + 1)... by hand: precisions 0 above, 1/3 and 1/2 at the two positives.
            np.testing.assert_allclose(found[:2], expected[:2], rtol=0, atol=0)
            np.testing.assert_allclose(found[2], expected[2] if expected[1] else _worst_aupr(), rtol=1e-15)


def _worst_aupr():
    """Two positives below two negatives: precision 0 above both, 1/3 and then 1/2."""
    return 0.5 * (1 / 2 + 1 / 3) / 2 + 0.5 * (1 / 3 + 0) / 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
    st.sampled_from([0, 1, 2**24, 2**53, BIG, -BIG]),
    st.sampled_from([0.95, 0.8, 0.5]),
)
def test_integers_far_from_0_are_like_those_near_it(scores_in, scores_ood, offset, tpr):
    near = np.array(scores_in), np.array(scores_ood)
    far = near[0] + offset, near[1] + offset
    for metric in (metrics.auroc, metrics.aupr, lambda a, b: metrics.fpr_at_tpr(a, b, tpr=tpr)):
        assert metric(*far) == metric(*near)
    threshold = metrics.threshold_at_tpr(far[0], tpr=tpr)
    assert threshold - offset == np.ceil(np.round(np.quantile(near[0], 1 - tpr), 6))
    assert metrics.fpr_at_tpr(*far, tpr=tpr) == np.mean(far[1] >= threshold)
    mirrored = metrics.fpr_at_tpr(*far, tpr=tpr, ood_positive=True)
    assert mirrored == metrics.fpr_at_tpr(-near[1], -near[0], tpr=tpr)


@pytest.mark.parametrize("offset", [0, 2**24, 2**31 - 10, -(2**31)])
def test_integers_under_jit(offset):
    rng = np.random.default_rng(0)
    near = rng.integers(2, 9, 40).astype(np.int32), rng.integers(0, 8, 30).astype(np.int32)
    far = [jnp.asarray(x + np.int32(offset)) for x in near]
    for metric in (metrics.auroc, metrics.aupr, metrics.fpr_at_tpr):
        np.testing.assert_allclose(jax.jit(metric)(*far), metric(*near), rtol=1e-6)
    mirrored = jax.jit(lambda a, b: metrics.fpr_at_tpr(a, b, ood_positive=True))(*far)
    np.testing.assert_allclose(mirrored, metrics.fpr_at_tpr(-near[1], -near[0]), rtol=1e-6)
    wide = jnp.array([-(2**31), 2**31 - 1], jnp.int32)
    assert int(jax.jit(metrics.threshold_at_tpr)(wide)) == pytest.approx(-(2**31) + 0.05 * (2**32 - 1), abs=512)


def test_thresholds_keep_the_scores_precision():
    scores = np.array([1 + 2e-9, 1 + 3e-9, 1 + 4e-9])
    assert 1 + 2e-9 <= metrics.threshold_at_tpr(scores) < 1 + 3e-9
    assert metrics.threshold_at_tpr(scores, tpr=0.5) == 1 + 3e-9
    for kind in (np.float32, np.float64):
        rng = np.random.default_rng(0)
        scores_in, scores_ood = rng.normal(size=50).astype(kind), rng.normal(size=50).astype(kind)
        threshold = metrics.threshold_at_tpr(scores_in)
        assert threshold.dtype == kind
        assert metrics.fpr_at_tpr(scores_in, scores_ood) == np.mean(scores_ood >= float(threshold))


def test_conversions_keep_the_scores_precision():
    scores, is_ood = np.array([1 + 2e-9, 1 + 3e-9]), np.array([False, True])
    scores_in, scores_ood = metrics.from_ood_scores(scores, is_ood)
    assert (scores_in[0], scores_ood[0]) == (-1 - 2e-9, -1 - 3e-9)
    np.testing.assert_array_equal(metrics.to_ood_scores(scores_in, scores_ood)[0], scores)
    integers = np.array([BIG + 1, BIG])
    np.testing.assert_array_equal(metrics.to_ood_scores(integers[:1], integers[1:])[0], -integers)
    for bad in (np.array([2**63], np.uint64), np.array([-(2**63)])):
        with pytest.raises(ValueError, match="no negative in int64"):
            metrics.from_ood_scores(bad, np.array([True]))


def test_other_types_are_refused():
    for bad in (np.array([1j]), np.array(["a"]), np.array([None])):
        with pytest.raises(ValueError, match="expected real numbers"):
            metrics.check_values("scores", bad)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["numpy", "jit"])
@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (metrics.expected_calibration_error, 0.03),
        (metrics.brier_score, 2 * 0.03**2),
        (lambda negative, labels: metrics.log_likelihood(-4 * negative, labels), -3.88),
        (metrics.accuracy, 1.0),
        (lambda probabilities, labels: metrics.mean_max_confidence(probabilities), 0.97),
    ],
    ids=["ece", "brier", "log_likelihood", "accuracy", "mmc"],
)
def test_twenty_million_terms(wrap, metric, expected):
    # One float32 after the other, a sum stalls long before: the calibration error was 0.0262.
    n = 20_000_000
    probabilities = np.broadcast_to(np.array([0.97, 0.03], np.float32), (n, 2))
    found = wrap(metric)(probabilities, np.zeros(n, np.int32))
    # The calibration error is a difference of numbers next to 1: four of their units in the last place.
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=4 * np.finfo(np.float32).eps)


def test_all_metrics_of_logits_are_those_of_their_softmax():
    rng = np.random.default_rng(0)
    logits = (3 * rng.normal(size=(3000, 6))).astype(np.float32)
    labels = rng.integers(0, 5, 3000)
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact).sum(axis=1, keepdims=True))
    log_probabilities = exact[:, :5]
    probabilities = np.exp(log_probabilities)
    found = metrics.classification(logits, labels, has_ood_class=True)
    released = metrics.classification(logits, labels, has_ood_class=True, released_code_ece=True)
    expected = {
        "accuracy": np.mean(logits.argmax(axis=1) == labels),
        "ece": metrics.expected_calibration_error(probabilities, labels),
        "brier": ((probabilities - np.eye(5)[labels]) ** 2).sum(axis=1).mean(),
        "log_likelihood": log_probabilities[np.arange(3000), labels].mean(),
        "mmc": probabilities.max(axis=1).mean(),
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(
        released["ece"], metrics.expected_calibration_error_released_code(probabilities, labels), rtol=1e-12
    )
    np.testing.assert_allclose(
        metrics.mean_max_confidence_of_logits(logits, has_ood_class=True), expected["mmc"], rtol=1e-12
    )


def test_logits_without_a_softmax_or_with_labels_of_the_ood_class_are_refused():
    labels = np.array([0])
    for bad in ([np.inf, 0.0], [-np.inf, -np.inf]):
        with pytest.raises(ValueError, match="no softmax"):
            metrics.classification(np.array([bad]), labels, has_ood_class=False)
    with pytest.raises(ValueError, match="1 of 2 logits are NaN"):
        metrics.mean_max_confidence_of_logits(np.array([[np.nan, 0.0]]), has_ood_class=False)
    with pytest.raises(ValueError, match="labels run from 1 to 1; expected 0 to 0"):
        metrics.classification(np.zeros((1, 2)), np.array([1]), has_ood_class=True)
    with pytest.raises(ValueError, match="1 of 3 logits are NaN"):
        metrics.classification(np.array([[0.0, 0.0, np.nan]]), labels, has_ood_class=True)


MEMORY = """
import resource
import numpy as np
from preload_jax import metrics

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

logits = np.zeros((60_000, 1000), np.float32)
logits[:] = np.linspace(0, 1, 1000, dtype=np.float32)
labels = np.arange(60_000) % 1000
small = logits[:100], labels[:100]
metrics.classification(*small, has_ood_class=True), metrics.brier_score(*small)
before = peak()
metrics.classification(logits, labels % 999, has_ood_class=True)
metrics.mean_max_confidence_of_logits(logits, has_ood_class=False)
for metric in (
    metrics.accuracy, metrics.expected_calibration_error, metrics.brier_score
):
    metric(logits, labels)
metrics.mean_max_confidence(logits)
logits -= 10
metrics.log_likelihood(logits, labels)
print((peak() - before) / logits.nbytes)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no resource module")
def test_many_classes_need_the_memory_of_a_few_blocks():
    found = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    # 240 MB of logits, blocks of 8 MB in float64; the whole array in float64 would be 2.
    assert float(found.stdout) < 0.3
