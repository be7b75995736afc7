"""Several processes: two of them, on this machine, train one network; the first alone writes."""

import json
import os
import re
import socket
import subprocess
import sys

import numpy as np
import pytest

from experiments.evaluate import command as evaluate
from preload_jax.devices import processes
from tests.experiments.runs_for_tests import SHORT, ask, command

GLOO = re.compile(
    r"\[Gloo\] Rank | is connected to | peer ranks\. |Expected number of connected peer ranks is : |\d+|\s"
)


def run_two(folder, *options, limit=300, command="run"):
    """Both processes' (exit status, standard output, standard error), each with two virtual devices.

    Each has another folder: the first's is the run's, the other's must stay away.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    started = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", f"experiments.{command}", *options),
                *([f"--run-dir={folder / f'run{i}'}"] if command == "run" else []),
                *(f"--coordinator=127.0.0.1:{port}", "--num-processes=2", f"--process-id={i}"),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=limit) for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, *output) for process, output in zip(started, outputs, strict=True)]


def curve(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [(line["epoch"], line["step"], line["loss"]) for line in map(json.loads, lines)]


@pytest.mark.slow
def test_two_processes_train_like_one_and_one_goes_on(tmp_path, capsys):
    (first, out, errors), (second, other_out, other_errors) = run_two(
        tmp_path, *SHORT, "--data-placement=host", "--detectors=msp,mahalanobis,knn,rankfeat"
    )
    assert (first, second) == (0, 0), errors + other_errors
    assert "FarAway-RD" in out
    assert other_errors == ""
    # Gloo, the CPU's collectives, says that it is connected, each word on its own: its threads' lines mix.
    assert GLOO.sub("", other_out) == ""
    assert not (tmp_path / "run1").exists()
    assert command(tmp_path / "alone", *SHORT, "--quiet") == 0
    np.testing.assert_allclose(curve(tmp_path / "run0"), curve(tmp_path / "alone"), rtol=1e-5)
    # Each has evaluated its share, the detectors, too, and one process evaluates to the same numbers.
    shared = json.loads((tmp_path / "run0" / "detectors.json").read_text())["detectors"]
    assert set(shared) == {"msp", "mahalanobis", "knn", "rankfeat"}
    (together, out, errors), (other, other_out, _) = run_two(
        tmp_path, f"--run={tmp_path / 'run0'}", "--detectors=msp,mahalanobis,knn", "--json", command="evaluate"
    )
    assert (together, other, GLOO.sub("", other_out)) == (0, 0, ""), errors
    capsys.readouterr()
    printed = json.loads(out[out.index("{") :])
    assert ask(evaluate, f"--run={tmp_path / 'run0'}", "--detectors=msp,mahalanobis,knn", "--json", "--quiet") == 0
    alone = json.loads(capsys.readouterr().out)
    for name, row in alone["detectors"].items():
        for there in (printed["detectors"][name], shared[name]):
            assert there["ood"].keys() == row["ood"].keys()
            for of_set in row["ood"]:
                assert there["ood"][of_set] == pytest.approx(row["ood"][of_set], rel=1e-6)
    assert printed["in_domain"] == pytest.approx(alone["in_domain"], rel=1e-6)
    # What one process is told is wrong, all are told.
    for status, _, errors in run_two(tmp_path, *SHORT, "--seed=1"):
        assert status == 2
        assert "run0 holds a run of another configuration: --seed 0 there, 1 asked for" in errors
    # The results are the first process's evaluation of the last checkpoint; one process makes them again from it.
    before = json.loads((tmp_path / "run0" / "results.json").read_text())
    (tmp_path / "run0" / "results.json").unlink()
    assert command(tmp_path / "run0", *SHORT, "--quiet") == 0
    after = json.loads((tmp_path / "run0" / "results.json").read_text())
    assert after["in_domain"]["log_likelihood"] == pytest.approx(before["in_domain"]["log_likelihood"], rel=1e-5)


def test_one_process_is_the_first_and_has_nobody_to_tell():
    assert processes.is_first()
    assert processes.from_first(lambda: 3) == 3
    assert processes.together(lambda: "here") == "here"
    assert [processes.any_signal(received) for received in (None, 15)] == [None, 15]
