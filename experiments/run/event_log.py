"""TensorBoard logs of runs, written by tensorboardX, which needs no TensorFlow (extra `tensorboard`)."""

import importlib
import time
from functools import cached_property
from typing import Any

from experiments.runs import epochs, ours, records
from experiments.runs.run_dir import RunDir
from preload_jax.errors import UserError


class EventLog:
    """The log of a run, in the folder `tensorboard` beside its results.

    It is a copy of metrics.jsonl and results.json, written anew by each process: so a run that goes on writes no step
    twice, and a run that was trained without a log can be given one.

    Raises:
        UserError: when tensorboardX is not installed.
    """

    def __init__(self, run_dir: RunDir):
        self.run_dir, self.offset, self.step = run_dir, 0, 0
        require()

    @cached_property
    def writer(self) -> Any:
        """Of a new file, from when the first line is written: the run's folder is locked then."""
        ours.remove_events(self.run_dir.tensorboard)
        self.run_dir.tensorboard.mkdir(parents=True, exist_ok=True)
        # Not its SummaryWriter, which writes in another thread: that one dies of a full disk, and the run then hangs.
        files = importlib.import_module("tensorboardX.event_file_writer")
        return files.EventsWriter(str(self.run_dir.tensorboard / "events"))

    def update(self) -> None:
        """Adds the epochs that metrics.jsonl has and the log does not: loss, accuracy and learning rate by step."""
        with open(self.run_dir.metrics, "rb") as file:
            file.seek(self.offset)
            lines, _ = records.lines(file.read(), epochs.is_epoch)
            self.offset = file.tell()
        for line in lines:
            self.step = line["step"]
            for name in ("loss", "accuracy", "learning_rate"):
                if name in line:  # older runs did not keep the learning rate
                    self._add(f"train/{name}", line[name])
        self.writer.flush()

    def finish(self, results: dict[str, Any]) -> None:
        """Adds what is missing and the metrics of results.json, at the last step, and closes the log."""
        if self.run_dir.metrics.is_file():  # not of a method that trains nothing
            self.update()
        for name, value in sorted(results["in_domain"].items()):
            self._add(f"test/{name}", value)
        for ood, values in sorted(results["ood"].items()):
            for name, value in sorted(values.items()):
                self._add(f"{name}/{ood}", value)
        self.writer.close()

    def _add(self, name: str, value: float) -> None:
        events, summary = (importlib.import_module(f"tensorboardX.{part}") for part in ("proto.event_pb2", "summary"))
        scalar = summary.scalar(name, value)
        self.writer.write_event(events.Event(wall_time=time.time(), step=self.step, summary=scalar))


def require() -> None:
    """Raises a UserError when tensorboardX is not installed."""
    try:
        import tensorboardX  # noqa: F401
    except ImportError as error:
        raise UserError(
            "--tensorboard needs the package tensorboardX; run `pip install 'preload-jax[tensorboard]'`"
        ) from error
