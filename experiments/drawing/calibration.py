"""Calibration: reliability diagrams, and ECE under data-set shift (the paper's Figure 3)."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing.style import BLACK, IN_DOMAIN, METHOD_STYLES, OOD, legend_below
from experiments.runs import titles


def reliability(probabilities: np.ndarray, labels: np.ndarray, *, ece: float, title: str, num_bins: int = 15) -> Figure:
    """Accuracy against confidence in equal bins, and how many images each has.

    Args:
        probabilities: of the K classes, [n, K]; an OOD class's column is dropped, as for the ECE.
        labels: [n].
        ece: as evaluated, a fraction.
        title: of the figure.
        num_bins: of equal width.
    """
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    bins = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    filled = counts > 0
    accuracy, mean_confidence = (
        np.bincount(bins, weights=values, minlength=num_bins)[filled] / counts[filled] for values in (right, confidence)
    )
    figure = Figure(figsize=(5.2, 6.4), layout="constrained")
    axis, below = figure.subplots(2, 1, height_ratios=(3, 1), sharex=True)
    width = 100 / num_bins
    centres = 100 * (edges[:-1] + edges[1:])[filled] / 2
    bars = axis.bar(centres, 100 * accuracy, width, color=IN_DOMAIN, alpha=0.55, edgecolor=IN_DOMAIN, label="accuracy")
    (points,) = axis.plot(
        centres, 100 * mean_confidence, color=OOD, marker="o", linestyle="none", label="mean confidence"
    )
    (diagonal,) = axis.plot([0, 100], [0, 100], color=BLACK, linestyle="--", linewidth=1, label="calibrated")
    axis.set_ylabel("accuracy (%)")
    axis.set_ylim(0, 103)
    axis.set_title(f"{title}: ECE {100 * ece:.1f} %", fontsize=11)
    shares = below.bar(centres, 100 * counts[filled] / counts.sum(), width, color="#999999", edgecolor=BLACK)
    # A bar of three images says little of the accuracy above it.
    below.bar_label(shares, [f"{count:,}" for count in counts[filled]], fontsize=7, padding=2)
    below.margins(y=0.25)
    below.set_ylabel("images (%),\nand their number")
    below.set_xlabel("confidence: largest probability of a class (%)")
    below.set_xlim(0, 100)
    legend_below(figure, [bars, points, diagonal], ["accuracy", "mean confidence", "calibrated"], columns=3)
    return figure


# Of each shift: the axis's label.
_LEVELS = {
    "rotation": "angle of rotation (degrees)",
    "cifar10_c": "severity of corruption (CIFAR-10-C)",
    "corruptions": "severity of corruption (made here)",
}


def shift_ece(reports: dict[str, dict[str, list[dict[str, Any]]]], *, shift: str) -> Figure:
    """ECE against the strength of a shift, a panel a data set and a line a method (Figure 3).

    Lines are means over seeds and, of corruptions, over kinds; the bars their standard errors over seeds.

    Args:
        reports: contents of the shift_*.json files by data set and method, one a seed.
        shift: which it is.
    """
    figure = Figure(figsize=(7.4 * len(reports), 5.2), layout="constrained")
    axes = figure.subplots(1, len(reports), squeeze=False)[0]
    handles: dict[str, Any] = {}
    for axis, (dataset, by_method) in zip(axes, reports.items(), strict=True):
        # DDU has the standard run's network, and so the same probabilities.
        shown = [
            name for name in METHOD_STYLES if name in by_method and not (name == "ddu" and "standard" in by_method)
        ]
        for method in shown:
            handles[method] = _shift_line(axis, by_method[method], method)
        counts = {len(seeds) for seeds in by_method.values()}
        seeds = f"{min(counts)} to {max(counts)} seeds" if len(counts) > 1 else f"{max(counts)} seeds"
        axis.set_title(f"{titles.dataset(dataset)}, {seeds.replace('1 seeds', '1 seed')}", fontsize=11)
        axis.set_xlabel(_LEVELS[shift])
        axis.set_ylabel("ECE (%)")
        axis.set_ylim(bottom=0)
        axis.set_xticks(range(0, 181, 30) if shift == "rotation" else range(1, 6))
        axis.grid(alpha=0.3)
    order = [name for name in METHOD_STYLES if name in handles]
    names = [titles.METHOD_TITLES[name] + (" (and DDU)" if name == "standard" else "") for name in order]
    legend_below(figure, [handles[name] for name in order], names, columns=4)
    return figure


def _shift_line(axis: Axes, reports: list[dict[str, Any]], method: str) -> Any:
    levels = sorted({row["level"] for row in reports[0]["levels"]})
    values = np.array(
        [[np.mean([row["ece"] for row in r["levels"] if row["level"] == level]) for level in levels] for r in reports]
    )
    style = {"linewidth": 1.5, "markersize": 5, **METHOD_STYLES[method]}
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
    return axis.errorbar(levels, 100 * values.mean(axis=0), None if error is None else 100 * error, capsize=2, **style)
