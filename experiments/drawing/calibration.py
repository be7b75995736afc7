"""Calibration: reliability diagrams, and ECE under data-set shift (the paper's Figure 3)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from experiments.drawing.style import BLACK, IN_DOMAIN, METHOD_STYLES, OOD, legend_below, literal
from experiments.runs import titles

# Of the intervals of the bars.
_CONFIDENCE = 0.95


def reliability(probabilities: np.ndarray, labels: np.ndarray, *, ece: float, title: str, num_bins: int = 15) -> Figure:
    """Accuracy against confidence in equal bins, with intervals, and how many images each has.

    Args:
        probabilities: of the K classes, [n, K]; an OOD class's column is dropped, as for the ECE.
        labels: [n].
        ece: as evaluated, a fraction.
        title: of the figure.
        num_bins: of equal width.
    """
    return reliability_panels({f"{title}: ECE {100 * ece:.1f} %": probabilities}, labels, num_bins=num_bins)


def reliability_panels(
    probabilities: Mapping[str, np.ndarray], labels: np.ndarray, *, num_bins: int = 15, title: str = ""
) -> Figure:
    """A reliability diagram for each of several probabilities of the same images, with counts and intervals.

    The whisker of a bar is the exact interval of Clopper and Pearson (1934) for the share of right answers among its
    images: with 95 % probability it holds the share among all such images.  Where it reaches the mean confidence, the
    bar says nothing against it.

    Args:
        probabilities: by the panel's title, [n, K]; an OOD class's column is dropped, as for the ECE.
        labels: [n].
        num_bins: of equal width.
        title: of the figure.
    """
    columns = min(3, len(probabilities))
    rows = -(-len(probabilities) // columns)
    figure = Figure(figsize=(max(5.2, 4.2 * columns), 5.6 * rows + 0.8), layout="constrained")
    grid = figure.subplots(2 * rows, columns, squeeze=False, sharex=True, height_ratios=(3, 1) * rows)
    handles: dict[str, Any] = {}
    for i, (name, values) in enumerate(probabilities.items()):
        row, column = divmod(i, columns)
        axis, below = grid[2 * row, column], grid[2 * row + 1, column]
        handles = _reliability(axis, below, values, labels, num_bins)
        axis.set_title(literal(name), fontsize=11 if columns == 1 else 10)
        if column == 0:
            axis.set_ylabel("accuracy (%)")
            below.set_ylabel("images (%),\nand their number")
        below.set_xlabel("confidence: largest probability of a class (%)", fontsize=9)
        below.tick_params(labelbottom=True)
    for axis in grid.reshape(rows, 2, columns).transpose(0, 2, 1).reshape(-1, 2)[len(probabilities) :].flat:
        axis.set_axis_off()
    if title:
        figure.suptitle(literal(title), fontsize=11)
    legend_below(figure, handles.values(), handles.keys(), columns=min(4, 2 * columns))
    return figure


def _reliability(
    axis: Axes, below: Axes, probabilities: np.ndarray, labels: np.ndarray, num_bins: int
) -> dict[str, Any]:
    """Draws the bars and the counts; returns what the legend shows."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    bins = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    filled = counts > 0
    accuracy, mean_confidence = (
        np.bincount(bins, weights=values, minlength=num_bins)[filled] / counts[filled] for values in (right, confidence)
    )
    hits = np.bincount(bins, weights=right, minlength=num_bins)[filled].astype(int)
    intervals = [
        stats.binomtest(k, n).proportion_ci(_CONFIDENCE, method="exact")
        for k, n in zip(hits.tolist(), counts[filled].tolist(), strict=True)
    ]
    low, high = (100 * np.array([getattr(each, end) for each in intervals]) for end in ("low", "high"))
    width = 100 / num_bins
    centres = 100 * (edges[:-1] + edges[1:])[filled] / 2
    bars = axis.bar(centres, 100 * accuracy, width, color=IN_DOMAIN, alpha=0.45, edgecolor=IN_DOMAIN)
    middle = (low + high) / 2
    whiskers = axis.errorbar(
        centres, middle, (high - low) / 2, color=BLACK, linewidth=1.0, capsize=2.5, linestyle="none", alpha=0.8
    )
    (points,) = axis.plot(
        centres, 100 * mean_confidence, color=OOD, marker="o", markersize=5, linestyle="none", zorder=3
    )
    (diagonal,) = axis.plot([0, 100], [0, 100], color=BLACK, linestyle="--", linewidth=1)
    axis.set_ylim(0, 103)
    shares = below.bar(centres, 100 * counts[filled] / counts.sum(), width, color="#999999", edgecolor=BLACK)
    # A bar of three images says little of the accuracy above it.
    below.bar_label(shares, [f"{count:,}" for count in counts[filled]], fontsize=7, padding=2)
    below.margins(y=0.25)
    below.set_xlim(0, 100)
    return {
        "accuracy": bars,
        f"its {100 * _CONFIDENCE:.0f} % interval": whiskers,
        "mean confidence": points,
        "calibrated": diagonal,
    }


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
        axis.set_title(f"{literal(titles.dataset(dataset))}, {seeds.replace('1 seeds', '1 seed')}", fontsize=11)
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
