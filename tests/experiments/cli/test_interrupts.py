"""Signals: nothing that takes an exception for damage may swallow them."""

import os
import signal

import jax
import pytest
from jax._src import distributed

from experiments.cli.interrupts import Interrupted, at_once
from preload_jax.devices import processes
from preload_jax.errors import UserError


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
    """Stands for the coordination service: the other process gets what the first one says."""

    def key_value_set(self, key, value):
        self.said = value

    def blocking_key_value_get(self, key, milliseconds):
        return self.said


@pytest.mark.parametrize(
    "error", [Interrupted(signal.SIGTERM), KeyboardInterrupt("stopped"), ValueError("x"), SystemExit(2)]
)
def test_the_other_processes_are_told_whatever_ends_the_first(monkeypatch, error):
    jax.devices()  # Backends begin with the client that is there then: not with the one below.
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    # JAX has no public name for it.
    monkeypatch.setattr(distributed.global_state, "client", _Service())

    def make():
        raise error

    with pytest.raises(type(error)):
        processes.from_first(make)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(UserError, match=str(error)):
        processes.from_first(make)
