import contextlib
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from benchmarks import speed


def main(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["speed", *words])
    speed.main()


def test_sides_take_turns_and_the_warm_up_does_not_count(monkeypatch):
    now, calls = 0.0, []
    # Of each process, in its first round and in those that count.
    seconds = {"import jax": [9.0, 2.0, 4.0], "import preload_jax": [9.0, 1.0, 2.0], "--help": [9.0, 5.0, 5.0]}

    def run(command, **options):
        nonlocal now
        calls.append(command[-1])
        now += seconds[command[-1]].pop(0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    rows = speed.start_rows(rounds=2)
    assert calls == list(seconds) * 3
    assert [row.cells()[:4] for row in rows] == [
        ["import preload_jax", "1.5 [1, 2] s", "3 [2, 4] s, import jax", "0.50 [0.50, 0.50]"],
        ["experiments.run --help", "5 [5, 5] s", "3 [2, 4] s, import jax", "1.88 [1.25, 2.50]"],
    ]


def test_a_row_has_medians_spread_and_the_ratio_round_by_round():
    row = speed.Row("step", [1.0, 2.0, 6.0], [4.0, 4.0, 4.0], goal=0.7)
    assert row.cells() == ["step", "2 [1, 6] s", "4 [4, 4] s, PyTorch", "0.50 [0.25, 1.50]", "≤ 0.7", ""]
    alone = speed.Row("epoch", [1.0], [], goal=0.1, goal_is_ratio=False, note="x")
    assert alone.cells() == ["epoch", "1 s", "", "", "≤ 0.1 s", "x"]


def test_the_metrics_part_prints_a_table(monkeypatch, capsys):
    main(monkeypatch, "--only=metrics", "--rounds=2", "--scores=1000")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].count("|") == lines[2].count("|") == 7
    assert "1,000 scores" in lines[2]
    assert "scikit-learn" in lines[2]


@pytest.mark.parametrize("words", [("--rounds=0",), ("--scores=1",), ("--only=speed",)])
def test_wrong_use(monkeypatch, words):
    with pytest.raises(SystemExit) as exit_:
        main(monkeypatch, *words)
    assert exit_.value.code == 2


class Side:
    """A worker whose times are known."""

    def __init__(self, *seconds):
        self.seconds = list(seconds)

    def ask(self, name, *arguments):
        return 3 * 2**20 if name == "memory" else self.seconds.pop(0)


def test_the_baseline_is_the_fastest_of_the_configurations_in_the_run():
    # The first of each warms up.
    sides = {"ours": Side(9, 1, 2), "default": Side(9, 4, 4), "channels_last": Side(9, 2, 2), "compiled": Side(9, 3, 3)}
    row = speed._against_best("step", sides, lambda side: side.ask("infer", 5), 2, goal=0.5)
    assert row.baseline_name == "PyTorch, channels-last"
    assert (row.ours, row.baseline) == ([1, 2], [2, 2])
    assert row.note == "peak memory 3 / 3 MiB; default 4 s; compiled 3 s"


def test_without_pytorch_there_is_no_baseline():
    row = speed._against_best("step", {"ours": Side(9, 1)}, lambda side: side.ask("infer", 5), 1, goal=0.5)
    assert row.cells() == ["step", "1 s", "", "", "≤ 0.5", "peak memory 3 MiB"]


def test_a_configuration_that_does_not_start_is_left_out(monkeypatch, capsys):
    @contextlib.contextmanager
    def worker(side, network):
        if side == "compiled":
            raise SystemExit("error: a worker ended")
        yield side

    monkeypatch.setattr(speed, "Worker", worker)
    with speed._sides("lenet", ["default", "compiled"]) as sides:
        assert sides == {"ours": "ours", "default": "default"}
    assert "PyTorch, compiled, did not start" in capsys.readouterr().err


def test_the_baseline_has_the_same_networks():
    """As many parameters, and logits of the same shape."""
    torch = pytest.importorskip("torch", reason="PyTorch is the baseline of benchmarks alone")
    from benchmarks import torch_baseline
    from preload_jax import make_classifier
    from preload_jax.training import loop as training

    for network, backbone in (("lenet", torch_baseline.LeNet()), ("wide_resnet", torch_baseline.WideResNet())):
        shape = speed.NETWORKS[network][1]
        ours = make_classifier(network, "square_logit", num_classes=10)
        variables = jax.eval_shape(lambda model=ours, s=shape: training.init_variables(model, s, key=jax.random.key(0)))
        theirs = torch_baseline.PreLoad(backbone, 10)
        count = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(variables["params"]))
        assert count == sum(p.numel() for p in theirs.parameters())
        images = torch.zeros(2, shape[2], *shape[:2])
        assert theirs(images).shape == (2, 11)
