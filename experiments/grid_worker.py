"""Carries a grid out: skips what is finished, leaves alone what another process does, goes on after a failure."""

import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax

from experiments import grid, runs, shift_report, workflow
from experiments.grid import Cell
from experiments.grid_display import GridDisplay
from experiments.interrupts import Interrupted
from experiments.recipes import Config
from experiments.runs import BusyError
from preload_jax.errors import CheckpointError, UserError, reason
from preload_jax.training import NonFiniteLossError

# Seconds between two looks at a run that another process has and that this one waits for.
_PATIENCE = 5.0


@dataclass
class Outcome:
    """What became of the cells; `failed` has the reason of each."""

    done: list[Cell] = field(default_factory=list)
    skipped: list[Cell] = field(default_factory=list)
    elsewhere: list[Cell] = field(default_factory=list)
    failed: dict[Cell, str] = field(default_factory=dict)


@dataclass
class Worker:
    """Works through cells.

    Attributes:
        configure: the configuration of a run.
        options: root and data folder of all runs.
        shift_images: how many test images shifts use; None for all.
        display: of the grid.
        sleep: waits for another process.
    """

    configure: Callable[[Cell], Config]
    options: workflow.Options
    display: GridDisplay
    shift_images: int | None = None
    epochs: int | None = None
    sleep: Callable[[float], None] = time.sleep
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def root(self) -> Path:
        return self.options.root

    def work(self, todo: Sequence[Cell]) -> Outcome:
        """Does every cell that is not finished.

        A cell that another process has is left to it; one whose starting point another process has comes later.

        Raises:
            Interrupted: everything is saved; the same call goes on.
        """
        queue, put_off, dataset = deque(todo), 0, None
        while queue:
            cell = queue.popleft()
            if cell.dataset != dataset:
                # Compiled programs of one data set are of no use to another.
                jax.clear_caches()
                dataset = cell.dataset
            if self._do(cell):
                put_off = 0
                continue
            queue.append(cell)
            put_off += 1
            if put_off >= len(queue):
                self.sleep(_PATIENCE)
        return self.outcome

    def _do(self, cell: Cell) -> bool:
        """Does one cell; False when it has to wait for another process."""
        started, worked, failed = time.monotonic(), False, False
        cost = grid.seconds([cell], accelerator=jax.default_backend() != "cpu", epochs=self.epochs)
        try:
            ready = self._prepare(cell)
            if not ready:
                return False
            finished = cell.is_finished(self.root)
            self._obtain(cell)
            worked = not finished
            (self.outcome.skipped if finished else self.outcome.done).append(cell)
            text = "was finished" if finished else "done"
        except BusyError:
            self.outcome.elsewhere.append(cell)
            text = "another process has it"
        except (UserError, NonFiniteLossError, CheckpointError, OSError) as error:
            self.outcome.failed[cell], failed = str(error), True
        except Interrupted:
            raise
        except Exception as error:
            self.outcome.failed[cell], failed = self._note(cell, error), True
        if failed:
            text = f"failed: {self.outcome.failed[cell]}"
        took = time.monotonic() - started
        self.display.finish(cell.title, text, cost=cost, took=took, worked=worked, failed=failed)
        return True

    def _prepare(self, cell: Cell) -> bool:
        """Makes what the cell needs; False when another process is at it."""
        needed = cell.needs
        if needed is None or needed.is_finished(self.root) or cell.is_finished(self.root):
            return True
        if needed in self.outcome.failed:
            raise UserError(f"it starts from {needed.title}, which failed")
        try:
            if not self._prepare(needed):
                return False
            self._obtain(needed)
        except BusyError:
            return False
        return True

    def _obtain(self, cell: Cell) -> None:
        run_dir = cell.run_dir(self.root)
        if cell.shift is None:
            workflow.obtain(self.configure(cell), run_dir, options=self.options, display=self.display)
        elif not cell.is_finished(self.root):
            with run_dir.locked():
                shift_report.evaluate(
                    runs.load_run(run_dir.path),
                    cell.shift,
                    data_dir=self.options.data_dir,
                    num_images=self.shift_images,
                    mesh=self.options.evaluation_mesh,
                )

    def _note(self, cell: Cell, error: Exception) -> str:
        """Keeps a traceback in the run's folder: a defect, or memory that ran out."""
        path = cell.run_dir(self.root).path / "failure.txt"
        runs.write_text(path, "".join(traceback.format_exception(error)))
        return f"{reason(error)} (traceback in {path})"
