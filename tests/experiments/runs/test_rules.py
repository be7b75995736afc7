"""The rule that a run keeps: written with it, shown beside FPR-95, used by predict where the data set is gone."""

import json

import numpy as np
import pytest

from experiments.predict import command as predict
from experiments.runs import rules
from preload_jax.data import datasets
from preload_jax.errors import UserError
from tests.experiments import runs_for_tests
from tests.experiments.runs_for_tests import ask, command


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a data set of the user's own, which is gone."""
    folder = tmp_path_factory.mktemp("rules")
    parts = datasets.load("digits")
    images, labels = (np.concatenate([getattr(parts.train, n), getattr(parts.test, n)]) for n in ("images", "labels"))
    np.savez(folder / "own.npz", images=images, labels=labels)
    options = (f"--dataset={folder}/own.npz", "--backbone=mlp", "--epochs=5", "--outliers=uniform", "--quiet")
    assert command(folder / "run", *options) == 0
    (folder / "own.npz").unlink()
    return folder / "run"


def test_the_run_keeps_its_rule(run):
    rule = rules.read(run / "rule.json")
    results = json.loads((run / "results.json").read_text())
    summary = results["rule"]
    assert (summary["false_alarm_rate"], summary["confidence"]) == (0.05, 0.95)
    assert (summary["threshold"], summary["score"]) == (rule.threshold(), "in_domain_probability")
    scores = np.load(run / "scores.npz")
    assert summary["called_ood"] == {name: float(rule.is_ood(scores[name]).mean()) for name in scores.files}
    assert summary["called_ood"]["faraway"] == 1.0
    assert summary["images"] == results["validation"]["size"] == len(rule.calibration[-1])
    text = rules.in_words(summary)
    assert "at most 5 % of in-domain images are, with 95 % confidence" in text


def test_predict_needs_no_data_for_the_runs_own_rate(run, tmp_path, capsys):
    np.save(tmp_path / "a.npy", datasets.load("digits").test.images[:2])
    assert ask(predict, f"--run={run}", tmp_path / "a.npy", "--false-alarm-rate=0.05", "--json", "--quiet") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["threshold"] == rules.read(run / "rule.json").threshold()
    assert all(0 < row["p_value"] <= 1 for row in found["images"])
    assert ask(predict, f"--run={run}", tmp_path / "a.npy", "--false-alarm-rate=0.1", "--quiet") == 2
    assert "own.npz: no such file" in runs_for_tests.errors(capsys)[-1]


def test_a_damaged_rule_is_named(run, tmp_path):
    record = json.loads((run / "rule.json").read_text())
    for text in ("{", "{}", json.dumps({"rule": 3}), json.dumps({**record, "rule": {**record["rule"], "score": "x"}})):
        (tmp_path / "rule.json").write_text(text)
        with pytest.raises(UserError, match=r"rule\.json is (damaged|not valid JSON)"):
            rules.read(tmp_path / "rule.json")


def test_too_few_validation_images_promise_nothing():
    assert rules.calibrated(np.zeros(58), score="x") is None
    assert rules.calibrated(np.zeros(59), score="x") is not None
