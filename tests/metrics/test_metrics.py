"""Metrics against scikit-learn, NumPy and the reference values; ties, infinities, NaN, single and empty inputs."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from preload_jax import metrics
from preload_jax.errors import UserError
from tests.golden.rebuild import REFERENCE

GOLDEN = REFERENCE["metrics"]
SCORES_IN = jnp.asarray(GOLDEN["scores_in"], jnp.float32)
SCORES_OOD = jnp.asarray(GOLDEN["scores_out"], jnp.float32)
PROBABILITIES = jnp.asarray(GOLDEN["probs"], jnp.float32)
LABELS = jnp.asarray(GOLDEN["labels"])
RANKING = [metrics.fpr_at_tpr, metrics.auroc, metrics.aupr]
JITTED = {metric.__name__: jax.jit(metric) for metric in RANKING}
# Few distinct values, so that ties are common, and now and then an infinity.
# Few sizes, so that each is compiled once.
SIZES = st.sampled_from([1, 2, 21, 40])
SCORES = hnp.arrays(
    np.float32,
    SIZES,
    elements=st.sampled_from([-np.inf, -3.5, -1.0, 0.0, 0.25, 1.0, 98.0, 98.5, 99.0, np.inf]),
)


class ReferenceValues(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    def test_released_code(self):
        cases = [
            (metrics.fpr_at_tpr, (SCORES_IN, SCORES_OOD), "fpr95"),
            (metrics.auroc, (SCORES_IN, SCORES_OOD), "auroc"),
            (metrics.aupr, (SCORES_IN, SCORES_OOD), "aupr_trapezoid"),
            (metrics.expected_calibration_error, (PROBABILITIES, LABELS), "ece15"),
            (metrics.expected_calibration_error_released_code, (PROBABILITIES, LABELS), "ece15_released_code"),
            (metrics.brier_score, (PROBABILITIES, LABELS), "brier_sum"),
            (metrics.log_likelihood, (jnp.log(PROBABILITIES), LABELS), "mean_loglik"),
        ]
        for function, arguments, name in cases:
            np.testing.assert_allclose(self.variant(function)(*arguments), GOLDEN[name], rtol=1e-5, err_msg=name)


@settings(max_examples=80, deadline=None)
@given(SCORES, SCORES)
def test_ranking_metrics_agree_with_scikit_learn(scores_in, scores_ood):
    labels = np.r_[np.ones(len(scores_in)), np.zeros(len(scores_ood))]
    # scikit-learn refuses infinities; ranks are all that counts.
    ranks = np.unique(np.r_[scores_in, scores_ood], return_inverse=True)[1].astype(float)
    a, b = jnp.asarray(scores_in), jnp.asarray(scores_ood)
    np.testing.assert_allclose(JITTED["auroc"](a, b), sklearn.metrics.roc_auc_score(labels, ranks), atol=2e-6)
    precision, recall, _ = sklearn.metrics.precision_recall_curve(labels, ranks)
    np.testing.assert_allclose(JITTED["aupr"](a, b), sklearn.metrics.auc(recall, precision), atol=2e-6)


def test_ood_as_the_positive_class_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    scores_in, scores_ood = rng.normal(1, 1, 201).astype(np.float32), rng.normal(0, 1, 101).astype(np.float32)
    scores, is_ood = metrics.to_ood_scores(scores_in, scores_ood)
    false, true, _ = sklearn.metrics.roc_curve(is_ood, scores, drop_intermediate=False)
    precision, recall, _ = sklearn.metrics.precision_recall_curve(is_ood, scores)
    a, b = jnp.asarray(scores_in), jnp.asarray(scores_ood)
    # 101 scores: the 5th percentile is one of them, so that nothing is interpolated.
    ours = jax.jit(lambda a, b: metrics.fpr_at_tpr(a, b, ood_positive=True))(a, b)
    np.testing.assert_allclose(ours, false[np.argmax(true >= 0.95)], atol=1e-6)
    np.testing.assert_allclose(metrics.aupr(a, b, ood_positive=True), sklearn.metrics.auc(recall, precision), atol=2e-6)
    np.testing.assert_allclose(metrics.auroc(a, b), sklearn.metrics.roc_auc_score(is_ood, scores), atol=2e-6)


def test_conversions_are_inverse_and_the_two_directions_mirror_each_other():
    rng = np.random.default_rng(1)
    scores, is_ood = rng.normal(size=50).astype(np.float32), rng.random(50) < 0.4
    a, b = metrics.from_ood_scores(scores, is_ood)
    back, mask = metrics.to_ood_scores(a, b)
    np.testing.assert_array_equal(back, np.r_[scores[~is_ood], scores[is_ood]])
    np.testing.assert_array_equal(mask, np.sort(is_ood))
    for metric in (metrics.fpr_at_tpr, metrics.aupr):
        assert metric(a, b, ood_positive=True) == metric(-b, -a)
        assert metric(a, b, ood_positive=True) != metric(a, b)
    share = metrics.fpr_at_tpr(a, b, tpr=0.7, ood_positive=True)
    assert share == metrics.fpr_at_tpr(-b, -a, tpr=0.7) != metrics.fpr_at_tpr(-b, -a)
    with pytest.raises(ValueError, match="2 of 2 OOD scores are NaN"):
        metrics.fpr_at_tpr(jnp.ones(3), jnp.full(2, jnp.nan), ood_positive=True)
    with pytest.raises(ValueError, match="1 of 2 OOD scores are NaN"):
        metrics.to_ood_scores(np.ones(3), np.array([0.0, np.nan]))


@settings(max_examples=40, deadline=None)
@given(SCORES)
def test_the_threshold_is_what_the_false_positive_rate_uses(scores_in):
    threshold = metrics.threshold_at_tpr(jnp.asarray(scores_in))
    assert np.mean(scores_in >= threshold) >= 0.95 - 1 / len(scores_in)
    finite = scores_in[np.isfinite(scores_in)]
    if len(finite) == len(scores_in):
        np.testing.assert_allclose(threshold, np.quantile(scores_in.astype(float), 0.05), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="tpr must lie between 0 and 1"):
        metrics.threshold_at_tpr(jnp.asarray(scores_in), tpr=1.0)


def test_a_threshold_between_two_scores_is_between_them():
    # Of 21 scores the second is the 5th percentile, to the bit, whatever comes after it.
    assert float(metrics.threshold_at_tpr(jnp.array([0.0, 1.0] + [jnp.inf] * 19))) == 1.0
    assert float(metrics.threshold_at_tpr(jnp.array([-jnp.inf, jnp.inf]))) == -jnp.inf
    # The difference of the two overflows.
    np.testing.assert_allclose(metrics.threshold_at_tpr(jnp.array([-3e38, 3e38])), -2.7e38, rtol=1e-6)
    # Between equal scores nothing is rounded: the same score is still accepted.
    for score in np.linspace(0.05, 0.15, 30, dtype=np.float32):
        assert float(metrics.fpr_at_tpr(jnp.full(7, score), jnp.full(1, score))) == 1.0


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float32, SIZES, elements=st.floats(-100, 100, width=32)),
    hnp.arrays(np.float32, SIZES, elements=st.floats(-100, 100, width=32)),
)
def test_fpr_uses_the_interpolated_quantile(scores_in, scores_ood):
    threshold = np.percentile(scores_in.astype(np.float64), 5)
    value = float(JITTED["fpr_at_tpr"](jnp.asarray(scores_in), jnp.asarray(scores_ood)))
    # A score within rounding of the threshold may fall on either side of it.
    slack = 1e-4
    low, high = np.mean(scores_ood >= threshold + slack), np.mean(scores_ood >= threshold - slack)
    assert low - 1e-6 <= value <= high + 1e-6


def test_values_to_hold():
    scores_in = jnp.array([0.9] * 19 + [0.1])
    assert float(metrics.fpr_at_tpr(scores_in, jnp.full(10, 0.5))) == 0.0
    close = jnp.linspace(98.0, 99.0, 1000)
    assert float(metrics.auroc(close[500:], close[:500])) == 1.0
    assert float(metrics.auroc(close[::2], close[1::2])) == pytest.approx(0.499, abs=1e-3)


def test_constant_scores_say_nothing():
    same = jnp.ones(7)
    assert float(metrics.auroc(same, same)) == 0.5
    assert float(metrics.fpr_at_tpr(same, same)) == 1.0
    # One threshold, which accepts all: precision ½ there and 1 at recall 0.
    assert float(metrics.aupr(same, same)) == pytest.approx(0.75)


def test_single_scores():
    high, low = jnp.array([2.0]), jnp.array([1.0])
    assert [float(metric(high, low)) for metric in RANKING] == [0.0, 1.0, 1.0]
    assert [float(metric(low, high)) for metric in RANKING] == [1.0, 0.0, 0.25]


def test_infinite_scores_rank_like_any_other():
    far = jnp.array([-jnp.inf, -jnp.inf, -3.0])
    assert float(metrics.fpr_at_tpr(jnp.array([1.0, 2.0, jnp.inf]), far)) == 0.0
    assert float(metrics.auroc(jnp.array([jnp.inf, 0.0]), far)) == 1.0
    # Where the threshold itself is -inf everything is accepted.
    assert float(metrics.fpr_at_tpr(jnp.array([-jnp.inf, 1.0]), far)) == 1.0


@pytest.mark.parametrize("metric", RANKING)
def test_nan_raises_with_the_count_and_is_nan_under_jit(metric):
    bad = jnp.array([1.0, jnp.nan, jnp.nan])
    good = jnp.array([0.0, 1.0])
    with pytest.raises(ValueError, match="2 of 3 in-domain scores are NaN"):
        metric(bad, good)
    with pytest.raises(ValueError, match="2 of 3 OOD scores are NaN"):
        metric(good, bad)
    assert np.isnan(jax.jit(metric)(bad, good))
    assert np.isnan(jax.jit(metric)(good, bad))


LABELLED = [
    metrics.accuracy,
    metrics.expected_calibration_error,
    metrics.expected_calibration_error_released_code,
    metrics.brier_score,
    metrics.log_likelihood,
]


@pytest.mark.parametrize(
    ("metric", "first", "second"),
    [(metric, SCORES_IN, SCORES_OOD) for metric in RANKING]
    + [(metric, PROBABILITIES, LABELS) for metric in LABELLED[:-1]]
    + [(metrics.log_likelihood, jnp.log(PROBABILITIES), LABELS)],
)
def test_a_function_under_jit_may_have_one_of_the_arrays_from_outside(metric, first, second):
    expected = metric(first, second)
    np.testing.assert_allclose(jax.jit(lambda x: metric(x, second))(first), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda x: metric(first, x))(second), expected, rtol=1e-6)
    bad = jnp.full_like(first, jnp.nan)
    with pytest.raises(ValueError, match="are NaN"):
        jax.jit(lambda x: metric(bad, x))(second)


@pytest.mark.parametrize("kind", ["uint8", "int8", "float16", "bfloat16"])
def test_scores_of_any_real_type_rank_as_in_float32(kind):
    scores_in, scores_ood = (jnp.array(values).astype(kind) for values in ([1, 2, 3, 100], [0, 1, 2, 5]))
    wide = scores_in.astype(jnp.float32), scores_ood.astype(jnp.float32)
    for metric in (metrics.fpr_at_tpr, metrics.aupr):
        for ood_positive in (False, True):
            value = metric(scores_in, scores_ood, ood_positive=ood_positive)
            assert value == metric(*wide, ood_positive=ood_positive)
    np.testing.assert_array_equal(metrics.to_ood_scores(scores_in, scores_ood)[0], -np.r_[wide])
    np.testing.assert_array_equal(
        metrics.from_ood_scores(np.asarray(scores_in), np.arange(4) == 0)[0], np.float32([-2, -3, -100])
    )


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_float32(kind):
    # Right half of the time, at a confidence of 0.75: all of it exact in half precision, but not a sum of 10,000 terms.
    probabilities = jnp.tile(jnp.array([0.75, 0.25], kind), (10_000, 1))
    labels = jnp.arange(10_000) % 2
    for metric, expected in (
        (metrics.expected_calibration_error, 0.25),
        (metrics.expected_calibration_error_released_code, 0.25),
        (metrics.brier_score, 0.625),
        (lambda negative, y: metrics.log_likelihood(-4.0 * negative, y), -2.0),
    ):
        value = metric(probabilities, labels)
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert metrics.mean_max_confidence(probabilities).dtype == jnp.float32


def test_a_threshold_of_nan_scores_is_refused_and_nan_under_jit():
    # Sorted, the NaN is the last of all, far from the percentile.
    bad = jnp.append(jnp.arange(40.0), jnp.nan)
    with pytest.raises(ValueError, match="1 of 41 in-domain scores are NaN"):
        metrics.threshold_at_tpr(bad)
    assert np.isnan(jax.jit(metrics.threshold_at_tpr)(bad))
    assert np.isnan(JITTED["fpr_at_tpr"](bad, bad[:40]))


@pytest.mark.parametrize("metric", RANKING)
def test_empty_input_raises(metric):
    with pytest.raises(ValueError, match="needs at least one value"):
        metric(jnp.zeros(0), jnp.ones(3))


def test_nan_probabilities_raise():
    bad = PROBABILITIES.at[0, 0].set(jnp.nan)
    for function in LABELLED:
        with pytest.raises(ValueError, match=r"1 of .* are NaN"):
            function(bad, LABELS)
    with pytest.raises(ValueError, match="are NaN"):
        metrics.mean_max_confidence(bad)


def test_every_confidence_has_a_bin():
    # All correct: the error is 1 - confidence, whatever the bin.
    for confidence in (0.95, 1.0, 14 / 15, 0.5):
        p = jnp.array([[confidence, 1 - confidence]])
        value = metrics.expected_calibration_error(p, jnp.array([0]))
        np.testing.assert_allclose(value, 1 - confidence, atol=1e-6)


def test_bins_hold_their_upper_edge():
    # (0, ½] and (½, 1]: one right at ½ and one wrong at ¾ are in two bins.
    p, labels = jnp.array([[0.5, 0.5], [0.75, 0.25]]), jnp.array([0, 1])
    np.testing.assert_allclose(metrics.expected_calibration_error(p, labels, num_bins=2), (0.5 + 0.75) / 2)
    # The first has 0 as well (of a network that is certain of the OOD class), the last what rounding puts above 1.
    for confidence in (0.0, np.nextafter(np.float32(1), np.float32(2))):
        value = metrics.expected_calibration_error(jnp.full((1, 2), confidence), jnp.array([1]))
        np.testing.assert_allclose(value, confidence)
    wrong = metrics.expected_calibration_error(jnp.array([[0.99, 0.01]]), jnp.array([1]), num_bins=20)
    np.testing.assert_allclose(wrong, 0.99, rtol=1e-6)


def test_the_released_codes_calibration_error_drops_14_15ths():
    edge = np.float32(14 / 15)
    p = jnp.array([[edge, 1 - edge], [1.0, 0.0]])
    assert float(metrics.expected_calibration_error_released_code(p, jnp.array([1, 1]))) == 0.0


def test_calibration_error_against_a_loop():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(5, 0.3), 4000).astype(np.float32)
    labels = rng.integers(0, 5, 4000)
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == labels
    expected = 0.0
    for low in range(15):
        inside = (confidence > low / 15) & (confidence <= (low + 1) / 15)
        if inside.any():
            expected += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    value = metrics.expected_calibration_error(jnp.asarray(p), jnp.asarray(labels))
    np.testing.assert_allclose(value, expected, atol=1e-5)


def test_predicting_the_ood_class_is_an_error():
    logits = jnp.array([[1.0, 0.0, 2.0], [1.0, 0.0, 0.0]])
    assert float(metrics.accuracy(logits, jnp.array([0, 0]))) == 0.5


def test_mean_of_the_largest_probabilities():
    np.testing.assert_allclose(metrics.mean_max_confidence(jnp.array([[0.1, 0.6], [0.3, 0.2]])), 0.45, rtol=1e-6)


def test_many_scores_keep_six_digits():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 1, 300_000).astype(np.float32), rng.normal(0, 1, 200_000).astype(np.float32)
    labels, values = np.r_[np.ones(len(a)), np.zeros(len(b))], np.r_[a, b]
    auroc = metrics.auroc(jnp.asarray(a), jnp.asarray(b))
    np.testing.assert_allclose(auroc, sklearn.metrics.roc_auc_score(labels, values), atol=1e-6)
    precision, recall, _ = sklearn.metrics.precision_recall_curve(labels, values)
    np.testing.assert_allclose(
        metrics.aupr(jnp.asarray(a), jnp.asarray(b)), sklearn.metrics.auc(recall, precision), atol=2e-5
    )


def test_options_are_checked():
    with pytest.raises(ValueError, match="tpr must lie between 0 and 1, both excluded, got 95"):
        metrics.fpr_at_tpr(SCORES_IN, SCORES_OOD, tpr=95.0)
    with pytest.raises(ValueError, match="num_bins must be at least 1"):
        metrics.expected_calibration_error(PROBABILITIES, LABELS, num_bins=0)


OF_LOGITS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32) * 5
TRUE = np.arange(20) % 3
OF_PROBABILITIES = [
    metrics.expected_calibration_error,
    metrics.expected_calibration_error_released_code,
    metrics.brier_score,
    metrics.adaptive_calibration_error,
    metrics.classwise_calibration_error,
    lambda p, y: metrics.mean_max_confidence(p),
]


@pytest.mark.parametrize("metric", OF_PROBABILITIES)
@pytest.mark.parametrize("library", [np.asarray, jnp.asarray])
def test_what_is_no_probability_is_refused(metric, library):
    right = np.asarray(jax.nn.softmax(OF_LOGITS))
    for values in (OF_LOGITS, np.log(right), 100 * right, right - 0.5, np.where(right > 0.9, np.inf, right)):
        with pytest.raises(UserError, match="expected numbers from 0 to 1"):
            metric(library(values), library(TRUE))
    # Of half precision, and without the column of an OOD class.
    for values in (right, right.astype(np.float16), right[:, :2]):
        assert np.isfinite(metric(library(values), library(TRUE % values.shape[1])))


@pytest.mark.parametrize("library", [np.asarray, jnp.asarray])
def test_what_is_no_log_probability_is_refused(library):
    right = np.asarray(jax.nn.softmax(OF_LOGITS))
    for values in (OF_LOGITS, right, np.zeros_like(right), 1e30 * OF_LOGITS):
        with pytest.raises(UserError, match="add up to more than 1"):
            metrics.log_likelihood(library(values), library(TRUE))
    for values in (np.log(right), np.log(right[:, :2])):
        expected = values[np.arange(20), TRUE % values.shape[1]].mean()
        assert metrics.log_likelihood(library(values), library(TRUE % values.shape[1])) == pytest.approx(expected)
    many = jnp.log(jnp.full((4, 1000), 1e-3)).astype(jnp.bfloat16)
    assert metrics.log_likelihood(many, jnp.arange(4)) == pytest.approx(np.log(1e-3), rel=0.01)
    assert metrics.log_likelihood(library(np.array([[0.0, -np.inf]])), library(np.array([0]))) == 0.0


def test_under_jit_values_are_not_looked_at():
    assert np.isfinite(jax.jit(metrics.brier_score)(OF_LOGITS, TRUE))
    assert np.isfinite(jax.jit(metrics.log_likelihood)(OF_LOGITS, TRUE))


@pytest.mark.parametrize("dtype", [np.int64, np.int8, bool])
@pytest.mark.usefixtures("unannotated")
def test_probabilities_of_0_and_1_may_be_whole_numbers(dtype):
    predicted = np.eye(3)[TRUE[::-1]]
    for metric in (*OF_PROBABILITIES, lambda p, y: metrics.calibration_error_interval(p, y).estimate):
        assert metric(predicted.astype(dtype), TRUE) == pytest.approx(metric(predicted, TRUE))


@pytest.mark.parametrize("wrong", [[1.0, 2.0], (1.0,), 1.0, np.float64(1.0), None, "ab", iter([1.0]), {1.0}])
@pytest.mark.usefixtures("unannotated")
def test_what_is_no_array_is_refused(wrong):
    right = np.array([0.0, 1.0])
    rows, labels = np.array([[0.25, 0.75]] * 2), np.array([0, 1])
    asked = [
        lambda: metrics.auroc(wrong, right),
        lambda: metrics.auroc(right, wrong),
        lambda: metrics.aupr(wrong, right),
        lambda: metrics.fpr_at_tpr(wrong, right),
        lambda: metrics.threshold_at_tpr(wrong),
        lambda: metrics.to_ood_scores(wrong, right),
        lambda: metrics.check_scores(right, wrong),
        lambda: metrics.accuracy(wrong, labels),
        lambda: metrics.accuracy(rows, wrong),
        lambda: metrics.brier_score(rows, wrong),
        lambda: metrics.mean_max_confidence(wrong),
        lambda: metrics.classification(wrong, labels, has_ood_class=True),
    ]
    for call in asked:
        with pytest.raises(UserError, match="expected an array of NumPy or JAX"):
            call()


@pytest.mark.usefixtures("unannotated")
def test_arrays_of_another_rank_are_refused():
    for values in (np.ones(3), np.array(0.5), np.ones((3, 0)), np.ones((2, 2, 2))):
        with pytest.raises(UserError, match="expected"):
            metrics.mean_max_confidence(values)
        with pytest.raises(UserError, match="expected"):
            metrics.mean_max_confidence_of_logits(values, has_ood_class=True)
        with pytest.raises(UserError, match="expected"):
            metrics.classification(values, np.array([0, 0, 0]), has_ood_class=True)


@pytest.mark.usefixtures("unannotated")
def test_hidden_labels_do_not_count():
    rows, labels = np.asarray(jax.nn.softmax(OF_LOGITS)), np.ma.array(TRUE, mask=TRUE == 1)
    for metric in (
        *OF_PROBABILITIES[:-1],
        metrics.accuracy,
        metrics.calibration_error_interval,
        lambda p, y: metrics.log_likelihood(np.log(p), y),
        lambda p, y: metrics.classification(np.log(p), y, has_ood_class=False),
    ):
        with pytest.raises(UserError, match="labels are a masked array"):
            metric(rows, labels)
    with pytest.raises(UserError, match="a masked array was given"):
        metrics.from_ood_scores(np.arange(20.0), np.ma.array(TRUE == 0, mask=TRUE == 1))


@pytest.mark.parametrize("tpr", ["0.95", None, [0.9, 0.95], 0, 1, np.nan, True], ids=repr)
@pytest.mark.usefixtures("unannotated")
def test_a_rate_is_a_number_between_0_and_1(tpr):
    for call in (
        lambda: metrics.fpr_at_tpr(SCORES_IN, SCORES_OOD, tpr=tpr),
        lambda: metrics.threshold_at_tpr(SCORES_IN, tpr=tpr),
    ):
        with pytest.raises(UserError, match="tpr must lie between 0 and 1, both excluded, got"):
            call()
    assert metrics.fpr_at_tpr(SCORES_IN, SCORES_OOD, tpr=np.float64(0.95)) == metrics.fpr_at_tpr(SCORES_IN, SCORES_OOD)


@pytest.mark.usefixtures("unannotated")
def test_the_positive_class_is_told_by_a_truth_value():
    for metric in (metrics.fpr_at_tpr, metrics.aupr):
        with pytest.raises(UserError, match="ood_positive must be True or False, got 'False'"):
            metric(SCORES_IN, SCORES_OOD, ood_positive="False")
