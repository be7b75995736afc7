"""Confidence along rays: what networks say of images further and further away."""

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing.style import BLACK, IN_DOMAIN, OOD, legend_below
from experiments.runs import titles
from preload_jax.guarantees import ConfidenceProfile

_CURVES = (
    ("confidence", IN_DOMAIN, "-", "largest probability of a class"),
    ("ood_probability", OOD, "--", "probability of the OOD class"),
)


def rays(profiles: dict[str, ConfidenceProfile], *, num_classes: int, title: str) -> Figure:
    """A panel a method: median over directions, and the middle 90 % of them, against the distance from the origin.

    Args:
        profiles: by method, of the same rays.
        num_classes: K; 1/K is as unsure as a network without an OOD class can be.
        title: of the figure.
    """
    columns = min(3, len(profiles))
    rows = -(-len(profiles) // columns)
    figure = Figure(figsize=(4.0 * columns + 0.6, 2.7 * rows + 1.2), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    handles = {}
    for axis in axes.flat[len(profiles) :]:
        axis.set_axis_off()
    for axis, (method, profile) in zip(axes.flat, profiles.items(), strict=False):
        for name, colour, line, label in _CURVES:
            values = 100 * getattr(profile, name)
            if name == "ood_probability" and not values.any():
                continue
            low, median, high = np.quantile(values, (0.05, 0.5, 0.95), axis=1)
            (handles[label],) = axis.plot(profile.distances, median, color=colour, linestyle=line, linewidth=2)
            axis.fill_between(profile.distances, low, high, color=colour, alpha=0.2, linewidth=0)
        handles["1/K"] = axis.axhline(100 / num_classes, color=BLACK, linewidth=0.8, linestyle=":")
        axis.set_xscale("log")
        axis.set_ylim(-3, 103)
        axis.set_title(titles.METHOD_TITLES[method], fontsize=10)
        axis.grid(alpha=0.3)
    for i in range(columns):  # the lowest panel of each column
        lowest = axes[rows - 1 if (rows - 1) * columns + i < len(profiles) else rows - 2, i]
        lowest.set_xlabel("distance from the origin (pixel values 0 to 1)")
        lowest.tick_params(labelbottom=True)
    for axis in axes[:, 0]:
        axis.set_ylabel("probability (%)")
    num_rays = next(iter(profiles.values())).confidence.shape[1]
    figure.suptitle(f"{title}: median and middle 90 % of {num_rays} directions", fontsize=11)
    legend_below(figure, handles.values(), handles.keys(), columns=3)
    return figure
