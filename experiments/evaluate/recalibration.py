"""Recalibrations of a network: fitted to validation images, tested on the test images, and what each leaves proved."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from experiments.runs.trained import Trained
from preload_jax import metrics, recalibration
from preload_jax.checks import finite_or_none
from preload_jax.data.splits import Arrays, Splits, stratified_split
from preload_jax.devices import forward
from preload_jax.errors import UserError
from preload_jax.recalibration import Recalibration

# Of the interval of the ECE, and of the radii.
_SURE, _RADIUS_AT = 0.95, 0.5
# The network as it is: a temperature of 1.
_NONE = "none"


def halves(splits: Splits) -> tuple[Arrays, Splits]:
    """The half of the validation images that recalibrations are fitted to, and splits with the other half alone.

    Always the same halves, each with its share of every class.

    Raises:
        UserError: when there are no validation images.
    """
    validation = splits.validation
    if len(validation) < 2:
        raise UserError("--recalibrate needs validation images, and the run holds none out")
    fitting, others = stratified_split(validation.labels, test_size=len(validation) // 2)
    return validation.take(fitting), replace(splits, validation=validation.take(others))


def of_network(
    chosen: Sequence[str], network: Trained, fitting: Arrays, test: Arrays, *, display: Display
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What each recalibration does, or why it was left out, for JSON; and the K probabilities of the test images.

    Args:
        chosen: names of `recalibration.TABLE`.
        network: the trained network.
        fitting: the images that they are fitted to.
        test: the images that they are tested on.
        display: shows progress.
    """
    given, asked = (forward.predict(network.model, network.variables, x.images)[0] for x in (fitting, test))
    has_ood_class = network.method.has_ood_class
    found: dict[str, Any] = {}
    probabilities: dict[str, np.ndarray] = {}
    with display.progress("recalibrating", total=1 + len(chosen), unit="methods") as update:
        for done, name in enumerate((_NONE, *chosen), start=1):
            try:
                fitted = (
                    _identity(given.shape[1] - has_ood_class, has_ood_class)
                    if name == _NONE
                    else recalibration.fit(name, given, fitting.labels, has_ood_class=has_ood_class)
                )
                found[name], probabilities[name] = _one(fitted, network, asked, test.labels)
            except UserError as error:
                found[name] = {"left_out": str(error)}
            update(done)
    about = {"fitted_to": len(fitting), "tested_on": len(test), "radius_at": _RADIUS_AT, "interval": _SURE}
    return {**about, "methods": found}, probabilities


def _identity(num_classes: int, has_ood_class: bool) -> Recalibration:
    return Recalibration("temperature", num_classes, has_ood_class, 0, {"temperature": np.asarray(1.0)})


def _one(
    fitted: Recalibration, network: Trained, logits: np.ndarray, labels: np.ndarray
) -> tuple[dict[str, Any], np.ndarray]:
    recalibrated = np.asarray(fitted.logits(logits))
    values = metrics.classification(recalibrated, labels, has_ood_class=fitted.has_ood_class)
    of_classes = np.asarray(fitted.probabilities(logits))[:, : fitted.num_classes]
    interval = metrics.calibration_error_interval(of_classes, labels, confidence=_SURE)
    proved = recalibration.guarantee(fitted, network.model, network.variables, confidence=_RADIUS_AT)
    row = {
        **values,
        "ece_low": interval.low,
        "ece_high": interval.high,
        "adaptive_ece": float(metrics.adaptive_calibration_error(of_classes, labels)),
        "classwise_ece": float(metrics.classwise_calibration_error(of_classes, labels)),
        "largest_log_odds": finite_or_none(proved.log_odds.max()),
        "largest_confidence": float(proved.confidence.max()),
        "safe_radius": finite_or_none(proved.radius),
        "input_radius": None if proved.input_radius is None else finite_or_none(proved.input_radius),
        "guarantee": proved.reason,
        "record": fitted.record(),
    }
    return row, of_classes


def _title(name: str) -> str:
    return "as it is" if name == _NONE else recalibration.TABLE[name].title


def table(found: Mapping[str, Any]) -> str:
    """What the recalibrations do, as text for a terminal."""
    view = Table(title="Recalibration of the classes, in percent", title_justify="left")
    view.add_column("method")
    columns = ("accuracy ↑", "ECE ↓", f"{100 * found['interval']:g} % interval", "adaptive ↓", "classwise ↓")
    for title in (*columns, "Brier ↓", "NLL ↓", "log-odds at most", "safe radius"):
        view.add_column(title, justify="right")
    in_input = any(row.get("input_radius") is not None for row in found["methods"].values())
    if in_input:
        view.add_column("input radius", justify="right")
    lines = []
    for name, row in found["methods"].items():
        if "left_out" in row:
            lines.append(f"{_title(name)} is left out: {row['left_out']}")
            continue
        radii = [row["safe_radius"]] + ([row["input_radius"]] if in_input else [])
        view.add_row(
            _title(name),
            f"{100 * row['accuracy']:.1f}",
            f"{100 * row['ece']:.2f}",
            f"{100 * row['ece_low']:.2f} to {100 * row['ece_high']:.2f}",
            f"{100 * row['adaptive_ece']:.2f}",
            f"{100 * row['classwise_ece']:.2f}",
            f"{row['brier']:.4f}",
            f"{-row['log_likelihood']:.4f}",
            "no bound" if row["largest_log_odds"] is None else f"{row['largest_log_odds']:.4g}",
            *("none" if radius is None else f"{radius:.4g}" for radius in radii),
        )
        if name != _NONE:
            lines.append(f"{_title(name)}: {row['guarantee']}.")
    fitted, tested = f"{found['fitted_to']:,} validation images", f"{found['tested_on']:,} test images"
    lines += [
        f"Fitted to {fitted}, tested on {tested}. The rule of false alarms is of the other validation images.",
        f"Log-odds at most: of any class, over all inputs. Safe radius: of a confidence of {found['radius_at']:g}.",
        "Brier score and NLL (nats) are no percentages.",
    ]
    return rendered(view, *lines)


def draw(
    path: Path,
    found: Mapping[str, Any],
    probabilities: Mapping[str, np.ndarray],
    labels: np.ndarray,
    network: Trained,
) -> None:
    """A reliability diagram of each recalibration into a file."""
    from experiments.drawing import calibration, style

    rows = found["methods"]
    panels = {
        f"{_title(name)}: ECE {100 * rows[name]['ece']:.1f} %"
        f" ({100 * rows[name]['ece_low']:.1f} to {100 * rows[name]['ece_high']:.1f} %)": values
        for name, values in probabilities.items()
    }
    title = f"{network.method.title} trained on {network.spec.title}, {len(labels):,} test images"
    style.save(calibration.reliability_panels(panels, labels, title=title), path)
