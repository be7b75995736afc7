"""TensorBoard logs: what is in them, after a stop too, and without the package."""

import json
import struct
import sys

import pytest

from experiments.run import event_log
from experiments.run.event_log import EventLog
from experiments.runs.run_dir import RunDir
from preload_jax.errors import UserError
from tests.experiments.results_for_tests import results
from tests.experiments.runs_for_tests import SHORT, command, errors

pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")


def events(folder):
    """All scalars of a log as (tag, step, value): in files of records with a length and two checksums."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.glob("events*")):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            event = Event.FromString(content[place + 12 : place + 12 + length])
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            place += length + 16
    return found


def append(run_dir, *epochs):
    with open(run_dir.metrics, "a") as file:
        for epoch in epochs:
            line = {"stage": 0, "epoch": epoch, "step": 10 * (epoch + 1), "loss": 1 / (epoch + 1), "accuracy": 0.5}
            file.write(json.dumps({**line, "learning_rate": 0.1}) + "\n")


def test_a_log_that_goes_on_has_each_step_once(tmp_path):
    run_dir = RunDir(tmp_path)
    append(run_dir, 0, 1)
    first = EventLog(run_dir)
    first.update()
    assert [step for tag, step, _ in events(run_dir.tensorboard) if tag == "train/loss"] == [10, 20]
    # Stopped, the last epoch dropped, since its checkpoint was not written; another process goes on.
    first.writer.close()
    run_dir.metrics.write_text(run_dir.metrics.read_text().splitlines()[0] + "\n")
    log = EventLog(run_dir)
    append(run_dir, 1)
    log.update()
    append(run_dir, 2)
    log.update()
    log.finish(results(accuracy=0.75, ood={"photo": 0.25}))
    found = events(run_dir.tensorboard)
    losses = [(step, value) for tag, step, value in found if tag == "train/loss"]
    assert losses == [(10, 1.0), (20, 0.5), (30, pytest.approx(1 / 3))]
    assert ("train/learning_rate", 30, pytest.approx(0.1)) in found
    assert ("test/accuracy", 30, 0.75) in found
    assert ("fpr95/photo", 30, 0.25) in found


def test_a_run_with_a_log(folder, plain_pictures, capsys):
    assert command(folder, *SHORT, "--tensorboard") == 0
    assert any(line.split() == ["tensorboard", str(folder / "tensorboard")] for line in errors(capsys))
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    first = events(folder / "tensorboard")
    assert [(step, value) for tag, step, value in first if tag == "train/accuracy"] == [
        (line["step"], pytest.approx(line["accuracy"])) for line in metrics
    ]
    # ½ · 0.001 · (1 + cos(π · 10 / 30)) at the first step of the second epoch, a little less at its last.
    rates = [line["learning_rate"] for line in metrics]
    assert rates[0] > 0.00075 > rates[1] > 0.00025 > rates[2] > 0
    # A finished run is given a log, the same as it would have had.
    assert command(folder, *SHORT, "--tensorboard", "--quiet") == 0
    assert events(folder / "tensorboard") == first
    RunDir(folder).clear()
    assert not (folder / "tensorboard").exists()


def test_without_the_package_it_is_said_before_training(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UserError, match="tensorboardX"):
        event_log.require()
    assert command(folder, *SHORT, "--tensorboard") == 2
    (line,) = errors(capsys)
    assert line == "error: --tensorboard needs the package tensorboardX; run `pip install 'preload-jax[tensorboard]'`"
    assert not folder.exists()
