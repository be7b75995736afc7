"""Evaluates a finished run under data-set shift: accuracy and calibration by angle, or by corruption and severity."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh
from rich.table import Table

from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from experiments.runs import collected, derived, records
from experiments.runs import folder as runs
from experiments.runs.configuration import Config
from experiments.runs.data import load_splits
from experiments.runs.folder import Run
from experiments.runs.run_dir import RunDir
from preload_jax import evaluation
from preload_jax.data import shift
from preload_jax.data.catalogue import CORRUPTIONS
from preload_jax.data.splits import Arrays
from preload_jax.devices import forward
from preload_jax.errors import UserError, unknown

MEASURES = ("accuracy", "ece", "brier", "log_likelihood", "mmc")


def check(name: str, config: Config, *, data_dir: Path | None, num_images: int | None = None) -> None:
    """Raises a UserError when a run of this configuration cannot be evaluated under the shift, before its training."""
    if name not in shift.SHIFTS:
        raise UserError(unknown("--shift", name, shift.SHIFTS))
    if num_images is not None and num_images < 1:
        raise UserError(f"--shift-images must be at least 1, got {num_images}")
    if name == "cifar10_c" and config.dataset != "cifar10":
        raise UserError(f"--shift=cifar10_c has the classes of cifar10, the run is of {config.dataset}; give another")
    # The first level of one image of the right shape: what is missing or does not fit is found now.
    shape = config.data.image_shape
    one = Arrays(np.zeros((1, *shape), np.uint8), np.zeros(1, np.int32))
    next(iter(shift.load(name, test=one, data_dir=data_dir, num_images=1)))


def path(run_dir: RunDir, name: str) -> Path:
    """Where the report of a shift is kept."""
    return run_dir.path / f"shift_{name}.json"


def obtain(
    run_dir: RunDir,
    name: str,
    *,
    data_dir: Path | None,
    num_images: int | None = None,
    display: Display,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    """The report of a finished run under a shift: read where it is there, evaluated where it is not.

    Raises:
        UserError: for an unknown shift, one whose files or package are missing, or a report of more images.
        BusyError: when another process works in the folder.
    """
    with run_dir.locked():
        report = collected.read_shift(path(run_dir, name)) if path(run_dir, name).is_file() else None
        if report is not None and report["num_images"] == num_images:
            display.already(path(run_dir, name))
            return report
        if report is not None and (report["num_images"] or np.inf) > (num_images or np.inf):
            there = f"{report['num_images']} images" if report["num_images"] else "all test images"
            raise UserError(
                f"{path(run_dir, name)} is of {there}, more than --shift-images={num_images}; delete it, or leave"
                " --shift-images as it was"
            )
        run = runs.load_run(run_dir.path, on_damaged=display.warn)
        return _evaluate(run, name, data_dir, num_images, display=display, mesh=mesh)


class _Levels:
    """The levels that are done, a line each in shift_NAME.jsonl, so that a long evaluation goes on where it stopped."""

    def __init__(self, path: Path, num_images: int | None):
        self.path = path
        self.of = {"num_images": num_images, "network": derived.network_of(RunDir(path.parent))}
        self.done: dict[tuple[str, int], dict[str, Any]] = {}
        good, _ = records.read_lines(path, collected.is_level)
        for row in good:
            if {name: row.pop(name, 0) for name in self.of} == self.of:
                self.done[row["kind"], row["level"]] = row
        runs.write_text(path, "".join(self._line(row) for row in self.done.values()))

    def _line(self, row: dict[str, Any]) -> str:
        return records.line({**self.of, **row})

    def get(self, kind: str, level: int, make: Callable[[], dict[str, float]]) -> dict[str, Any]:
        """The metrics of a level, made if they are missing."""
        if (kind, level) not in self.done:
            self.done[kind, level] = {"kind": kind, "level": level, **make()}
            with open(self.path, "a") as file:
                file.write(self._line(self.done[kind, level]))
        return self.done[kind, level]


def _evaluate(
    run: Run, name: str, data_dir: Path | None, num_images: int | None, *, display: Display, mesh: Mesh | None
) -> dict[str, Any]:
    """Metrics of the run's network at every level of a shift; written to shift_NAME.json in the run's folder.

    Returns:
        {"shift", "label", "num_images" (None for all),
        "levels": [{"kind", "level", "accuracy", "ece", "brier", "log_likelihood", "mmc", "size"}]}.
    """
    test = None
    if name != "cifar10_c":
        splits = load_splits(run.config, data_dir=data_dir)
        test = splits.test
    so_far, levels = _Levels(path(run.dir, name).with_suffix(".jsonl"), num_images), []
    total = len(shift.DEGREES) if name == "rotation" else len(CORRUPTIONS) * len(shift.SEVERITIES)
    with display.progress(f"{run.config.dataset} {run.config.method}, {name}", total=total, unit="levels") as update:
        for shifted in shift.load(name, test=test, data_dir=data_dir, num_images=num_images):
            levels.append(so_far.get(shifted.kind, shifted.level, partial(_metrics, run, shifted.data, mesh)))
            update(len(levels))
    report = {"shift": name, "label": shift.SHIFTS[name], "num_images": num_images, "levels": levels}
    derived.write(path(run.dir, name), report)
    so_far.path.unlink()
    return report


def _metrics(run: Run, data: Arrays, mesh: Mesh | None) -> dict[str, float]:
    logits, _ = forward.predict(run.model, run.variables, data.images, mesh=mesh)
    values = evaluation.in_domain_metrics(
        logits, data.labels, has_ood_class=run.method.has_ood_class, released_code_ece=run.config.released_code_ece
    )
    # Released code: under shift the OOD class's column is dropped, and the best of the K classes is the prediction.
    classes = logits[:, :-1] if run.method.has_ood_class else logits
    values["accuracy"] = float(np.mean(classes.argmax(axis=1) == data.labels))
    return values


def table(report: dict[str, Any]) -> str:
    """The report as text: a row an angle, or a severity (the mean over corruptions)."""
    levels = report["levels"]
    rotation = report["shift"] == "rotation"
    kinds = sorted({row["kind"] for row in levels})
    view = Table(title=report["label"], title_justify="left")
    view.add_column("angle (degrees)" if rotation else f"severity (mean of {len(kinds)} corruptions)", justify="right")
    for title in ("images", "accuracy ↑ (%)", "ECE ↓ (%)", "Brier ↓", "log-likelihood ↑", "MMC (%)"):
        view.add_column(title, justify="right")
    for level in sorted({row["level"] for row in levels}):
        rows = [row for row in levels if row["level"] == level]
        mean = {name: float(np.mean([row[name] for row in rows])) for name in MEASURES}
        view.add_row(
            str(level),
            f"{rows[0]['size']:,}",
            f"{100 * mean['accuracy']:.1f}",
            f"{100 * mean['ece']:.1f}",
            f"{mean['brier']:.3f}",
            f"{mean['log_likelihood']:.3f}",
            f"{100 * mean['mmc']:.1f}",
        )
    return rendered(view)
