"""The ten minutes of a GPU, on a CPU with small numbers: what is run, kept, stopped and gone on with."""

import json
import sys

import pytest

from benchmarks import gpu, sides


def test_a_grid_is_trained_kept_and_not_trained_again(tmp_path, monkeypatch, capsys):
    def small(common):
        grid = ("experiments.paper", "--dataset=digits", "--method=standard", "--seeds=0", "--shift=none", "--quiet")
        metrics = ("benchmarks.speed", "--only=metrics", "--rounds=1", "--scores=100")
        return [gpu.Step("metrics", metrics), gpu.Step("digits", (*grid, *common))]

    monkeypatch.setattr(gpu, "plan", small)
    monkeypatch.setattr(sys, "argv", ["gpu", f"--out={tmp_path}", "--max-steps=1"])
    assert gpu.main() == 0
    assert "AUROC + FPR-95 + AUPR, 100 scores" in (tmp_path / "metrics.txt").read_text()
    assert (tmp_path / "runs" / "digits" / "standard" / "seed0" / "results.json").exists()
    record = json.loads((tmp_path / "steps.json").read_text())
    assert [step["status"] for step in record.values()] == [0, 0]
    capsys.readouterr()
    assert gpu.main() == 0
    assert capsys.readouterr().out == ""


def test_a_failure_does_not_stop_the_rest_and_a_long_step_is_stopped(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "LEAST_SECONDS", 0.1)
    steps = [
        gpu.Step("wrong", ("no_such_module",)),
        gpu.Step("long", ("timeit", "-n1", "-r1", "__import__('time').sleep(60)")),
    ]
    steps.append(gpu.Step("late", ("this",)))
    assert gpu.carry_out(steps, tmp_path, seconds=2.0) == 1
    said = capsys.readouterr().out
    assert "wrong: failed with status 1" in said
    assert "long: stopped" in said
    assert "late: no time left" in said
    assert json.loads((tmp_path / "steps.json").read_text())["long"]["status"] is None


def test_the_plan_names_commands_that_there_are():
    from experiments import cli
    from experiments.paper import command

    steps = gpu.plan(["--root=x"])
    assert [step.words[0] for step in steps[:3]] == ["benchmarks.speed", "benchmarks.speed", "benchmarks.gpu"]
    for step in steps[3:]:
        assert step.words[0] == "experiments.paper"
        cli.parse(command.Args, list(step.words[1:]), prog="paper")


def test_seeds_in_processes_of_their_own_are_asked_at_once(monkeypatch):
    asked = []

    class Worker:
        def __init__(self, side, network):
            asked.append("start")

        def send(self, *words):
            asked.append(words)

        def answer(self):
            asked.append("answer")

        def __exit__(self, *_):
            asked.append("end")

    monkeypatch.setattr(sides, "Worker", Worker)
    row = gpu.five_seeds(count=2, steps=3, rounds=1)
    both, one = [("steps", 3)] * 2 + ["answer"] * 2, [("steps", 3), "answer"]
    assert asked == ["start"] * 2 + (both + one) * 2 + ["end"] * 2
    assert row.title == "LeNet, 2 seeds in 2 processes"


def test_wrong_use(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu", "--minutes=0"])
    with pytest.raises(SystemExit) as exit_:
        gpu.main()
    assert exit_.value.code == 2
