"""Several live processes on one grid: each cell is done once, and a killed one is made good."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from experiments.paper import command as paper
from experiments.paper.command import Args

METHODS = ("standard", "ddu", "nc", "oe", "oe_ft", "energy_ft")
ASKED = {"dataset": "digits", "method": ",".join(METHODS), "seeds": "0", "shift": "rotation"}


def start(root):
    """A process that works on the grid."""
    options = [f"--{name}={value}" for name, value in ASKED.items()]
    options += ["--max-steps=40", "--outliers=uniform", "--json", f"--root={root}"]
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.paper", *options],
        env={**os.environ, "XLA_FLAGS": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out)


def titles(document, *names):
    return sorted((c["dataset"], c["method"], c["seed"], c["shift"] or "") for name in names for c in document[name])


def everything(root):
    """All cells, which have to be finished, without anything half-done beside them."""
    cells = paper.plan(Args(**ASKED))
    assert all(cell.is_finished(root) for cell in cells)
    assert (
        not list(root.glob("**/*.jsonl.tmp")) + list(root.glob("**/shift_*.jsonl")) + list(root.glob("**/failure.txt"))
    )
    for path in root.glob("**/metrics.jsonl"):
        steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
        assert steps == sorted(set(steps)), path
    return sorted((cell.dataset, cell.method, cell.seed, cell.shift or "") for cell in cells)


@pytest.mark.slow
def test_two_processes_share_a_grid_and_do_nothing_twice(tmp_path):
    both = [start(tmp_path), start(tmp_path)]
    documents = [outcome(process) for process in both]
    done = [titles(document, "done") for document in documents]
    assert all(done), "one of the processes did everything"
    assert sorted(done[0] + done[1]) == everything(tmp_path)
    for document in documents:
        assert titles(document, "done", "were_finished", "elsewhere") == everything(tmp_path)


@pytest.mark.slow
def test_what_a_killed_process_leaves_is_finished_by_the_other_or_a_restart(tmp_path):
    killed, other = start(tmp_path), start(tmp_path)
    # `os.walk`, unlike `glob`, takes it that folders of checkpoints come and go meanwhile.
    while killed.poll() is None and not any("results.json" in files for _, _, files in os.walk(tmp_path)):
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    outcome(other)
    restarted = outcome(start(tmp_path))
    assert titles(restarted, "done", "were_finished") == everything(tmp_path)
