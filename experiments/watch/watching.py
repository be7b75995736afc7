"""One JSON line an image, and a monitor whose state outlives the process."""

import dataclasses
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.cli.display import Display, show
from experiments.cli.interrupts import Interrupted, at_once
from experiments.predict import prediction
from experiments.runs import records
from experiments.watch import source
from experiments.watch.asker import Asker
from preload_jax.decisions import Monitor, Rule
from preload_jax.errors import DataError, UserError

# Seconds between two writings of the state; one at the end comes on top.
_INTERVAL = 1.0


class Kept:
    """A monitor, and the file that keeps what it has seen.

    Args:
        rule: of the network; without one there is nothing to monitor.
        path: of the file; None for none.
        error: of a monitor that begins here.
        why_no_rule: what the message about a missing rule ends with.

    Raises:
        UserError: for a file without a rule, or one that is damaged, of another rule, or of another error.
    """

    def __init__(self, rule: Rule | None, path: Path | None, *, error: float, why_no_rule: str = ""):
        if rule is None and path is not None:
            raise UserError(
                f"--state keeps what a monitor saw, and a monitor takes a rule: the network has none{why_no_rule}"
            )
        if rule is not None and rule.by_class and path is not None:
            raise UserError("--state keeps what a monitor saw, and a monitor takes a rule with one threshold for all")
        self.path = path
        self.monitor = None if rule is None or rule.by_class else self._monitor(rule, error)
        self._state = None if self.monitor is None else self.monitor.state()
        self._written = time.monotonic()

    def update(self, scores: Any) -> dict[str, Any] | None:
        """Takes the next scores; what the monitor has seen, for JSON."""
        if self.monitor is None:
            return None
        status = self.monitor.update(scores)
        # A whole one: a signal may come in the middle of the next update.
        self._state = self.monitor.state()
        if time.monotonic() - self._written > _INTERVAL:
            self.write()
        return dataclasses.asdict(status)

    def write(self) -> None:
        """Writes the state, whole or not at all."""
        if self.path is not None and self._state is not None:
            records.write(self.path, {"monitor": self._state})
            self._written = time.monotonic()

    def _monitor(self, rule: Rule, error: float) -> Monitor:
        monitor = Monitor(rule, error=error)
        if self.path is None:
            return monitor
        if self.path.is_dir():
            raise UserError(f"{self.path} is a folder; expected a file for --state")
        advice = "delete it, or give another --state"
        try:
            state = records.read(self.path, advice=advice).get("monitor")
        except FileNotFoundError:
            return monitor
        if not isinstance(state, dict):
            raise UserError(f"{self.path} holds no monitor's state; {advice}")
        try:
            restored = Monitor.restore(rule, state)
        except UserError as problem:
            raise UserError(f"{self.path}: {problem}; {advice}") from None
        if restored.error != monitor.error:
            raise UserError(f"{self.path} was begun with --error={restored.error:g}, not {monitor.error:g}; {advice}")
        return restored


def watch(asker: Asker, kept: Kept, paths: Sequence[Path], *, display: Display) -> int:
    """Answers for each image; the exit status: 0, 1 if one could not be read, 130 or 143 if it was stopped."""
    failed, drifted = 0, kept.monitor is not None and kept.monitor.status.drifted
    try:
        with at_once():
            for name, read in source.images(paths, asker.image_shape):
                try:
                    images = read()
                except (DataError, OSError) as problem:
                    failed += 1
                    show(json.dumps({"image": name, "error": " ".join(str(problem).split())}))
                    continue
                for image in images:
                    with warnings.catch_warnings():
                        # Pixels outside [0, 1] are among the reasons.
                        warnings.simplefilter("ignore", UserWarning)
                        said, reasons = asker.ask(image.image)
                    (row,) = prediction.rows([image], said, [reasons], class_names=asker.class_names)
                    seen = kept.update(said.score)
                    show(json.dumps({**row, "monitor": seen}, allow_nan=False))
                    if seen is not None and seen["drifted"] and not drifted:
                        drifted = True
                        display.warn(f"the images are no longer in-domain, since {image.name} at the latest")
    except Interrupted as stop:
        return stop.status
    finally:
        kept.write()
    return 1 if failed else 0
