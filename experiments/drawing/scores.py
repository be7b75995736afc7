"""Scores of in-domain and OOD images: histograms and ROC curves."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import SymmetricalLogLocator

from experiments.drawing.style import ACCENT, BLACK, IN_DOMAIN, OOD, ORANGE, PURPLE, SKY, legend_below, literal
from experiments.runs import titles

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
# Interquartile ranges that a panel of a detector shows on either side.
_REACH = 6
# Of the OOD sets, in the order of the paper's tables.
_STYLES: tuple[dict[str, Any], ...] = (
    {"color": IN_DOMAIN, "linestyle": "-"},
    {"color": OOD, "linestyle": "--"},
    {"color": ACCENT, "linestyle": "-."},
    {"color": ORANGE, "linestyle": ":"},
    {"color": PURPLE, "linestyle": (0, (5, 1, 1, 1, 1, 1))},
    {"color": SKY, "linestyle": (0, (8, 2))},
    {"color": BLACK, "linestyle": (0, (1, 1))},
    {"color": "#767676", "linestyle": (0, (4, 4))},
)


def roc(scores: dict[str, np.ndarray], ood: dict[str, Any], *, title: str) -> Figure:
    """One curve an OOD set: the share of in-domain images accepted against that of OOD images, and where 95 % is."""
    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    scores_in = np.sort(scores["in_domain"].astype(np.float64))
    names = [name for name in scores if name != "in_domain"]
    for i, name in enumerate(names):
        scores_ood = np.sort(scores[name].astype(np.float64))
        thresholds = np.unique(np.concatenate([scores_in, scores_ood]))[::-1]
        accepted_in, accepted_ood = (
            np.concatenate([[0.0], 100 - 100 * np.searchsorted(values, thresholds) / len(values)])
            for values in (scores_in, scores_ood)
        )
        label = f"{literal(titles.ood(name))} (AUROC {100 * ood[name]['auroc']:.1f} %)"
        for axis in axes:
            axis.plot(accepted_ood, accepted_in, label=label, linewidth=1.8, **_STYLES[i % len(_STYLES)])
    for axis in axes:
        axis.axhline(95, color=BLACK, linewidth=0.8, linestyle=":")
        axis.set_ylim(-1.5, 101.5)
        axis.grid(alpha=0.3)
        axis.set_xlabel("OOD images accepted: false positives (%)")
    axes[0].set_xlim(-1.5, 101.5)
    axes[1].set_xscale("log")
    # One image of the largest set; what lies left of it is 0.
    axes[1].set_xlim(100 / max(len(scores[name]) for name in names), 110)
    axes[1].annotate(
        "95 %", (1, 95), xycoords=("axes fraction", "data"), xytext=(4, 0), textcoords="offset points", va="center"
    )
    axes[0].set_ylabel("in-domain images accepted: true positives (%)")
    axes[0].set_title("linear", fontsize=10)
    axes[1].set_title("few false positives: logarithmic", fontsize=10)
    figure.suptitle(literal(title), fontsize=11)
    legend_below(figure, *axes[0].get_legend_handles_labels(), columns=3)
    return figure


def score_histograms(scores: dict[str, np.ndarray], ood: dict[str, Any], *, title: str) -> Figure:
    """One panel an OOD set: how its scores and the in-domain scores are distributed, and the FPR-95 threshold.

    Scores run from a few to 1e9 (far-away images), so the axis is symmetric-logarithmic.
    """
    names = [name for name in scores if name != "in_domain"]
    columns = min(3, len(names)) or 1
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.8 * rows + 0.8))
    axes = figure.subplots(rows, columns, squeeze=False, gridspec_kw=_margins(figure, rows, columns))
    scores_in = scores["in_domain"].astype(np.float64)
    threshold = np.quantile(scores_in, 0.05)
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    for axis, name in zip(axes.flat, names, strict=False):
        scores_ood = scores[name].astype(np.float64)
        bins = _bins(np.concatenate([scores_in, scores_ood]))
        style: dict[str, Any] = {"histtype": "stepfilled", "alpha": 0.45, "linewidth": 1.4}
        for values, colour, label, edge in (
            (scores_in, IN_DOMAIN, "in-domain test", "-"),
            (scores_ood, OOD, "OOD", "--"),
        ):
            weights = np.full(len(values), 100.0 / len(values))
            axis.hist(
                values, bins, weights=weights, color=colour, edgecolor=colour, label=label, linestyle=edge, **style
            )
        axis.axvline(threshold, color="black", linestyle=":", linewidth=1.2, label="95 % of in-domain above")
        axis.set_xscale("symlog", linthresh=10)
        axis.set_xlim(bins[0], bins[-1])
        axis.xaxis.set_major_locator(_locator())
        axis.xaxis.set_major_formatter(_tick)
        axis.set_xlabel("score (higher = more in-domain)", fontsize=9)
        axis.set_title(f"{literal(titles.ood(name))}: FPR-95 {100 * ood[name]['fpr95']:.1f} %", fontsize=10)
        axis.tick_params(labelsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("share of images (%)", fontsize=9)
    figure.suptitle(literal(title), fontsize=11)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=3, fontsize=9, frameon=False)
    return figure


def detector_histograms(scores: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """One panel a detector: how the scores of the in-domain images and of each OOD set are distributed.

    Each detector has a unit of its own, so scores are counted in in-domain interquartile ranges from the in-domain
    median.  What lies more than 6 of them away, as far-away images do, is in the outermost bin.

    Args:
        scores: by detector's title, "in_domain" and each OOD set's name.
    """
    columns = min(4, len(scores)) or 1
    rows = -(-len(scores) // columns) or 1
    figure = Figure(figsize=(3.4 * columns, 2.3 * rows + 1.0), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[len(scores) :]:
        axis.set_axis_off()
    for axis, (title, of_sets) in zip(axes.flat, scores.items(), strict=False):
        low, middle, high = np.quantile(np.asarray(of_sets["in_domain"], np.float64), [0.25, 0.5, 0.75])
        unit = (high - low) or 1.0
        relative = {
            name: np.clip((np.asarray(values, np.float64) - middle) / unit, -_REACH, _REACH)
            for name, values in of_sets.items()
        }
        bins = np.linspace(-_REACH, _REACH, 49)
        for index, (name, values) in enumerate(relative.items()):
            weights = np.full(len(values), 100.0 / len(values))
            style: dict[str, Any] = {"histtype": "stepfilled", "color": IN_DOMAIN, "alpha": 0.35}
            if name != "in_domain":
                style = {"histtype": "step", "linewidth": 1.3, **_STYLES[1 + (index - 1) % (len(_STYLES) - 1)]}
            label = "in-domain test" if name == "in_domain" else literal(titles.ood(name))
            axis.hist(values, bins, weights=weights, label=label, **style)
        axis.axvline(float(np.quantile(relative["in_domain"], 0.05)), color=BLACK, linestyle=":", linewidth=1.0)
        axis.set_xlim(bins[0], bins[-1])
        axis.set_xticks([-_REACH, -3, 0, 3, _REACH], [f"≤ −{_REACH}", "−3", "0", "3", f"≥ {_REACH}"])
        axis.set_title(literal(title), fontsize=9)
        axis.tick_params(labelsize=7)
    figure.supxlabel("score, in in-domain interquartile ranges (higher = more in-domain)", fontsize=9)
    figure.supylabel("share of images (%)", fontsize=9)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9, frameon=False, handlelength=3.5)
    return figure


def _margins(figure: Figure, rows: int, columns: int) -> dict[str, float]:
    """Of panels with titles and labels: to have Matplotlib measure all texts would take as long as the rest.

    In inches: 0.6 on the left and above (for the figure's title), 0.3 on the right, 0.9 below (for the legend), 0.5
    between columns and 0.75 between rows.
    """
    width, height = figure.get_size_inches()
    panel_width = (width - 0.9 - 0.5 * (columns - 1)) / columns
    panel_height = (height - 1.5 - 0.75 * (rows - 1)) / rows
    return {
        "left": 0.6 / width,
        "right": 1 - 0.3 / width,
        "bottom": 0.9 / height,
        "top": 1 - 0.6 / height,
        "wspace": 0.5 / panel_width,
        "hspace": 0.75 / panel_height,
    }


def _locator() -> SymmetricalLogLocator:
    """At most about six ticks, whatever the powers of ten between the scores."""
    locator = SymmetricalLogLocator(base=10, linthresh=10)
    locator.set_params(numticks=6)
    return locator


def _tick(value: float, place: int | None = None) -> str:
    """A tick's label: the number, or a power of ten from 1,000 on.

    Example:
        >>> _tick(-4.89942), _tick(0.0), _tick(-1e9)
        ('−4.9', '0', '−10⁹')
    """
    power = round(math.log10(abs(value))) if value else 0
    text = f"10{str(power).translate(_SUPERSCRIPTS)}" if power >= 3 else f"{abs(value):.3g}"
    return f"−{text}" if value < 0 else text


def _bins(values: np.ndarray) -> np.ndarray:
    """Sixty bins that are equally wide on the symmetric-logarithmic axis."""
    squeezed = np.sign(values) * np.log1p(np.abs(values) / 10)
    edges = np.linspace(squeezed.min(), squeezed.max() + 1e-6, 61)
    return np.sign(edges) * 10 * np.expm1(np.abs(edges))
