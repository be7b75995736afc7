"""The paper's Figures 1 and 2: confidence on the plane, logits and probabilities on the line."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing.style import BLUE, VERMILION, legend_below
from experiments.figures.toy_problems import Problem, Trained
from experiments.runs import titles

_CLASSES = (
    {"color": BLUE, "marker": "o", "label": "class 1"},
    {"color": "#E69F00", "marker": "^", "label": "class 2"},
)


def confidence_maps(
    problem: Problem, trained: Sequence[Trained], *, near: float = 6.5, far: float = 65.0, resolution: int = 301
) -> Figure:
    """Figure 1: the largest probability of a class, near the data above and zoomed out below."""
    figure = Figure(figsize=(3.5 * len(trained) + 0.9, 7.6), layout="constrained")
    axes = figure.subplots(2, len(trained), squeeze=False)
    image = None
    for row, extent in enumerate((near, far)):
        grid = np.linspace(-extent, extent, resolution)
        points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
        for axis, network in zip(axes[row], trained, strict=True):
            values = network.probabilities(points)[:, :2].max(axis=1).reshape(len(grid), -1)
            # One hue from light to dark, which grey print keeps.
            image = axis.imshow(
                100 * values, origin="lower", extent=(-extent, extent) * 2, cmap="Greens", vmin=0, vmax=100
            )
            _scatter(axis, problem, small=extent == far)
            axis.set_xlim(-extent, extent)
            axis.set_ylim(-extent, extent)
            axis.set_xticks(_ticks(extent))
            axis.set_yticks(_ticks(extent))
            axis.set_xlabel("$x_1$")
            if row == 0:
                axis.set_title(titles.METHOD_TITLES[network.method], fontsize=12)
    for axis, text in zip(axes[:, 0], ("near the data", "zoomed out"), strict=True):
        axis.set_ylabel(f"{text}\n$x_2$")
    assert image is not None
    figure.colorbar(image, ax=axes, label="confidence: largest probability of a class (%)", shrink=0.8)
    legend_below(figure, *axes[0, 0].get_legend_handles_labels(), columns=3)
    return figure


def _ticks(extent: float) -> list[float]:
    step = 10 ** np.floor(np.log10(extent)) * 3
    return [-2 * step, -step, 0, step, 2 * step]


def _scatter(axis: object, problem: Problem, *, small: bool) -> None:
    size = 2 if small else 14
    for label, style in enumerate(_CLASSES):
        points = problem.points[problem.labels == label]
        axis.scatter(*points.T, s=size, edgecolor="white", linewidth=0 if small else 0.4, **style)  # type: ignore[attr-defined]
    axis.scatter(  # type: ignore[attr-defined]
        *problem.outliers.T, s=size, color="black", marker="x", linewidth=0.7, label="auxiliary OOD points"
    )


def logits_on_the_line(problem: Problem, trained: Sequence[Trained], *, extent: float = 20.0) -> Figure:
    """Figure 2: logits above and probabilities below, a column a method; the logits' scales differ."""
    figure = Figure(figsize=(4.8 * len(trained), 6.4), layout="constrained")
    axes = figure.subplots(2, len(trained), squeeze=False, sharex=True)
    points = np.linspace(-extent, extent, 801)[:, None]
    styles: tuple[dict[str, Any], ...] = (
        {"color": BLUE, "linestyle": "-", "label": "class 1"},
        {"color": "#E69F00", "linestyle": "--", "label": "class 2"},
        {"color": VERMILION, "linestyle": "-.", "linewidth": 2.2, "label": "OOD class"},
    )
    for column, network in zip(axes.T, trained, strict=True):
        logits, probabilities = network.logits(points), 100 * network.probabilities(points)
        for axis, values in zip(column, (logits, probabilities), strict=True):
            for line, style in zip(values.T, styles, strict=False):
                axis.plot(points[:, 0], line, **style)
            axis.grid(alpha=0.3)
            for low, high, label in _ranges(problem):
                colour = "0.85" if label.startswith("training") else "0.95"
                axis.axvspan(low, high, color=colour, zorder=0, label=label)
        column[0].set_title(titles.METHOD_TITLES[network.method], fontsize=12)
        column[0].set_ylabel("logit")
        column[1].set_ylabel("probability (%)")
        column[1].set_ylim(-4, 104)
        column[1].set_xlabel("$x$")
        column[1].set_xlim(-extent, extent)
    handles, labels = axes[0, -1].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    legend_below(figure, unique.values(), unique.keys(), columns=5)
    return figure


def _ranges(problem: Problem) -> list[tuple[float, float, str]]:
    """Where there are training points, and where auxiliary OOD points."""
    outliers = problem.outliers[:, 0]
    left, right = outliers[outliers < 0], outliers[outliers > 0]
    return [
        (float(problem.points.min()), float(problem.points.max()), "training points"),
        (float(left.min()), float(left.max()), "auxiliary OOD points"),
        (float(right.min()), float(right.max()), "auxiliary OOD points"),
    ]
