"""Stopping on request: nothing that goes on after errors goes on after a signal."""

import os
import signal
import time

import jax
import pytest

from experiments.cli.interrupts import Interrupted, Signals, at_once
from preload_jax.formats import checkpoints
from preload_jax.formats.checkpoints import Checkpoints


def stop(*args, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


def swallow_errors():
    try:
        stop()
    except Exception:
        pytest.fail("it was taken for an error")


class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)


def in_a_destructor():
    Dropped()


@pytest.mark.parametrize("work", [stop, swallow_errors, in_a_destructor])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_stops_at_once_whatever_the_code_catches(work):
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted, match="stopped by SIGTERM") as caught, at_once():
        work()
    assert caught.value.status == 143
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_signal_while_a_checkpoint_is_read_is_no_damage(tmp_path, monkeypatch):
    with Checkpoints(tmp_path / "checkpoints") as store:
        for position in (1, 2):
            store.save(position, {"a": jax.numpy.arange(3.0)})
    monkeypatch.setattr(Checkpoints, "_read", stop)
    said = []
    with pytest.raises(Interrupted), at_once():
        checkpoints.load(tmp_path / "checkpoints", on_damaged=said.append)
    assert said == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints"]


def test_without_a_signal_nothing_is_raised():
    with at_once():
        pass
    with Signals() as signals:
        assert signals.received is None
