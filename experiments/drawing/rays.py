"""Confidence along rays: what networks say of images further and further away."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from experiments.drawing.style import BLACK, IN_DOMAIN, OOD, legend_below, literal
from experiments.runs import titles
from preload_jax.guarantees import ConfidenceProfile

_CONFIDENCE, _OF_OOD = "largest probability of a class: median", "probability of the OOD class: median"


def rays(profiles: dict[str, ConfidenceProfile], *, num_classes: int, title: str) -> Figure:
    """A panel a method: probabilities against the distance from the origin.

    Thick lines are medians over the directions.  A thin line is the largest probability of a class along one direction:
    directions that end in a class and those that end in the OOD class stay apart, which a band would hide.

    Args:
        profiles: by method, of the same rays.
        num_classes: K; 1/K is as unsure as a network without an OOD class can be.
        title: of the figure.
    """
    columns = min(3, len(profiles))
    rows = -(-len(profiles) // columns)
    figure = Figure(figsize=(4.0 * columns + 0.6, 2.7 * rows + 1.2), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    handles: dict[str, Line2D] = {}
    for axis in axes.flat[len(profiles) :]:
        axis.set_axis_off()
    for axis, (method, profile) in zip(axes.flat, profiles.items(), strict=False):
        handles |= draw_probabilities(axis, profile)
        handles["1/K"] = axis.axhline(1 / num_classes, color=BLACK, linewidth=0.8, linestyle=":")
        axis.set_xscale("log")
        axis.set_ylim(-0.03, 1.03)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
        certain = (profile.confidence[-1] > 0.5).mean()
        axis.set_title(f"{titles.METHOD_TITLES[method]}: far away {100 * certain:.3g} % end in a class", fontsize=10)
        axis.grid(alpha=0.3)
    for i in range(columns):  # the lowest panel of each column
        lowest = axes[rows - 1 if (rows - 1) * columns + i < len(profiles) else rows - 2, i]
        lowest.set_xlabel("distance from the origin (pixel values 0 to 1)")
        lowest.tick_params(labelbottom=True)
    for axis in axes[:, 0]:
        axis.set_ylabel("probability (%)")
    num_rays = next(iter(profiles.values())).confidence.shape[1]
    figure.suptitle(f"{literal(title)}: {num_rays} directions", fontsize=11)
    legend_below(figure, handles.values(), handles.keys(), columns={1: 1, 2: 2, 3: 4}[columns])
    return figure


def draw_probabilities(axis: Axes, profile: ConfidenceProfile) -> dict[str, Line2D]:
    """Draws one network's probabilities along rays, as fractions; returns the lines by their labels."""
    axis.plot(profile.distances, profile.confidence, color=IN_DOMAIN, linewidth=0.6, alpha=0.18)
    (confidence,) = axis.plot(profile.distances, np.median(profile.confidence, axis=1), color=IN_DOMAIN, linewidth=2)
    # One of the drawn lines alone is too faint for a legend.
    handles = {_CONFIDENCE: confidence, "the same, one direction": Line2D([], [], color=IN_DOMAIN, linewidth=0.6)}
    if profile.ood_probability.any():
        median = np.median(profile.ood_probability, axis=1)
        (handles[_OF_OOD],) = axis.plot(profile.distances, median, color=OOD, linestyle="--", linewidth=2)
    return handles
