"""metrics.jsonl: loss and accuracy of each epoch, a line each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.runs import folder, records
from preload_jax.training.run import Progress

_NAMES = {"stage", "epoch", "step", "loss", "accuracy", "learning_rate"}


def append(path: Path, progress: Progress) -> None:
    """Writes the line of the epoch that ends; `step` counts over all stages, the learning rate is the last step's."""
    stage, report = progress.stage, progress.report
    line: dict[str, Any] = {
        "stage": stage.index,
        "epoch": report.epoch,
        "step": progress.position,
        "loss": progress.loss,
    }
    line |= {"accuracy": progress.accuracy, "learning_rate": stage.learning_rate(report.step - 1)}
    with open(path, "a") as file:
        file.write(records.line(line))


def keep(path: Path, *, up_to: int, warn: Callable[[str], None] = lambda message: None) -> None:
    """Drops the lines of steps after `up_to`, which will be written again; and damaged ones, of which it warns."""
    if not path.exists():
        return
    good, damaged = records.read_lines(path, is_epoch)
    if damaged:
        # The last one may be half written: the process was killed meanwhile.
        warn(f"{path}: left out damaged lines ({', '.join(map(str, damaged))}); the other epochs are kept")
    folder.write_text(path, "".join(records.line(line) for line in good if line["step"] <= up_to))


def is_epoch(line: Any) -> bool:
    """Whether it is an epoch's line: what it counts and measures, as numbers."""
    return (
        isinstance(line, dict)
        and {"stage", "epoch", "step", "loss"} <= line.keys() <= _NAMES
        and all(isinstance(line[name], int) for name in ("stage", "epoch", "step"))
        and all(records.is_number(value) for value in line.values())
    )
