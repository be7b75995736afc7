"""What a person sees while a run works: progress on a terminal, plain lines elsewhere, nothing with --quiet."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# Seconds between two plain progress lines.
_PLAIN_INTERVAL = 10.0


class Update(Protocol):
    """Called after each compiled call with the steps done and the means of loss and accuracy so far."""

    def __call__(self, done: int, *, loss: float, accuracy: float) -> None: ...


class Display:
    """Messages go to standard error, so that standard output holds results alone (a table, or JSON)."""

    def __init__(self, *, quiet: bool = False):
        self.quiet = quiet
        # A notebook gets plain lines: Jupyter sets FORCE_COLOR, but has no cursor that a progress bar could move.
        self.errors = Console(
            stderr=True, highlight=False, force_jupyter=False, force_terminal=sys.stderr.isatty() and None
        )
        # Lines are folded between words on a terminal, and left whole in a file.
        self.errors.soft_wrap = not self.errors.is_terminal

    def say(self, message: str) -> None:
        """A line for information."""
        if not self.quiet:
            self.errors.print(message, markup=False)

    def warn(self, message: str) -> None:
        """A line that --quiet does not hide."""
        self.errors.print(f"warning: {message}", markup=False, style="yellow")

    @contextmanager
    def progress(self, title: str, *, total: int, done: int = 0) -> Iterator[Update]:
        """A progress display of `total` steps, of which `done` were done before."""
        if self.quiet:
            yield lambda done, *, loss, accuracy: None
        elif self.errors.is_terminal:
            with _bar(self.errors) as bar:
                task = bar.add_task(title, total=total, completed=done, figures="compiling …")

                def update(done: int, *, loss: float, accuracy: float) -> None:
                    bar.update(task, completed=done, figures=_figures(loss, accuracy))

                yield update
        else:
            yield _PlainLines(self, title, total=total, done=done)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )


def _figures(loss: float, accuracy: float) -> str:
    return f"loss {loss:.3f}  accuracy {100 * accuracy:5.1f} %"


class _PlainLines:
    """A line now and then: the first and last calls, and one every few seconds between."""

    def __init__(self, display: Display, title: str, *, total: int, done: int):
        self.display, self.title, self.total, self.first = display, title, total, done
        self.started = self.last = time.monotonic()
        display.say(f"{title}: {total - done} steps" + (f", going on from step {done}" if done else ""))

    def __call__(self, done: int, *, loss: float, accuracy: float) -> None:
        now = time.monotonic()
        if done < self.total and now - self.last < _PLAIN_INTERVAL:
            return
        self.last = now
        elapsed = now - self.started
        left = elapsed / max(done - self.first, 1) * (self.total - done)
        self.display.say(
            f"{self.title}: step {done} of {self.total}, {_figures(loss, accuracy)},"
            f" {elapsed:.0f} s, about {left:.0f} s left"
        )


def show(text: str) -> None:
    """Results, on standard output."""
    sys.stdout.write(text.rstrip("\n") + "\n")
