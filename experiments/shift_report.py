"""Evaluates a finished run under data-set shift: accuracy and calibration by angle, or by corruption and severity."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments import runs
from experiments.runs import Run
from preload_jax import evaluation
from preload_jax.data import datasets, shift
from preload_jax.errors import UserError

MEASURES = ("accuracy", "ece", "brier", "log_likelihood", "mmc")


def check(name: str) -> None:
    """Raises a UserError unless `name` is a shift, before hours of training."""
    if name not in shift.SHIFTS:
        raise UserError(f"unknown --shift {name!r}; expected one of {list(shift.SHIFTS)}")


def evaluate(run: Run, name: str, *, data_dir: Path | None, num_images: int | None = None) -> dict[str, Any]:
    """Metrics of the run's network at every level of a shift; written to shift_NAME.json in the run's folder.

    Returns:
        {"shift", "label", "levels": [{"kind", "level", "accuracy", "ece", "brier", "log_likelihood", "mmc", "size"}]}.

    Raises:
        UserError: for an unknown shift, or one whose files or package are missing.
    """
    test = None
    if name != "cifar10_c":
        splits = datasets.load(run.config.dataset, data_dir=data_dir, validation=run.config.validation)  # type: ignore[arg-type]
        test = splits.test
    levels = []
    for shifted in shift.load(name, test=test, data_dir=data_dir, num_images=num_images):
        logits, _ = evaluation.predict(run.model, run.variables, shifted.data.images)
        values = evaluation.in_domain_metrics(
            logits,
            shifted.data.labels,
            has_ood_class=run.method.has_ood_class,
            released_code_ece=run.config.released_code_ece,
        )
        levels.append({"kind": shifted.kind, "level": shifted.level, **values})
    report = {"shift": name, "label": shift.SHIFTS[name], "levels": levels}
    runs.write_json(run.dir.path / f"shift_{name}.json", report)
    return report


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
    output = io.StringIO()
    Console(file=output, highlight=False, width=110).print(view)
    return output.getvalue()
