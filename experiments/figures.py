"""Pictures of results.  Colours are Okabe and Ito's, which survive colour blindness; lines differ in style, too."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import SymmetricalLogLocator

from experiments import runs

IN_DOMAIN, OOD, ACCENT = "#0072B2", "#D55E00", "#009E73"


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG whole or not at all."""
    buffer = io.BytesIO()
    # No metadata: the same figure gives the same bytes.
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    runs.write_bytes(path, buffer.getvalue())


def score_histograms(scores: dict[str, np.ndarray], ood: dict[str, Any], *, title: str) -> Figure:
    """One panel an OOD set: how its scores and the in-domain scores are distributed, and the FPR-95 threshold.

    Scores run from a few to 1e9 (far-away images), so the axis is symmetric-logarithmic.
    """
    names = [name for name in scores if name != "in_domain"]
    columns = min(3, len(names)) or 1
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.8 * rows + 0.8), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
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
        axis.set_xlabel("score (higher = more in-domain)", fontsize=9)
        axis.set_title(f"{name}: FPR-95 {100 * ood[name]['fpr95']:.1f} %", fontsize=10)
        axis.tick_params(labelsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("share of images (%)", fontsize=9)
    figure.suptitle(title, fontsize=11)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return figure


def _locator() -> SymmetricalLogLocator:
    """At most about six ticks, whatever the powers of ten between the scores."""
    locator = SymmetricalLogLocator(base=10, linthresh=10)
    locator.set_params(numticks=6)
    return locator


def _bins(values: np.ndarray) -> np.ndarray:
    """Sixty bins that are equally wide on the symmetric-logarithmic axis."""
    squeezed = np.sign(values) * np.log1p(np.abs(values) / 10)
    edges = np.linspace(squeezed.min(), squeezed.max() + 1e-6, 61)
    return np.sign(edges) * 10 * np.expm1(np.abs(edges))
