"""Evaluates a finished run under data-set shift: accuracy and calibration by angle, or by corruption and severity."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh
from rich.console import Console
from rich.table import Table

from experiments import runs
from experiments.recipes import Config
from experiments.runs import Run
from preload_jax import evaluation
from preload_jax.data import datasets, shift
from preload_jax.data.splits import Arrays
from preload_jax.errors import UserError

MEASURES = ("accuracy", "ece", "brier", "log_likelihood", "mmc")


def check(name: str, config: Config, *, data_dir: Path | None, num_images: int | None = None) -> None:
    """Raises a UserError when a run of this configuration cannot be evaluated under the shift, before its training."""
    if name not in shift.SHIFTS:
        raise UserError(f"unknown --shift {name!r}; expected one of {list(shift.SHIFTS)}")
    if num_images is not None and num_images < 1:
        raise UserError(f"--shift-images must be at least 1, got {num_images}")
    if name == "cifar10_c" and config.dataset != "cifar10":
        raise UserError(f"--shift=cifar10_c has the classes of cifar10, the run is of {config.dataset}; give another")
    # The first level of one image of the right shape: what is missing or does not fit is found now.
    shape = datasets.get(config.dataset).image_shape
    one = Arrays(np.zeros((1, *shape), np.uint8), np.zeros(1, np.int32))
    next(iter(shift.load(name, test=one, data_dir=data_dir, num_images=1)))


def evaluate(
    run: Run, name: str, *, data_dir: Path | None, num_images: int | None = None, mesh: Mesh | None = None
) -> dict[str, Any]:
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
        logits, _ = evaluation.predict(run.model, run.variables, shifted.data.images, mesh=mesh)
        values = evaluation.in_domain_metrics(
            logits,
            shifted.data.labels,
            has_ood_class=run.method.has_ood_class,
            released_code_ece=run.config.released_code_ece,
        )
        # Released code: under shift the OOD class's column is dropped, and the best of the K classes is the prediction.
        classes = logits[:, :-1] if run.method.has_ood_class else logits
        values["accuracy"] = float(np.mean(classes.argmax(axis=1) == shifted.data.labels))
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
    Console(file=output, highlight=False, width=110, force_jupyter=False).print(view)
    return output.getvalue()
