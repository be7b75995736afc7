"""Detectors on a trained network: each fitted to the training images' outputs, and tested on the same OOD sets."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from rich.markup import escape
from rich.table import Table

from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from experiments.runs import titles
from preload_jax import detectors, metrics
from preload_jax.data.splits import Splits
from preload_jax.detectors import Outputs
from preload_jax.errors import UserError


def names(asked: str) -> tuple[str, ...]:
    """The detectors of a comma list, or all.

    Raises:
        UserError: for an unknown one.
    """
    if asked == "all":
        return tuple(detectors.TABLE)
    return tuple(dict.fromkeys(name for part in asked.split(",") if (name := part.strip()) and detectors.get(name)))


def measure(
    chosen: Sequence[str],
    model: Any,
    variables: Mapping[str, Any],
    splits: Splits,
    ood: Mapping[str, Callable[[], np.ndarray]],
    *,
    has_ood_class: bool,
    display: Display,
) -> dict[str, Any]:
    """FPR-95 and AUROC of each detector on each OOD set; what a detector lacks, where it cannot be had; for JSON.

    Args:
        chosen: rows of `detectors.TABLE`.
        model, variables: the network.
        splits: detectors are fitted to the training images; the test images are in-domain.
        ood: name → a function that gives the images.
        has_ood_class: whether the last logit is the OOD class.
        display: shows progress.
    """
    needs = {need for name in chosen for need in detectors.get(name).needs}

    def look(images: np.ndarray) -> Outputs:
        return detectors.outputs(
            model, dict(variables), images, maps="maps" in needs, keep_images=bool(needs & {"images", "network"})
        )

    train, test = look(splits.train.images), look(splits.test.images)
    of_sets = {name: look(load()) for name, load in ood.items()}
    head = _head(variables)
    num_classes = np.asarray(test.logits).shape[1] - has_ood_class
    found: dict[str, Any] = {}
    with display.progress("detectors", total=len(chosen), unit="detectors") as update:
        for done, name in enumerate(chosen, start=1):
            try:
                detector = detectors.fit(name, train, splits.train.labels, head=head, num_classes=num_classes)
                scores_in = detectors.score(detector, test)
                found[name] = {
                    of_set: _metrics(scores_in, detectors.score(detector, outputs))
                    for of_set, outputs in of_sets.items()
                }
            except UserError as error:
                found[name] = {"left_out": str(error)}
            update(done)
    return found


def _head(variables: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray] | None:
    linear = variables["params"].get("head", {}).get("linear")
    return None if linear is None else (np.asarray(linear["kernel"]), np.asarray(linear["bias"]))


def _metrics(scores_in: np.ndarray, scores_ood: np.ndarray) -> dict[str, float]:
    both = scores_in, scores_ood
    values = jax.device_get({"fpr95": metrics.fpr_at_tpr(*both), "auroc": metrics.auroc(*both)})
    return {name: float(value) for name, value in values.items()}


def table(found: Mapping[str, Any]) -> str:
    """FPR-95 in percent, a row a detector, as text for a terminal."""
    sets = list(dict.fromkeys(name for row in found.values() if "left_out" not in row for name in row))
    view = Table(title="FPR-95 ↓ of each detector, in percent", title_justify="left")
    view.add_column("detector", overflow="fold")
    for name in sets:
        view.add_column(escape(titles.ood(name)), justify="right")
    for name, row in found.items():
        if "left_out" not in row:
            view.add_row(detectors.get(name).title, *(f"{100 * row[of_set]['fpr95']:.1f}" for of_set in sets))
    left_out = (
        f"{detectors.get(name).title} was left out: {row['left_out']}"
        for name, row in found.items()
        if "left_out" in row
    )
    return rendered(view, *left_out)
