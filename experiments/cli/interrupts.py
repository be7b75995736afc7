"""Stopping on request without losing work.

While a network is trained SIGINT and SIGTERM are noted, and acted on between two compiled calls (`Signals`); elsewhere
there is nothing to save, and they stop at once (`at_once`).
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Interrupted(BaseException):
    """A signal asked the process to stop, and everything was saved.

    No `Exception`: code that takes any of these for a damaged file, here or in a library, must not swallow it.

    Attributes:
        status: the exit status for it.
        begun: whether what was asked for had begun, so that there is something to go on with.
    """

    def __init__(self, signum: int):
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.status = 128 + signum
        self.begun = True


@contextmanager
def not_begun() -> Iterator[None]:
    """What is stopped in it has not begun yet."""
    try:
        yield
    except Interrupted as stop:
        stop.begun = False
        raise


@contextmanager
def at_once() -> Iterator[None]:
    """While it is entered, SIGINT and SIGTERM raise `Interrupted` where they find the process."""
    received: list[int] = []

    def stop(signum: int, frame: FrameType | None) -> NoReturn:
        received.append(signum)
        raise Interrupted(signum)

    before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
        if received:  # It was raised where Python drops exceptions: in a finaliser, or a C library's callback.
            raise Interrupted(received[0])
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class Signals:
    """While it is entered, the first SIGINT or SIGTERM is kept in `received`; a second one ends the process at once."""

    def __init__(self) -> None:
        self.received: int | None = None

    def __enter__(self) -> "Signals":
        self._before = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self.received is not None:
            sys.exit(128 + signum)
        self.received = signum
