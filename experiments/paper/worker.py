"""Carries a grid out: skips what is finished, leaves alone what another process does, goes on after a failure."""

import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from experiments.evaluate import detectors as by_detector
from experiments.evaluate import shift as shift_report
from experiments.paper import grid
from experiments.paper.display import GridDisplay
from experiments.paper.grid import Job
from experiments.run import workflow
from experiments.run.options import Options
from experiments.runs import folder as runs
from experiments.runs.configuration import Config
from experiments.runs.run_dir import BusyError, RunDir
from preload_jax.errors import CheckpointError, UserError, reason
from preload_jax.training.loop import NonFiniteLossError

# Seconds between two looks at a run that another process has and that this one waits for.
_PATIENCE = 5.0


@dataclass
class Outcome:
    """What became of the cells; `failed` has the reason of each."""

    done: list[Job] = field(default_factory=list)
    skipped: list[Job] = field(default_factory=list)
    elsewhere: list[Job] = field(default_factory=list)
    failed: dict[Job, str] = field(default_factory=dict)

    def document(self, root: Path) -> dict[str, Any]:
        """All of it for --json; each cell with its folder."""
        groups = {"done": self.done, "were_finished": self.skipped, "elsewhere": self.elsewhere}
        return {
            "root": str(root),
            **{name: [cell.as_dict(root) for cell in group] for name, group in groups.items()},
            "failed": [{**cell.as_dict(root), "why": why} for cell, why in self.failed.items()],
        }


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

    configure: Callable[[Job], Config]
    options: Options
    display: GridDisplay
    shift_images: int | None = None
    epochs: int | None = None
    sleep: Callable[[float], None] = time.sleep
    outcome: Outcome = field(default_factory=Outcome)
    # What was made here because another cell needed it, and what was once seen in another process's hands.
    _made: set[Job] = field(default_factory=set, init=False)
    _busy: set[Job] = field(default_factory=set, init=False)

    @property
    def root(self) -> Path:
        return self.options.root

    def work(self, todo: Sequence[Job]) -> Outcome:
        """Does every cell that is not finished.

        A cell that another process has is looked at again at the end, since that process may have been killed, and
        then left to it; one whose starting point another process has comes later.

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

    def _do(self, cell: Job) -> bool:
        """Does one cell; False when it has to wait for another process."""
        started, worked, failed = time.monotonic(), False, False
        accelerator = jax.default_backend() != "cpu"
        cost = grid.seconds([cell], accelerator=accelerator, epochs=self.epochs, shift_images=self.shift_images)
        try:
            ready = self._prepare(cell)
            if not ready:
                return False
            worked = self._obtain(cell)
            done = worked or cell in self._made
            (self.outcome.done if done else self.outcome.skipped).append(cell)
            text = "done" if done else "was finished"
        except BusyError:
            if cell not in self._busy:
                self._busy.add(cell)
                return False
            self.outcome.elsewhere.append(cell)
            text = "another process has it"
        except (UserError, NonFiniteLossError, CheckpointError, OSError) as error:
            self.outcome.failed[cell], failed = str(error), True
        except Exception as error:
            self.outcome.failed[cell], failed = self._note(cell, error), True
        if failed:
            text = f"failed: {self.outcome.failed[cell]}"
        took = time.monotonic() - started
        self.display.finish(cell.title, text, cost=cost, took=took, worked=worked, failed=failed)
        return True

    def _prepare(self, cell: Job) -> bool:
        """Makes what the cell needs; False when another process is at it."""
        needed = cell.needs
        if needed is None or cell.is_finished(self.root):
            return True
        if needed.is_finished(self.root):
            if why := needed.problem(self.root, self.configure(needed)):
                raise UserError(f"it starts from {needed.title}: {why}")
            return True
        if needed in self.outcome.failed:
            raise UserError(f"it starts from {needed.title}, which failed")
        try:
            if not self._prepare(needed):
                return False
            if self._obtain(needed):
                self._made.add(needed)
        except BusyError:
            return False
        return True

    def _obtain(self, cell: Job) -> bool:
        """Does a cell; False when it was finished before, or by another process just now."""
        run_dir = cell.run_dir(self.root)
        self.display.found_finished = False
        if cell.shift is None:
            workflow.obtain(self.configure(cell), run_dir, options=self.options, display=self.display)
            if self.options.detectors and not by_detector.is_done(run_dir, self.options.detectors):
                by_detector.obtain(
                    run_dir, self.options.detectors, data_dir=self.options.data_dir, display=self.display
                )
                self.display.found_finished = False
        else:
            shift_report.obtain(
                run_dir,
                cell.shift,
                data_dir=self.options.data_dir,
                num_images=self.shift_images,
                display=self.display,
                mesh=self.options.evaluation_mesh,
            )
        _failure(run_dir).unlink(missing_ok=True)
        return not self.display.found_finished

    def _note(self, cell: Job, error: Exception) -> str:
        """Keeps a traceback in the run's folder: a defect, or memory that ran out."""
        path = _failure(cell.run_dir(self.root))
        runs.write_text(path, "".join(traceback.format_exception(error)))
        return f"{reason(error)} (traceback in {path})"


def _failure(run_dir: RunDir) -> Path:
    """Where the traceback of a run is that failed; gone when it has succeeded."""
    return run_dir.path / "failure.txt"
