"""metrics.jsonl: loss and accuracy of each epoch, a line each with a digest of its own."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.runs import documents
from preload_jax.errors import DataError
from preload_jax.formats import files, records
from preload_jax.training.run import Progress

# An epoch's line: it has no other braces.  Where the end of a line was lost, two are on one line.
_LINE = re.compile(rb"\{[^{}\n]*\}")
_MOST = 1 << 28


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
    files.append_line(path, records.line(line))


def read(path: Path) -> tuple[list[dict[str, Any]], bytes]:
    """The epochs that are whole, in the file's order; and the bytes of all that is not, a line each.

    Raises:
        DataError: when it is no plain file, or larger than any such file.
    """
    good, damaged = [], []
    for line in files.read_bytes(path, most=_MOST).split(b"\n"):
        at = 0
        for found in _LINE.finditer(line):
            try:
                good.append(records.loads(found[0], documents.EPOCH))
            except DataError:
                continue
            damaged.append(line[at : found.start()])
            at = found.end()
        damaged.append(line[at:])
    return good, b"".join(part + b"\n" for part in damaged if part.strip())


def keep(path: Path, *, up_to: int, warn: Callable[[str], None] | None = None) -> None:
    """Drops the lines of steps after `up_to`, which will be written again; damaged ones are put beside the file.

    Args:
        path: of the file; nothing is done where there is none.
        up_to: the last step that is saved.
        warn: is told of damage; None prints it as a warning.
    """
    if not path.exists():
        return
    good, damaged = read(path)
    kept = [records.line(line) for line in good if line["step"] <= up_to]
    if damaged:
        aside = path.with_name(f"damaged_{path.name}")
        before = files.read_bytes(aside, most=_MOST) if aside.is_file() else b""
        files.write_bytes(aside, before + damaged)
        tell = warn or (lambda message: print(f"warning: {message}", file=sys.stderr))
        count = damaged.count(b"\n")
        tell(f"{path} has {count} damaged line{'s' * (count > 1)}; moved to {aside.name}, all others are kept")
    files.write_bytes(path, b"".join(line + b"\n" for line in kept))
