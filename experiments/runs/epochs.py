"""metrics.jsonl: loss and accuracy of each epoch, a line each."""

import json
from pathlib import Path
from typing import Any

from experiments.runs import folder
from preload_jax.training.run import Progress


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
        file.write(json.dumps(line) + "\n")


def keep(path: Path, *, up_to: int) -> None:
    """Drops the lines of steps after `up_to`: they will be written again."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            if json.loads(line)["step"] <= up_to:
                kept.append(line)
        except (json.JSONDecodeError, KeyError):
            break  # the process was killed while it wrote this line
    folder.write_text(path, "".join(line + "\n" for line in kept))
