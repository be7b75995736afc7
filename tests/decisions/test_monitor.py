"""Watching a stream: false alarms over calibration sets and long streams, drifts that are seen, restarts."""

import json
import math

import numpy as np
import pytest

from preload_jax import decisions
from preload_jax.errors import UserError

RNG = np.random.default_rng(0)


@pytest.fixture
def rule():
    return decisions.calibrate(np.random.default_rng(1).normal(size=1000))


@pytest.mark.parametrize("n", [60, 500])
@pytest.mark.parametrize("draw", [lambda rng, n: rng.normal(size=n), lambda rng, n: np.floor(5 * rng.random(n))])
def test_false_alarms_are_as_rare_as_promised(n, draw):
    rng, alarms = np.random.default_rng(n), 0
    for _ in range(100):
        monitor = decisions.Monitor(decisions.calibrate(draw(rng, n)), error=0.1)
        alarms += monitor.update(draw(rng, 5000)).drifted
    assert alarms / 100 <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / 100)


@pytest.mark.parametrize(
    "drift",
    [lambda x: x - 1.0, lambda x: x + 1.0, lambda x: 2.0 * x, lambda x: np.where(RNG.random(len(x)) < 0.1, -9.0, x)],
    ids=["lower", "higher", "wider", "a tenth far away"],
)
def test_drifts_are_seen(rule, drift):
    monitor = decisions.Monitor(rule)
    assert not monitor.update(RNG.normal(size=2000)).drifted
    assert monitor.update(drift(RNG.normal(size=3000))).drifted


def test_a_drift_after_a_long_calm_is_seen_soon(rule):
    monitor = decisions.Monitor(rule)
    assert not monitor.update(RNG.normal(size=100_000)).drifted
    assert monitor.update(RNG.normal(size=1500) - 1.0).drifted
    assert len(monitor.state()["gamblers"]) == 32


def test_one_by_one_is_as_all_at_once(rule):
    scores = RNG.normal(size=300) - 0.7
    whole, single = decisions.Monitor(rule), decisions.Monitor(rule)
    whole.update(scores)
    for score in scores:
        single.update(score)
    assert single.state() == whole.state()
    assert single.status.log_e_value == pytest.approx(whole.status.log_e_value)
    assert whole.status.called_ood == rule.is_ood(scores).sum()
    # What was once enough stays so, however calm the stream becomes.
    assert whole.status.drifted
    assert whole.update(RNG.normal(size=100_000)).drifted


def test_a_monitor_goes_on_after_a_restart(rule):
    scores = RNG.normal(size=1000) - 0.2
    straight, stopped = decisions.Monitor(rule), decisions.Monitor(rule)
    straight.update(scores)
    stopped.update(scores[:400])
    again = decisions.Monitor.restore(rule, json.loads(json.dumps(stopped.state())))
    assert again.status == stopped.status
    assert again.update(scores[400:]) == straight.status


@pytest.mark.usefixtures("unannotated")
def test_states_that_do_not_fit(rule):
    state = decisions.Monitor(rule).state()
    other = decisions.calibrate(np.arange(100.0))
    with pytest.raises(UserError, match="of another rule"):
        decisions.Monitor.restore(other, state)
    for broken in (
        {**state, "seen": -1},
        {**state, "seen": "3"},
        {**state, "hits": [1]},
        {**state, "gamblers": [0], "hits": [[5] * 8]},
        {**state, "gamblers": [0.5], "hits": [[0] * 8]},
        {**state, "hits": None},
        {**state, "log_e_value": None},
        {**state, "log_e_value": math.inf},
        {**state, "error": None},
        {**state, "drifted": "no"},
        {**state, "called_ood": 1},
        {name: value for name, value in state.items() if name != "digest"},
    ):
        with pytest.raises(UserError, match="damaged"):
            decisions.Monitor.restore(rule, broken)
    with pytest.raises(UserError, match="of format 7"):
        decisions.Monitor.restore(rule, {**state, "format": 7})
    with pytest.raises(UserError, match="the rule is a str"):
        decisions.Monitor.restore("a", state)


@pytest.mark.usefixtures("unannotated")
def test_wrong_use(rule):
    monitor = decisions.Monitor(rule)
    before = monitor.state()
    with pytest.raises(UserError, match="1 of 2 scores are NaN"):
        monitor.update([0.0, math.nan])
    assert monitor.state() == before
    assert monitor.update([]).seen == 0
    with pytest.raises(UserError, match="error must lie between"):
        decisions.Monitor(rule, error=0)
    by_class = decisions.calibrate(np.arange(100.0), classes=np.zeros(100, int))
    with pytest.raises(UserError, match="takes a rule with one threshold"):
        decisions.Monitor(by_class)


def test_infinite_scores_count(rule):
    assert decisions.Monitor(rule).update(np.full(50, -np.inf)).drifted


def test_a_monitor_that_has_seen_nothing_goes_on(rule):
    state = json.loads(json.dumps(decisions.Monitor(rule).state()))
    assert decisions.Monitor.restore(rule, state).update([0.0]).seen == 1
