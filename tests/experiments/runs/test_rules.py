"""The rule that a run keeps: written with it, shown beside FPR-95, used by predict where the data set is gone."""

import json
import shutil

import numpy as np
import pytest

from experiments.evaluate import report
from experiments.predict import command as predict
from experiments.runs import folder, records, rules
from preload_jax import decisions
from preload_jax.data import datasets
from preload_jax.decisions import Rule
from preload_jax.errors import UserError
from preload_jax.evaluation import Scorer
from tests.experiments import results_for_tests, runs_for_tests
from tests.experiments.runs_for_tests import ask, command


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a data set of the user's own, which is gone."""
    made = tmp_path_factory.mktemp("rules")
    parts = datasets.load("digits")
    images, labels = (np.concatenate([getattr(parts.train, n), getattr(parts.test, n)]) for n in ("images", "labels"))
    np.savez(made / "own.npz", images=images, labels=labels)
    options = (f"--dataset={made}/own.npz", "--backbone=mlp", "--epochs=5", "--outliers=uniform", "--quiet")
    assert command(made / "run", *options) == 0
    (made / "own.npz").unlink()
    return made / "run"


def _rule(run):
    return Rule.from_record(json.loads((run / "rule.json").read_text())["rule"])


def _scorer(run):
    loaded = folder.load_run(run)
    return Scorer(loaded.model, loaded.variables, has_ood_class=True)


def test_the_run_keeps_its_rule(run):
    rule = _rule(run)
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
    assert found["threshold"] == _rule(run).threshold()
    assert all(0 < row["p_value"] <= 1 for row in found["images"])
    assert ask(predict, f"--run={run}", tmp_path / "a.npy", "--false-alarm-rate=0.1", "--quiet") == 2
    assert "own.npz: the images of the run are not there any more; put them back" in runs_for_tests.errors(capsys)[-1]


def test_a_damaged_rule_is_named(run, tmp_path):
    record = json.loads((run / "rule.json").read_text())
    for text in ("{", "{}", json.dumps({"rule": 3}), json.dumps({**record, "rule": {**record["rule"], "score": "x"}})):
        (tmp_path / "rule.json").write_text(text)
        with pytest.raises(UserError, match=r"rule\.json is (damaged|not valid JSON)"):
            rules.read(tmp_path / "rule.json", scorer=_scorer(run))


def test_the_rule_of_another_network_is_refused(run, tmp_path, capsys):
    """A copy of a run whose rule.json came from another one: the scores would mean something else."""
    other = shutil.copytree(run, tmp_path / "run")
    record = records.read(other / "rule.json", advice="")
    records.write(other / "rule.json", {**record, "scorer": "0" * 64})
    np.save(tmp_path / "a.npy", datasets.load("digits").test.images[:2])
    assert ask(predict, f"--run={other}", tmp_path / "a.npy", "--false-alarm-rate=0.05", "--quiet") == 2
    assert "rule.json is of another network than" in runs_for_tests.errors(capsys)[-1]
    with pytest.raises(UserError, match=r"rule\.json is of another network, or of another score"):
        rules.read(other / "rule.json", scorer=_scorer(run))
    # Rules of versions before it do not say.
    records.write(other / "rule.json", {"rule": record["rule"]})
    assert rules.read(other / "rule.json", scorer=_scorer(other)) == _rule(run)


def test_checkpoints_of_another_network_are_refused(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "run")
    newest = max((other / "checkpoints").iterdir(), key=lambda path: int(path.name))
    shutil.rmtree(newest)
    with pytest.raises(UserError, match=r"rule\.json is of another network than .*/checkpoints holds, so one of them"):
        folder.load_run(other)
    # What is damaged tells nothing.
    (other / "rule.json").write_text("{")
    folder.load_run(other)


def test_a_rule_of_another_rate_is_refused(run, tmp_path):
    rule = decisions.calibrate(np.arange(200.0), false_alarm_rate=0.2, score="in_domain_probability")
    rules.write(tmp_path / "rule.json", rule, scorer=_scorer(run))
    with pytest.raises(UserError, match=r"rule\.json is of a false-alarm rate of 0\.2, not 0\.05"):
        rules.read(tmp_path / "rule.json", scorer=_scorer(run))


def test_tpr_is_refused_where_it_would_change_nothing(run, tmp_path, capsys):
    np.save(tmp_path / "a.npy", datasets.load("digits").test.images[:2])
    for option, decides in (("--false-alarm-rate=0.05", "--false-alarm-rate"), ("--quiet", "the OOD class of preload")):
        assert ask(predict, f"--run={run}", tmp_path / "a.npy", "--tpr=0.9", option) == 2
        assert f"--tpr=0.9 would change nothing: {decides} decides" in runs_for_tests.errors(capsys)[-1]


def test_too_few_validation_images_promise_nothing():
    assert rules.calibrated(np.zeros(58), score="x") is None
    assert rules.calibrated(np.zeros(59), score="x") is not None


@pytest.mark.parametrize(
    ("images", "why"),
    [(58, "No column called OOD: 58 validation images are too few."), (0, "called OOD: no validation images.")],
)
def test_where_no_rule_can_be_made_the_table_says_why(images, why):
    text = report.table(results_for_tests.results(rule=None, validation={"size": images}), width=200)
    assert f"{why} A threshold with which at most 5 % of in-domain images are called OOD, with 95 %" in text
    assert "takes at least 59." in text
    assert "--validation=train" not in text


def test_of_ones_own_data_the_table_says_how_to_get_a_rule():
    values = results_for_tests.results("folder:photos", rule=None, validation={"size": 28})
    text = " ".join(report.table(values, width=200).split())
    assert (
        "Train again with --validation=train, which holds out a fifth of the training images (295 are enough)" in text
    )
