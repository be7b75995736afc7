"""What a person sees while a command works, and its results; every command line has one `Display`.

Standard output holds results alone: text, or with --json one document.  Everything else goes to standard error:
progress bars on a terminal, plain lines elsewhere, and with --quiet only warnings.  NO_COLOR is respected.
"""

import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.cli import invocation
from experiments.cli.terminal import ErrorConsole, to_standard_output, wrapped
from experiments.cli.visible import visible

# Seconds between two plain progress lines.
_PLAIN_INTERVAL = 10.0
# Columns of a bar, and of a terminal that has room for it.
_BAR, _WIDE = 12, 100


class Update(Protocol):
    """Called now and then with how much is done, for training with the means of loss and accuracy so far.

    Where a unit takes long, `note` says how far it is.
    """

    def __call__(
        self, done: int, *, loss: float | None = None, accuracy: float | None = None, note: str = ""
    ) -> None: ...


class Display:
    """Messages, progress and results of a command.

    Args:
        quiet: shows only results and warnings.
        json: `result` prints JSON instead of text.
    """

    def __init__(self, *, quiet: bool = False, json: bool = False):
        self.quiet, self.json = quiet, json
        # A notebook gets plain lines: Jupyter sets FORCE_COLOR, but has no cursor that a progress bar could move.
        self.errors: Console = ErrorConsole(
            stderr=True,
            highlight=False,
            emoji=False,
            force_jupyter=False,
            force_terminal=sys.stderr.isatty() and None,
        )

    @property
    def has_bars(self) -> bool:
        """Whether progress is shown as bars."""
        return self.errors.is_interactive and not self.quiet

    def say(self, message: str) -> None:
        """A line for information."""
        if not self.quiet:
            self._print(message)

    def warn(self, message: str) -> None:
        """A line that --quiet does not hide."""
        self._print(f"warning: {message}", style="yellow")

    def _print(self, message: str, *, style: str | None = None) -> None:
        """A message, in lines that end between words on a terminal, and in one line in a file."""
        text = visible(invocation.spelled(message))
        text = wrapped(text, self.errors.width) if self.errors.is_terminal else text
        self.errors.print(text, markup=False, style=style, soft_wrap=True)

    def already(self, path: object, *, hint: str = "") -> None:
        """Says that something was finished before and is only reported."""
        self.say(f"{path} is finished; reporting it{hint}")

    def result(self, document: Any, *, text: str) -> None:
        """The results, on standard output: the document with --json, and else the text."""
        show(json.dumps(document, indent=2, allow_nan=False) if self.json else text)

    def end(self, places: Mapping[str, object], *, next: Mapping[str, Sequence[str]] | None = None) -> None:
        """The last lines: where things are, and commands to try next, to be copied.

        Args:
            places: paths by what is there.
            next: command lines by what they do.
        """
        lines = {what: str(path) for what, path in places.items()}
        lines |= {f"to {what}": invocation.spelled(shlex.join(command)) for what, command in (next or {}).items()}
        width = max((len(what) for what in lines), default=0)
        if not self.quiet:
            for what, line in lines.items():
                self.errors.print(visible(f"{what:{width}}  {line}"), markup=False, soft_wrap=True)

    @contextmanager
    def progress(
        self, title: str, *, total: int, done: int = 0, unit: str = "steps", images: int = 0, alike: bool = True
    ) -> Iterator[Update]:
        """A display of the progress of `total` units, of which `done` were done before.

        Args:
            title: what is being done.
            total: how many units there are.
            done: how many were done before.
            unit: what is counted, in the plural.
            images: how many images each is, for a rate in images/s; 0 shows none.
            alike: whether one takes about as long as another; else neither a rate nor a forecast is shown.
        """
        if self.quiet:
            yield lambda done, *, loss=None, accuracy=None, note="": None
        elif self.has_bars:
            with bars(self.errors) as shown:
                yield Bar(shown, title, Pace(total, done, unit, images, alike=alike))
        else:
            yield _PlainLines(self, title, Pace(total, done, unit, images, alike=alike))


class Pace:
    """How fast something goes; the first report is where it starts, since compiling comes before it."""

    def __init__(self, total: int, done: int, unit: str, images: int, *, alike: bool = True):
        self.total, self.before, self.unit, self.images, self.alike = total, done, unit, images, alike
        self.start: tuple[float, int] | None = None

    def figures(self, done: int, loss: float | None, accuracy: float | None, note: str = "") -> dict[str, str]:
        """What is worth showing after `done` units."""
        now = time.monotonic()
        parts = {"note": note} if note else {}
        parts |= {} if loss is None else {"loss": f"loss {loss:.3f}"}
        parts |= {} if accuracy is None else {"accuracy": f"accuracy {100 * accuracy:.1f} %"}
        if self.start is None:
            self.start = now, done
            return parts
        took, units = now - self.start[0], done - self.start[1]
        if self.alike and took > 0 and units > 0:
            slow, one = units < took, self.unit.removesuffix("s")
            parts["rate"] = f"{_number(took / units)} s/{one}" if slow else f"{_number(units / took)} {self.unit}/s"
            if done < self.total:
                parts["left"] = f"about {duration(took / units * (self.total - done))} left"
            if self.images:
                parts["images"] = f"{_number(self.images * units / took)} images/s"
        return parts


def fitted(parts: dict[str, str], width: int) -> str:
    """The figures that fit in `width` columns; time left and rate stay longest."""
    kept = dict(parts)
    for name in ("images", "accuracy", "loss", "rate", "left"):
        if len("  ".join(kept.values())) <= width:
            break
        kept.pop(name, None)
    return "  ".join(kept.values())


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def duration(seconds: float) -> str:
    """ "40 s", "12 min", "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3600:.1f} h"


def bars(console: Console) -> Progress:
    """A place for bars, each with a field `figures`; a narrow terminal has numbers alone."""
    columns = (TextColumn("{task.description}", markup=False), MofNCompleteColumn(), TimeElapsedColumn())
    figures = TextColumn("{task.fields[figures]}", markup=False)
    if console.width < _WIDE:
        return Progress(*columns, figures, console=console)
    return Progress(columns[0], BarColumn(bar_width=_BAR), *columns[1:], figures, console=console)


class Bar:
    """A bar among others; it stays when it is done."""

    def __init__(self, shown: Progress, title: str, pace: Pace):
        self.shown, self.pace = shown, pace
        self.task = shown.add_task(visible(title), total=pace.total, completed=pace.before, figures="starting …")

    def __call__(self, done: int, *, loss: float | None = None, accuracy: float | None = None, note: str = "") -> None:
        # Columns that do not fit would all be cut, the numbers, too.
        width = self.shown.console.width
        taken = (
            max(len(task.description) for task in self.shown.tasks) + 2 * len(str(self.pace.total)) + len("/0:00:00")
        )
        taken += 3 + (_BAR + 1 if width >= _WIDE else 0)
        figures = fitted(self.pace.figures(done, loss, accuracy, note), width - taken)
        self.shown.update(self.task, completed=done, figures=figures)

    def remove(self) -> None:
        self.shown.remove_task(self.task)


class _PlainLines:
    """A line now and then: the first and last calls, and one every few seconds between."""

    def __init__(self, display: Display, title: str, pace: Pace):
        self.display, self.title, self.pace = display, title, pace
        self.started = self.last = time.monotonic()
        left = f"{pace.total - pace.before:,} {pace.unit}"
        display.say(f"{title}: {left}" + (f", going on after {pace.before:,}" if pace.before else ""))

    def __call__(self, done: int, *, loss: float | None = None, accuracy: float | None = None, note: str = "") -> None:
        now = time.monotonic()
        figures = self.pace.figures(done, loss, accuracy, note).values()
        if done < self.pace.total and now - self.last < _PLAIN_INTERVAL:
            return
        self.last = now
        parts = [f"{done:,} of {self.pace.total:,} {self.pace.unit} in {duration(now - self.started)}", *figures]
        self.display.say(f"{self.title}: {', '.join(parts)}")


def show(text: str) -> None:
    """Results, on standard output."""
    with to_standard_output():
        sys.stdout.write(text.rstrip("\n") + "\n")
        sys.stdout.flush()
