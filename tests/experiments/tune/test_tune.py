"""Tuning: the paper's table, a search on the digits that is killed and goes on, OOD reward, wrong input."""

import contextlib
import functools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import cli
from experiments.run import train
from experiments.runs import configuration, recipes
from experiments.tune import command as tune
from experiments.tune import objective, search_spaces, study
from experiments.tune.command import Args
from experiments.tune.search_spaces import SPACES
from preload_jax.data import datasets
from preload_jax.errors import UserError
from preload_jax.training.loop import NonFiniteLossError

SHORT = ("--epochs=2", "--outliers=uniform", "--trials=3")


@pytest.mark.parametrize("name", SPACES)
def test_values_reach_the_configuration_and_are_options_of_run(name):
    from experiments.run import command as run
    from experiments.runs import folder as runs

    space = SPACES[name]
    config = recipes.get(datasets.get("digits"), space.method)
    values = {parameter: -0.5 if "margin" in parameter else 0.5 for parameter in space.ranges}
    tuned = space.apply(config, values)
    argv = [f"--method={space.method}", *search_spaces.options(values)]
    assert tuned == run.resolve(cli.parse(run.Args, argv, prog="run"))
    changed = {
        key for key, value in runs.flat(configuration.as_dict(tuned)).items()
        if runs.flat(configuration.as_dict(config))[key] != value
    }  # fmt: skip
    assert changed == {parameter.replace("-", "_") for parameter in values}


def fake_search(path, *, trials, name="preload", evaluate=None, prune=True, seed=0):
    found = study.open_study(path, name=name, settings={})
    seen = []

    def score(values, report):
        seen.append(values)
        return sum(values.values()) if evaluate is None else evaluate(values, report)

    study.search(
        found, SPACES[name], num_trials=trials, seed=seed, prune=prune, evaluate=score, told=lambda trial: None
    )
    return found, seen


# The paper's table: the least and the largest value of each parameter, and whether its logarithm is uniform.
_PAPER = {
    "preload": [(1e-3, 5e-1, True), (1e-5, 1e-3, True)],
    "energy_ft": [(-30.0, 0.0, False), (-30.0, 0.0, False)],
    "preload_ft_init": [(1e-2, 1.0, True), (1e-4, 1e-1, True), (1e-6, 1.0, True)],
    "preload_ft": [(1e-2, 1.0, True), (1e-4, 1e-1, True), (1e-6, 1e-3, True)],
}


@pytest.mark.parametrize("name", SPACES)
def test_a_search_is_of_the_papers_ranges(tmp_path, name):
    fake_search(tmp_path / "a.db", trials=1, name=name)
    (trial,) = study.open_study(tmp_path / "a.db", name=name, settings={}).trials
    stored = [(drawn.low, drawn.high, drawn.log) for drawn in trial.distributions.values()]
    assert stored == _PAPER[name]
    assert all(low <= x <= high for x, (low, high, _) in zip(trial.params.values(), stored, strict=True))


@pytest.mark.parametrize("name", SPACES)
def test_only_preloads_search_learns_from_its_scores(tmp_path, name):
    def draws(sign):
        def evaluate(values, report):
            return sign * sum(values.values())

        return fake_search(tmp_path / f"{sign}.db", trials=12, name=name, evaluate=evaluate)[1]

    rising, falling = draws(1), draws(-1)
    assert rising[:10] == falling[:10]
    assert (rising[10:] == falling[10:]) == (name != "preload")


# The Bayesian search draws at random in its first ten trials.
@pytest.mark.parametrize(("name", "trials"), [("preload", 12), ("energy_ft", 6)])
def test_a_killed_search_goes_on_as_if_it_had_not_been(tmp_path, name, trials):
    _, whole = fake_search(tmp_path / "a.db", trials=trials, name=name)

    def killed_in_the_fifth(values, report, count=[0]):  # noqa: B006
        count[0] += 1
        if count[0] == 5:
            raise KeyboardInterrupt
        return sum(values.values())

    with pytest.raises(KeyboardInterrupt):
        fake_search(tmp_path / "b.db", trials=trials, name=name, evaluate=killed_in_the_fifth)
    found, rest = fake_search(tmp_path / "b.db", trials=trials, name=name)
    assert rest == whole[4:]
    assert len(study.finished(found)) == trials


def test_other_seeds_search_elsewhere(tmp_path):
    _, first = fake_search(tmp_path / "a.db", trials=3)
    _, second = fake_search(tmp_path / "b.db", trials=3, seed=1)
    assert not {tuple(values.values()) for values in first} & {tuple(values.values()) for values in second}


def test_diverged_trials_count_and_bad_ones_are_pruned(tmp_path):
    calls = []

    def evaluate(values, report):
        calls.append(values)
        if len(calls) == 1:
            raise NonFiniteLossError(1, None, 0.5)
        score = 1.0 if len(calls) < 8 else 0.0
        for epoch in range(1, 4):
            if report(epoch, score):
                return score
        return score

    found, _ = fake_search(tmp_path / "a.db", trials=9, evaluate=evaluate)
    assert [trial.state.name for trial in found.trials] == ["FAIL"] + ["COMPLETE"] * 6 + ["PRUNED"] * 2
    assert found.best_value == 1.0


def test_other_settings_are_refused(tmp_path):
    study.open_study(tmp_path / "a.db", name="x", settings={"epochs": 1})
    with pytest.raises(UserError, match="other settings: epochs 1 there, 2 asked for"):
        study.open_study(tmp_path / "a.db", name="x", settings={"epochs": 2})
    # A setting that is new, with what it was before, is no other search.
    study.open_study(tmp_path / "a.db", name="x", settings={"epochs": 1, "new": 5}, usual={"new": 5, "epochs": 9})
    with pytest.raises(UserError, match=r"new 5 there, 6 asked for"):
        study.open_study(tmp_path / "a.db", name="x", settings={"epochs": 1, "new": 6}, usual={"new": 5})
    (tmp_path / "b.db").write_text("no database, and long enough to be seen as such" * 100)
    with pytest.raises(UserError, match="cannot be opened as a study"):
        study.open_study(tmp_path / "b.db", name="x", settings={})


def test_a_search_goes_on_with_the_same_images_alone(tmp_path):
    path = tmp_path / "a.db"
    found = study.open_study(path, name="x", settings={})
    for digest in (None, "2:a", "2:a", None):
        study.require_same_data(found, digest, dataset="folder:photos", path=path)
    with pytest.raises(UserError, match="a search on other images of folder:photos, of which some were added, removed"):
        study.require_same_data(
            study.open_study(path, name="x", settings={}), "2:b", dataset="folder:photos", path=path
        )


def test_a_file_that_another_program_holds_is_in_use(tmp_path, monkeypatch):
    # The usual wait is 5 s each time.
    monkeypatch.setattr(sqlite3.dbapi2, "connect", functools.partial(sqlite3.connect, timeout=0.05))
    path = tmp_path / "a.db"
    found = study.open_study(path, name="x", settings={})
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UserError, match="is in use by another program"):
            study.open_study(path, name="x", settings={})
        with pytest.raises(UserError, match="is in use by another program"), study.named_if_in_use(path):
            found.ask()
    assert study.open_study(path, name="x", settings={}).user_attrs["settings"] == {}


@pytest.mark.parametrize(
    "name",
    ["q?x", "p%41", "h#1", "b{SCHEMA_VERSION}", "{}", "a b+c", "k=v&mode=ro", "file:x", "ü\n", "\udcff", ":memory:"],
)
def test_a_search_is_in_the_file_that_is_named_whatever_characters_it_has(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    folder = Path(name)
    folder.mkdir()
    fake_search(folder / "a.db", trials=1)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert [path.name for path in folder.iterdir()] == ["a.db"]
    assert len(study.read_study(folder / "a.db", name="preload").trials) == 1
    found, seen = fake_search(folder / "a.db", trials=2)
    assert (len(found.trials), len(seen)) == (2, 1)


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0"])
def test_a_damaged_search_of_the_first_stage_is_one_line(tmp_path, content):
    path = tmp_path / "digits" / "tuning" / "preload_ft_init.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"preload_ft_init.db cannot be opened as a study"):
        tune.main(Args(root=tmp_path, quiet=True, method="preload_ft"))


def test_two_processes_do_not_share_a_search(tmp_path):
    refused = pytest.raises(UserError, match="another process is tuning")
    with study.locked(tmp_path / "a.db"), refused, study.locked(tmp_path / "a.db"):
        pass


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"method": "oe"}, "unknown --method 'oe'; the paper tuned"),
        ({"trials": 0}, "--trials must be at least 1"),
        ({"dataset": "minst"}, "unknown dataset 'minst'"),
        ({"ood_set": "faraway"}, "--ood-set=faraway: PreLoad is perfect there"),
        ({"ood_reward": float("nan")}, "--ood-reward must be finite and at least 0, got nan"),
        ({"ood_reward": float("inf"), "ood_set": "photo"}, "--ood-reward must be finite and at least 0, got inf"),
        ({"ood_reward": -0.5, "ood_set": "photo"}, "--ood-reward must be finite and at least 0, got -0.5"),
        ({"ood_set": "photos"}, "unknown OOD set 'photos'"),
    ],
)
def test_wrong_use(tmp_path, options, expected):
    with pytest.raises(UserError, match=expected):
        tune.main(Args(root=tmp_path, quiet=True, **options))


def test_without_optuna_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install 'preload-jax\[tune\]'"):
        tune.main(Args(root=tmp_path))


def test_the_reward_for_ood_detection_is_added():
    splits = datasets.load("digits")
    config = replace(recipes.get(datasets.get("digits"), "preload"), epochs=4, outliers="uniform")
    config = replace(config, optimizer=replace(config.optimizer, learning_rate=0.02))
    ood = objective.held_out_ood("uniform", config, splits, data_dir=None)
    assert len(ood) == len(splits.validation)
    data = train.load_training_data(config, splits, data_dir=None)
    plain = objective.Objective(splits, None, None, 0.0, 1, lambda: data)
    rewarded = objective.Objective(splits, None, ood, 0.5, 1, lambda: data)
    reports = []
    accuracy = plain.run(config, report=lambda epoch, score: reports.append((epoch, score)))
    assert 0.1 < accuracy <= 1.0
    assert [epoch for epoch, _ in reports] == [1, 2, 3]
    both = rewarded.run(config, report=lambda epoch, score: False)
    assert accuracy < both <= accuracy + 0.5 + 1e-6
    # Where half of the held-out outliers are the validation images themselves, an AUROC of about 3/4 is rewarded.
    mixed = np.concatenate([ood, splits.validation.images / np.float32(255)])
    middling = objective.Objective(splits, None, mixed, 0.5, 1, lambda: data)
    assert 0.3 < 2 * (middling.run(config, report=lambda epoch, score: False) - accuracy) < 0.9


def test_three_trials_on_the_digits_killed_and_gone_on(tmp_path):
    def command(folder):
        return [sys.executable, "-m", "experiments.tune", *SHORT, f"--root={folder}"]

    environment = {**os.environ, "XLA_FLAGS": ""}
    killed = subprocess.Popen(command(tmp_path), env=environment, stderr=subprocess.PIPE, text=True)
    assert killed.stderr is not None
    assert any(line.startswith("[1/3] score") for line in killed.stderr)  # reads up to that line
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    started = time.monotonic()
    done = subprocess.run(command(tmp_path), env=environment, capture_output=True, text=True, check=True)
    assert time.monotonic() - started < 180
    assert "has 1 trials; going on to 3" in done.stderr
    assert done.stdout.startswith("best of 3 trials: score 0.")
    assert (
        "python -m experiments.run --dataset=digits --method=preload --recipe=paper --outliers=uniform" in done.stdout
    )
