"""Signals: nothing that takes an exception for damage may swallow them."""

import json
import os
import signal

import pytest

from experiments.cli.interrupts import Interrupted, at_once
from preload_jax.devices import processes


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_goes_through_code_that_catches_every_exception(number, status):
    went_on = []

    def reads_a_file():
        with at_once():
            try:
                os.kill(os.getpid(), number)
            except Exception:
                went_on.append("taken for damage")

    with pytest.raises(Interrupted) as stop:
        reads_a_file()
    assert stop.value.status == status
    assert not went_on


def test_a_signal_that_a_finaliser_loses_is_raised_at_the_end(recwarn):
    class Finalised:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)

    ended = []

    def finalises():
        with at_once():
            Finalised()
            ended.append(True)

    with pytest.raises(Interrupted):
        finalises()
    assert ended == [True]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


class _Service:
    """Stands for the coordination service."""

    def __init__(self):
        self.said = {}

    def key_value_set(self, key, value):
        self.said[key] = json.loads(value)


@pytest.mark.parametrize("error", [Interrupted(signal.SIGTERM), KeyboardInterrupt(), ValueError("x"), SystemExit(2)])
def test_the_other_processes_are_told_whatever_ends_the_first(monkeypatch, error):
    service = _Service()
    monkeypatch.setattr(processes.jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "_client", lambda: service)

    def make():
        raise error

    with pytest.raises(type(error)):
        processes.from_first(make)
    assert [said["raised"] for said in service.said.values()] == ["UserError"]
