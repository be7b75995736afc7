"""The progress of a whole grid: how many cells are done and how long the rest may take, and the run in hand."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.progress import Progress, TaskID

from experiments.cli.display import Bar, Display, Pace, Update, bars, duration


class GridDisplay(Display):
    """On a terminal two bars, the grid's and the current run's; elsewhere a line a cell; with quiet only warnings.

    `cost` is a rough estimate of all cells in seconds; after the first cell it is corrected by what that one took.
    """

    def __init__(self, *, total: int, cost: float, quiet: bool = False, json: bool = False):
        super().__init__(quiet=quiet, json=json)
        self.total, self.cost_left, self.cost_done = total, cost, 0.0
        self.done = self.failed = 0
        self.started = self.last = time.monotonic()
        self.bars: Progress | None = None
        self.found_finished = False
        self.overall: TaskID | None = None

    def __enter__(self) -> "GridDisplay":
        if self.has_bars:
            self.bars = bars(self.errors)
            self.overall = self.bars.add_task("all", total=self.total, figures=self.left())
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bars is not None:
            self.bars.stop()

    def say(self, message: str) -> None:
        """What a single run says of itself is too much here."""

    def already(self, path: object, *, hint: str = "") -> None:
        """Notes that the run in hand was finished before, or by another process just now."""
        self.found_finished = True

    def line(self, message: str) -> None:
        """A line about the grid."""
        super().say(message)

    def left(self) -> str:
        """How long the rest may take."""
        pace = (self.last - self.started) / self.cost_done if self.cost_done else 1.0
        into_cell = time.monotonic() - self.last
        text = f"about {duration(max(self.cost_left * pace - into_cell, 0.0))} left"
        return f"{self.failed} failed, {text}" if self.failed else text

    def finish(self, title: str, outcome: str, *, cost: float, took: float, worked: bool, failed: bool = False) -> None:
        """One cell is done; `worked` when it was computed here and now, so that its time says something."""
        self.done += 1
        self.failed += failed
        self.cost_left -= cost
        if worked:
            self.cost_done += cost
        self.last = time.monotonic()
        if self.bars is not None and self.overall is not None:
            self.bars.update(self.overall, completed=self.done, figures=self.left())
        if self.bars is None or failed:
            timing = f" in {duration(took)}" if worked else ""
            self.line(f"[{self.done}/{self.total}] {title}: {outcome}{timing}; {self.left()}")

    @contextmanager
    def progress(
        self, title: str, *, total: int, done: int = 0, unit: str = "steps", images: int = 0, alike: bool = True
    ) -> Iterator[Update]:
        """The current run's bar, below the grid's."""
        if self.bars is None or self.overall is None:
            yield lambda done, *, loss=None, accuracy=None, note="": None
            return
        shown, overall = self.bars, self.overall
        bar = Bar(shown, title, Pace(total, done, unit, images, alike=alike))

        def update(done: int, *, loss: float | None = None, accuracy: float | None = None, note: str = "") -> None:
            bar(done, loss=loss, accuracy=accuracy, note=note)
            shown.update(overall, figures=self.left())

        try:
            yield update
        finally:
            bar.remove()
