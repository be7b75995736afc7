"""Thresholds with a guaranteed false-alarm rate: coverage, exact order statistics, p-values, records, wrong use."""

import json
import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from preload_jax import decisions, detectors, digests, make_classifier, predict
from preload_jax.errors import UserError

RNG = np.random.default_rng(0)
# Scores with a known population: each draws n, and says the probability of a score below t.
POPULATIONS = {
    "normal": (lambda rng, n: rng.normal(size=n), stats.norm.cdf),
    "ties": (lambda rng, n: np.floor(20 * rng.random(n)), lambda t: np.clip(np.ceil(t) / 20, 0, 1)),
    "infinite": (
        lambda rng, n: np.where(rng.random(n) < 0.03, -np.inf, rng.normal(size=n)),
        lambda t: 0.0 if t == -np.inf else 0.03 + 0.97 * stats.norm.cdf(t),
    ),
}


@pytest.mark.parametrize("n", [59, 200, 1000])
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_rate_is_kept_as_often_as_promised(name, n):
    draw, below = POPULATIONS[name]
    rng = np.random.default_rng(n)
    rules = [decisions.calibrate(draw(rng, n), false_alarm_rate=0.05, confidence=0.9) for _ in range(1000)]
    kept = np.mean([below(rule.threshold()) <= 0.05 for rule in rules])
    # Three standard errors of a share of 1,000.
    assert kept >= 0.9 - 3 * math.sqrt(0.9 * 0.1 / 1000)
    if name == "normal":
        # Exact: the share follows Beta(k, n + 1 − k).
        k = rules[0].rank()
        assert kept == pytest.approx(stats.beta.cdf(0.05, k, n + 1 - k), abs=3 * math.sqrt(0.9 * 0.1 / 1000))


@given(
    n=st.integers(1, 400),
    rate=st.floats(0.001, 0.999),
    confidence=st.floats(0.01, 0.999),
)
def test_the_rank_is_the_largest_that_keeps_the_promise(n, rate, confidence):
    needed = decisions.images_needed(rate, confidence)
    scores = np.arange(n, dtype=float)
    if n < needed:
        with pytest.raises(UserError, match=f"{n} calibration scores, .* takes at least {needed}"):
            decisions.calibrate(scores, false_alarm_rate=rate, confidence=confidence)
        return
    rule = decisions.calibrate(scores, false_alarm_rate=rate, confidence=confidence)
    kept = [k for k in range(1, n + 1) if stats.binom.sf(k - 1, n, rate) >= confidence]
    assert rule.rank() == max(kept)
    assert rule.threshold() == rule.rank() - 1
    assert rule.false_alarm_bound() <= rate + 1e-9
    # Clopper and Pearson's upper bound, by SciPy's own test.
    interval = (
        stats.binomtest(rule.rank() - 1, n).proportion_ci(confidence_level=2 * confidence - 1 or 0.0)
        if (confidence > 0.5)
        else None
    )
    if interval is not None:
        assert rule.false_alarm_bound() == pytest.approx(interval.high, rel=1e-9)


def test_how_many_images_a_promise_takes():
    assert decisions.images_needed(0.05, 0.95) == 59
    assert decisions.images_needed(0.01, 0.95) == 299
    assert decisions.images_needed(0.5, 0.5) == 1


def test_what_the_documentation_says_of_a_thousand():
    rule = decisions.calibrate(RNG.normal(size=1000))
    assert rule.rank() == 39
    assert rule.p_value_at_threshold() == pytest.approx(39 / 1001)


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_rule_is_a_bound_on_conservative_p_values(name):
    draw, _ = POPULATIONS[name]
    rule = decisions.calibrate(draw(RNG, 300), false_alarm_rate=0.1)
    scores = draw(RNG, 2000)
    np.testing.assert_array_equal(rule.is_ood(scores), rule.p_values(scores) <= rule.p_value_at_threshold())


@pytest.mark.parametrize("name", POPULATIONS)
def test_p_values_of_in_domain_inputs_are_not_small_too_often(name):
    draw, _ = POPULATIONS[name]
    rng = np.random.default_rng(1)
    conservative, randomised = [], []
    for seed in range(4000):
        rule = decisions.calibrate(draw(rng, 40), false_alarm_rate=0.2, confidence=0.9)
        score = draw(rng, 1)
        conservative.append(rule.p_values(score)[0])
        randomised.append(rule.p_values(score, ties="randomised", seed=seed)[0])
    for u in (0.05, 0.2, 0.5, 0.9):
        error = 3.5 * math.sqrt(u * (1 - u) / 4000)
        assert np.mean(np.array(conservative) <= u) <= u + error
        assert np.mean(np.array(randomised) <= u) == pytest.approx(u, abs=error)
    assert min(randomised) > 0
    assert stats.kstest(randomised, "uniform").pvalue > 1e-3


def test_p_values_by_hand():
    rule = decisions.calibrate([1.0, 2.0, 2.0, 3.0], false_alarm_rate=0.5, confidence=0.5)
    np.testing.assert_allclose(rule.p_values([0.0, 1.0, 2.0, 9.0]), np.array([1, 2, 4, 5]) / 5)
    draws = rule.p_values(np.full(4000, 2.0), ties="randomised")
    # Between one and four of five.
    assert draws.min() > 1 / 5
    assert draws.max() <= 4 / 5
    assert draws.mean() == pytest.approx(2.5 / 5, abs=0.02)


def test_each_predicted_class_has_a_threshold():
    labels = np.repeat([0, 2], 500)
    scores = RNG.normal(size=1000) + 10.0 * labels
    rule = decisions.calibrate(scores, classes=labels)
    assert rule.threshold(2) - rule.threshold(0) == pytest.approx(20.0, abs=0.7)
    assert rule.is_ood([5.0, 5.0], classes=[0, 2]).tolist() == [False, True]
    assert (rule.p_values([5.0, 5.0], classes=[0, 2]) == [501 / 501, 1 / 501]).all()
    with pytest.raises(UserError, match=r"no threshold for class 1; it knows \[0, 2\]"):
        rule.is_ood([5.0], classes=[1])
    with pytest.raises(UserError, match="give classes, one an input"):
        rule.is_ood([5.0])
    with pytest.raises(UserError, match=r"10 calibration scores of predicted class 1, .* takes at least 59"):
        decisions.calibrate(scores, classes=np.where(np.arange(1000) < 10, 1, labels))


def test_benjamini_and_hochberg_keep_the_rate_of_false_discoveries():
    # By SciPy's adjusted p-values.
    for seed in range(50):
        p = np.random.default_rng(seed).random(30) ** 2
        expected = stats.false_discovery_control(p) <= 0.2
        np.testing.assert_array_equal(decisions.benjamini_hochberg(p, false_discovery_rate=0.2), expected)
    rng, shares = np.random.default_rng(2), []
    for _ in range(300):
        rule = decisions.calibrate(rng.normal(size=200))
        scores = np.concatenate([rng.normal(size=80), rng.normal(size=20) - 4.0])
        called = decisions.benjamini_hochberg(rule.p_values(scores), false_discovery_rate=0.2)
        shares.append(called[:80].sum() / max(1, called.sum()))
    assert np.mean(shares) <= 0.2
    assert decisions.benjamini_hochberg(np.zeros(0)).shape == (0,)


def test_a_rule_is_written_and_read():
    for rule in (
        decisions.calibrate(np.append(RNG.normal(size=99), [-np.inf, np.inf]), score="vim"),
        decisions.calibrate(RNG.normal(size=200), classes=np.arange(200) % 2),
    ):
        text = json.dumps(rule.record(), allow_nan=False)
        again = decisions.Rule.from_record(json.loads(text))
        assert again.record() == rule.record()
        assert (again.score, again.by_class) == (rule.score, rule.by_class)
        classes = np.arange(10) % 2 if rule.by_class else None
        scores = RNG.normal(size=10)
        np.testing.assert_array_equal(again.p_values(scores, classes=classes), rule.p_values(scores, classes=classes))
    record = rule.record()
    for broken in (
        {**record, "false_alarm_rate": 0.5},
        {**record, "calibration": {"0": ["0x0p+0"]}},
        {name: value for name, value in record.items() if name != "digest"},
        {},
    ):
        with pytest.raises(UserError, match="the rule is damaged"):
            decisions.Rule.from_record(broken)
    with pytest.raises(UserError, match="of format 99, this version reads 1"):
        decisions.Rule.from_record({**record, "format": 99})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: decisions.calibrate([]), "no calibration scores"),
        (
            lambda: decisions.calibrate([0.0] * 58),
            r"58 calibration scores, one for each held-out input \(validation image\); .* at least 59: hold out more",
        ),
        (lambda: decisions.calibrate([math.nan] * 60), "60 of 60 calibration scores are NaN"),
        (lambda: decisions.calibrate(["a"] * 60), "calibration scores are <U1"),
        (lambda: decisions.calibrate(np.ones((60, 1))), r"calibration scores are float64 \[60, 1\]"),
        (lambda: decisions.calibrate([1.0] * 60, false_alarm_rate=0), "false_alarm_rate must lie between 0 and 1"),
        (
            lambda: decisions.calibrate([1.0] * 60, false_alarm_rate="5 %"),
            "got '5 %'",
        ),
        (lambda: decisions.calibrate([1.0] * 60, confidence=1.0), "confidence must lie between 0 and 1"),
        (lambda: decisions.calibrate([1.0] * 60, classes=[0] * 59), r"classes are int64 \[59\]"),
        (lambda: decisions.calibrate([1.0] * 60, classes=[0.5] * 60), "classes are float64"),
        (lambda: decisions.calibrate([1.0] * 60).is_ood([math.nan]), "1 of 1 scores are NaN"),
        (lambda: decisions.calibrate([1.0] * 60).p_values([1.0], ties="x"), "unknown ties 'x'"),
        (lambda: decisions.benjamini_hochberg(np.array([2.0])), "p-values run from 2 to 2"),
        (lambda: decisions.benjamini_hochberg(np.array([0.5]), false_discovery_rate=2), "false_discovery_rate must"),
        (lambda: decisions.calibrate([1.0] * 60, score=3), "score is 3; expected a name"),
        (lambda: decisions.Rule.from_record("x"), "the rule is a str; expected what Rule.record"),
        (lambda: decisions.Monitor("x"), "the rule is a str; expected a Rule"),
        (lambda: decisions.Monitor.restore(decisions.calibrate([1.0] * 60), None), "state is a NoneType"),
        (lambda: decisions.images_needed(1.0, 0.5), "false_alarm_rate must lie between"),
    ],
)
@pytest.mark.usefixtures("unannotated")
def test_wrong_use(call, message):
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble, np.int64, np.uint8, jnp.bfloat16])
def test_scores_of_any_real_type(dtype):
    scores = jnp.asarray(np.arange(200), dtype) if dtype == jnp.bfloat16 else np.arange(200).astype(dtype)
    rule = decisions.calibrate(scores)
    assert rule.threshold() == float(np.sort(np.asarray(scores, np.float64))[rule.rank() - 1])
    assert not rule.is_ood(scores)[-1]


def test_all_scores_alike_call_nothing_ood():
    rule = decisions.calibrate(np.zeros(100))
    assert not rule.is_ood(np.zeros(10)).any()
    assert rule.is_ood([-1e-30]).all()
    assert (rule.p_values(np.zeros(3)) == 1).all()


def test_a_score_is_itself_in_either_precision():
    scores = np.random.default_rng(0).choice([0.7, 0.9], 1000)
    for calibration, asked in ((np.float64, np.float32), (np.float32, np.float64)):
        rule = decisions.calibrate(scores.astype(calibration))
        assert rule.is_ood(scores.astype(asked)).mean() == 0.0
        assert rule.p_values(np.array([0.7], asked))[0] > 0.4


def test_each_call_draws_its_own_ties():
    rule = decisions.calibrate(np.zeros(60))
    draws = [rule.p_values([0.0], ties="randomised")[0] for _ in range(300)]
    assert stats.kstest(draws, "uniform").pvalue > 1e-6
    assert len(set(draws)) == 300
    fixed = [rule.p_values([0.0], ties="randomised", seed=1)[0] for _ in range(2)]
    assert fixed[0] == fixed[1]


def test_hidden_scores_do_not_count():
    with pytest.raises(UserError, match="masked"):
        decisions.calibrate(np.ma.masked_less(np.arange(100.0), 5))


@pytest.mark.parametrize("rate", [1e-300, 5e-324, 1e-9])
def test_rates_that_nobody_can_promise(rate):
    with pytest.raises(UserError, match=r"takes more than 1,000,000,000 images; expected a rate above 1e-09"):
        decisions.images_needed(rate, 0.5)


@pytest.mark.parametrize("confidence", [1e-12, 0.5, 0.9, 0.95, 0.999999])
def test_the_rate_that_is_said_to_be_enough_is(confidence):
    with pytest.raises(UserError) as refused:
        decisions.images_needed(1e-9, confidence)
    said = float(str(refused.value).split()[-1])
    assert decisions.images_needed(said * 1.001, confidence) <= 1e9
    with pytest.raises(UserError, match="takes more than"):
        decisions.images_needed(said * 0.98, confidence)


def test_classes_that_are_hidden_and_scores_that_float32_has_not():
    scores = np.arange(100.0)
    with pytest.raises(UserError, match="masked"):
        decisions.calibrate(scores, classes=np.ma.masked_equal(np.zeros(100, int), 1))
    with pytest.raises(UserError, match="masked"):
        decisions.Monitor(decisions.calibrate(scores)).update(np.ma.masked_less(scores, 5))
    for factor in (1e300, 1e-60):
        with pytest.raises(UserError, match="too large or too small for float32"):
            decisions.calibrate(scores * factor)
    record = {"format": 1, "score": math.nan, "digest": ""}
    with pytest.raises(UserError, match="the rule is damaged"):
        decisions.Rule.from_record(record)


class TestEquality:
    def test_rules_are_equal_by_what_they_hold(self):
        scores = RNG.normal(size=100)
        one, two = decisions.calibrate(scores), decisions.calibrate(scores[::-1])
        assert one == two
        assert hash(one) == hash(two)
        assert len({one, two}) == 1
        assert one != decisions.calibrate(scores, score="energy")
        assert one != 3
        assert decisions.Rule.from_record(one.record()) == one
        assert pickle.loads(pickle.dumps(one)) == one

    def test_scores_cannot_be_changed_afterwards(self):
        scores = RNG.normal(size=100)
        rule = decisions.calibrate(scores)
        threshold = rule.threshold()
        scores[:] = 0.0
        with pytest.raises(ValueError, match="read-only"):
            rule.calibration[-1][:] = 0.0
        assert rule.threshold() == threshold


@pytest.mark.usefixtures("unannotated")
class TestMadeByHand:
    """A rule that was not made by `calibrate` keeps the promise, too, or is refused."""

    def test_unsorted_scores_are_sorted(self):
        rule = decisions.Rule(0.05, 0.95, "", {-1: np.arange(100.0)[::-1]})
        assert rule == decisions.calibrate(np.arange(100.0))

    @pytest.mark.parametrize(
        ("rate", "calibration", "message"),
        [
            (0.05, {-1: np.zeros(10)}, "10 calibration scores, .* at least 59"),
            (1.5, {-1: np.zeros(100)}, "false_alarm_rate must lie between"),
            (0.05, {-1: np.zeros(100), 0: np.zeros(100)}, "classes .*; expected 0 … K - 1, or -1 alone"),
            (0.05, {-2: np.zeros(100)}, "classes .*; expected 0 … K - 1, or -1 alone"),
            (0.05, {}, "no calibration scores"),
            (0.05, [1.0], "no mapping"),
            (0.05, {-1: np.full(100, np.nan)}, "100 of 100 calibration scores are NaN"),
        ],
    )
    def test_wrong_use(self, rate, calibration, message):
        with pytest.raises(UserError, match=message):
            decisions.Rule(rate, 0.95, "", calibration)

    def test_a_record_that_lacks_something(self):
        values = {"format": 1, "score": ""}
        with pytest.raises(UserError, match=r"not what Rule\.record"):
            decisions.Rule.from_record({**values, "digest": digests.of_json(values)})


class TestAskedOddly:
    @pytest.mark.usefixtures("unannotated")
    def test_scalars_of_jax_are_classes(self):
        rule = decisions.calibrate(np.arange(120.0), classes=np.arange(120) % 2)
        assert rule.threshold(jnp.int32(1)) == rule.threshold(1)
        with pytest.raises(UserError, match="of_class must be an integer"):
            rule.threshold("a")

    def test_no_inputs(self):
        rule = decisions.calibrate(np.arange(120.0), classes=np.arange(120) % 2)
        assert rule.is_ood([], classes=[]).shape == rule.p_values([], classes=[]).shape == (0,)

    @pytest.mark.parametrize("seed", [-1, 0.5])
    @pytest.mark.usefixtures("unannotated")
    def test_seeds(self, seed):
        with pytest.raises(UserError, match="seed must be"):
            decisions.calibrate(np.arange(100.0)).p_values([1.0], ties="randomised", seed=seed)


def test_a_rule_knows_its_detector():
    """Two detectors of one name, with other options, give other scores."""
    features = RNG.normal(size=(300, 4)).astype(np.float32)
    one, other = (detectors.fit("knn", detectors.Outputs(features), k=k) for k in (5, 150))
    rule = decisions.calibrate(detectors.score(one, detectors.Outputs(features)), score=one)
    assert (rule.score, rule.detector) == ("knn", one.digest)
    assert one.digest != other.digest
    assert decisions.Rule.from_record(rule.record()).detector == one.digest
    model = make_classifier("mlp", "linear", num_classes=3, widths=(4,))
    images = np.zeros((2, 2, 2, 1), np.float32)
    variables = model.init(jax.random.key(0), jnp.asarray(images))
    assert predict(model, variables, images, score=one, rule=rule).is_ood.shape == (2,)
    with pytest.raises(UserError, match="calibrated for another knn detector: its options"):
        predict(model, variables, images, score=other, rule=rule)


@pytest.mark.usefixtures("unannotated")
def test_the_calibration_of_a_rule_cannot_be_changed():
    rule = decisions.calibrate(np.arange(100.0))
    with pytest.raises(TypeError, match="does not support item assignment"):
        rule.calibration[-1] = np.zeros(3)
    assert decisions.Rule(0.05, 0.95, "", {-1: np.array([0.0, -0.0] * 50)}) == decisions.Rule(
        0.05, 0.95, "", {np.int64(-1): np.array([-0.0, 0.0] * 50)}
    )


def test_what_is_printed_of_a_rule_is_short():
    scores = np.arange(270.0)
    rule = decisions.calibrate(scores, score="energy")
    assert repr(rule) == f"Rule(score='energy', rate=0.05, confidence=0.95, n=270, threshold={rule.threshold():.4g})"
    by_class = decisions.calibrate(scores, classes=np.arange(270) % 3, score="energy")
    assert repr(by_class) == "Rule(score='energy', rate=0.05, confidence=0.95, n=270, classes=3)"
