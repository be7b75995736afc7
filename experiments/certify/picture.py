"""The picture of a certificate: confidence along rays, the largest confidence of each class, and how far is far."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from experiments.certify.certificate import Certificate
from experiments.drawing import rays
from experiments.drawing.style import ACCENT, IN_DOMAIN, OOD, literal

_MAX_CLASSES = 20
# Inches from a panel to its legend: the numbers and the label of its axis are between, whatever the panel's height.
_LEGEND_BELOW = 0.5


def draw(certificate: Certificate, *, class_names: tuple[str, ...], title: str) -> Figure:
    """Two or three panels, each with its legend below it; the bounds are left out where they are 1 in every class."""
    unbounded = np.isinf(certificate.bound.log_odds[: certificate.num_classes]).all()
    panels = 2 if unbounded else 3
    rows = max(min(certificate.num_classes, _MAX_CLASSES), len(certificate.norms))
    figure = Figure(figsize=(5.0 * panels, 2.8 + 0.2 * rows), layout="constrained")
    axes = figure.subplots(1, panels)
    _rays(axes[0], certificate)
    if not unbounded:
        _bounds(axes[1], certificate, class_names)
    _norms(axes[-1], certificate)
    note = "\nno bound below 1: every logit is linear" if unbounded else ""
    figure.suptitle(literal(title) + note, fontsize=12)
    return figure


def _rays(axis: Axes, certificate: Certificate) -> None:
    profile = certificate.profile
    handles = rays.draw_probabilities(axis, profile)
    # Up to where 95 % of the directions have their final values, and a little beyond.
    values = np.stack([profile.confidence, profile.ood_probability])
    changing = (np.abs(values - values[:, -1:]) > 1e-3).any(axis=0).mean(axis=1) > 0.05
    end = min(100.0 * profile.distances[max(np.flatnonzero(changing), default=0)], profile.distances[-1])
    axis.set_xscale("log")
    axis.set_xlim(profile.distances[0], end)
    axis.set_ylim(-0.02, 1.02)
    constant = f", constant from there to {profile.distances[-1]:.0e}" if end < profile.distances[-1] else ""
    axis.set_xlabel(f"distance t along a random direction{constant}", fontsize=9)
    axis.set_ylabel("probability")
    axis.set_title(
        f"{certificate.num_directions:,} directions, t → ∞: {100 * certificate.certain:.4g} % certain of a class",
        fontsize=10,
    )
    axis.legend(handles.values(), handles.keys(), ncols=1, **_below(axis))


def _bounds(axis: Axes, certificate: Certificate, class_names: tuple[str, ...]) -> None:
    log_odds = certificate.bound.log_odds[: certificate.num_classes]
    order = np.argsort(-log_odds, kind="stable")[:_MAX_CLASSES]
    places = np.arange(len(order))
    exact, closed = _decades(log_odds[order]), _decades(certificate.bound.closed_form_log_odds[order])
    axis.hlines(places, 0.0, exact, color=IN_DOMAIN, linewidth=1, alpha=0.5)
    axis.plot(closed, places, "D", color=OOD, markerfacecolor="none", markersize=8, label="closed form")
    axis.plot(exact, places, "o", color=IN_DOMAIN, markersize=5, label="exact")
    axis.set_yticks(places, [literal(class_names[c]) for c in order], fontsize=8)
    axis.set_ylim(len(places) - 0.5, -0.5)
    # A whole decade at least, since these alone have a number.
    axis.set_xlim(0.0, max(1.08 * closed.max(), 1.08))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.xaxis.set_major_formatter(lambda decades, _: f"$10^{{{-decades:g}}}$" if decades else "1")
    axis.set_xlabel("1 − P: the probability that is left for all other classes")
    axis.set_ylabel("class")
    which = "" if len(order) == len(log_odds) else f", {len(order)} of {len(log_odds)} classes"
    axis.set_title(f"largest confidence P over all inputs{which}", fontsize=10)
    axis.legend(ncols=2, **_below(axis))


def _below(axis: Axes) -> dict[str, Any]:
    """Where a panel's legend is, and how it looks."""
    below = axis.transAxes + ScaledTranslation(0.0, -_LEGEND_BELOW, axis.figure.dpi_scale_trans)
    return {
        "loc": "upper center",
        "bbox_to_anchor": (0.5, 0.0),
        "bbox_transform": below,
        "borderaxespad": 0.0,
        "frameon": False,
        "fontsize": 9,
    }


def _decades(log_odds: np.ndarray) -> np.ndarray:
    """−log₁₀(1 − P), which keeps its digits where P is within rounding of 1."""
    return np.logaddexp(0.0, log_odds) / np.log(10.0)


def _norms(axis: Axes, certificate: Certificate) -> None:
    radius = certificate.radius
    places = range(len(certificate.norms))
    for place, (name, norms) in enumerate(certificate.norms.items()):
        colour, marker = (IN_DOMAIN, "o") if name == "test" else (OOD, "s")
        axis.hlines(place, norms.low, norms.high, color=colour, linewidth=3, alpha=0.6)
        axis.plot(norms.median, place, marker, color=colour, markersize=7)
        if np.isfinite(radius.radius):
            axis.text(1.02, place, f"{100 * norms.beyond:.0f} %", va="center", transform=axis.get_yaxis_transform())
    axis.set_xscale("log")
    axis.set_yticks(places, [literal(name) for name in certificate.norms], fontsize=9)
    axis.set_ylim(len(places) - 0.5, -0.5)
    axis.set_xlabel("‖G(x)‖₂ (median, 5–95 %)")
    if np.isfinite(radius.radius):
        axis.axvline(radius.radius, color=ACCENT, linestyle=":", linewidth=2, label=f"safe radius {radius.radius:.3g}")
        axis.text(1.02, 1.01, "share\nbeyond", fontsize=9, transform=axis.transAxes)
        axis.set_title(f"no class exceeds {radius.confidence:g} to the right of the dotted line", fontsize=10)
        axis.legend(**_below(axis))
    else:
        axis.set_title("norms of the embeddings; no safe radius", fontsize=10)
