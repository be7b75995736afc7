"""A certificate as text for a terminal."""

import numpy as np
from rich.table import Table

from experiments.certify.certificate import Certificate
from experiments.cli.terminal import rendered
from experiments.cli.visible import named
from preload_jax.guarantees import DensityRadius

_MAX_ROWS = 20
_DISTANCES = (1.0, 10.0, 100.0, 1e3, 1e6, 1e30)


def table(certificate: Certificate, *, class_names: tuple[str, ...], title: str, width: int | None = None) -> str:
    """The certificate as text for a terminal."""
    bounds: Table | str = f"Largest confidence over all inputs: 1 in each of the {certificate.num_classes} classes."
    if certificate.has_bound:
        bounds = _bounds(certificate, class_names)
    why = f"Why: {certificate.bound.reason}.\n"
    note, radius = _whole_rays_note(certificate), _input_radius(certificate)
    parts = (_limits(certificate, title), note, bounds, why, radius, _norm_table(certificate))
    return rendered(*(part for part in parts if part), width=width)


def _limits(certificate: Certificate, title: str) -> Table:
    view = Table(title=named(title), title_justify="left", show_header=False)
    view.add_column("")
    view.add_column("", justify="right")
    view.add_column("", justify="right")
    view.add_row("random directions u, t → ∞", f"{certificate.num_directions:,}", "")
    view.add_row("  confidence in one of the classes tends to 1", f"{100 * certificate.certain:.2f} %", "")
    view.add_row("  probability of the extra class tends to 1", f"{100 * certificate.ood:.2f} %", "")
    view.add_row("  dead: the embedding stays constant", f"{certificate.dead:,}", "")
    if certificate.undecided:
        view.add_row("  undecided: float64 does not tell the limit", f"{certificate.undecided:,}", "")
    view.add_section()
    confidence, distances = certificate.profile.confidence, certificate.profile.distances
    view.add_row(f"confidence in a class along {confidence.shape[1]} of them", "median", "largest")
    for distance in _DISTANCES:
        i = int(np.argmin(np.abs(np.log(distances / distance))))
        view.add_row(f"  at t = {distances[i]:.0e}", *_median_and_largest(confidence[i]))
    view.add_row("  at each ray's most confident t", *_median_and_largest(confidence.max(axis=0)))
    view.add_section()
    rays = certificate.rays
    if rays is None:
        return view
    top = int(np.argmax(rays.largest_log_odds))
    odds = (float(np.median(rays.largest_log_odds)), float(rays.largest_log_odds[top]))
    crossing = (float(np.median(rays.last_crossing)), float(rays.last_crossing.max()))
    view.add_row(f"all t ≥ 0, exactly, along {len(rays.distance):,} of them", "median", "largest")
    view.add_row("  largest confidence in a class", *(_from_log_odds(value) for value in odds))
    view.add_row("    at t", f"{np.median(rays.distance):.4g}", f"{rays.distance[top]:.4g}")
    shown = [f"{value:.4g}" if np.isfinite(value) else "none" for value in crossing]
    view.add_row(f"  t beyond which it stays ≤ {rays.confidence:g}", *shown)
    return view


def _whole_rays_note(certificate: Certificate) -> str:
    return "" if certificate.rays is not None else f"Whole rays: {certificate.no_rays}.\n"


def _input_radius(certificate: Certificate) -> str:
    found = certificate.input_radius
    if found is None:
        return ""
    if np.isinf(found.relative):
        return "Input radius: none within what float32 holds.\n"
    own = f" So does {found.in_metric:.4g} in the training images' metric." if isinstance(found, DensityRadius) else ""
    return (
        f"Input radius: {found.relative:.4g} typical distances (‖x − mean‖ ≥ {found.radius:.4g}) imply confidence ≤ "
        f"{found.confidence:g} in every class, whatever the backbone.{own}\n"
    )


def _median_and_largest(values: np.ndarray) -> tuple[str, str]:
    return probability(float(np.median(values))), probability(float(values.max()))


def _bounds(certificate: Certificate, class_names: tuple[str, ...]) -> Table:
    bound = certificate.bound
    view = Table(title="Largest confidence over all inputs", title_justify="left")
    view.add_column("class")
    for name in ("confidence", "log-odds", "closed form's", "gap", "KKT residual", "safe radius"):
        view.add_column(name, justify="right")
    order = np.arange(certificate.num_classes)
    if len(order) > _MAX_ROWS:
        order = np.argsort(-bound.log_odds[: certificate.num_classes], kind="stable")[:_MAX_ROWS]
        view.title = f"{view.title}, {_MAX_ROWS} largest of {certificate.num_classes} classes"
    for c in order:
        view.add_row(
            named(class_names[c]),
            _from_log_odds(bound.log_odds[c]),
            f"{bound.log_odds[c]:.6g}",
            f"{bound.closed_form_log_odds[c]:.6g}",
            f"{bound.log_odds[c] - bound.attained_log_odds[c]:.0e}",
            f"{bound.kkt_residual[c]:.0e}",
            f"{certificate.radius.class_radii[c]:.4g}",
        )
    return view


def _norm_table(certificate: Certificate) -> Table:
    radius = certificate.radius
    title = "No safe radius: far embeddings may be as confident as any"
    columns = ["images", "number", "‖G(x)‖: 5 %", "median", "95 %"]
    if certificate.is_bounded:
        title = f"Safe radius: ‖G(x)‖ ≥ {radius.radius:.4g} implies confidence ≤ {radius.confidence:g} in every class"
        columns.append("beyond it")
    if certificate.input_radius is not None:
        columns.append("beyond input radius")
    view = Table(title=title, title_justify="left")
    for name in columns:
        view.add_column(name, justify="left" if name == "images" else "right")
    for name, norms in certificate.norms.items():
        quantiles = [f"{value:.4g}" for value in (norms.low, norms.median, norms.high)]
        beyond = [f"{100 * norms.beyond:.1f} %"] if certificate.is_bounded else []
        if norms.beyond_input is not None:
            beyond.append(f"{100 * norms.beyond_input:.1f} %")
        view.add_row(named(name), f"{norms.size:,}", *quantiles, *beyond)
    return view


def probability(value: float) -> str:
    """Four digits, or as its distance from 0 or 1 where those would hide it."""
    if value in (0.0, 1.0):
        return f"{value:.0f}"
    if value > 0.9999:
        return f"1 - {1.0 - value:.0e}"
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


def _from_log_odds(log_odds: float) -> str:
    if log_odds == np.inf:
        return "1"
    # 1 - P = exp(-log-odds) there, which may be far below the spacing of floats near 1.
    exponent = -log_odds / np.log(10.0)
    if exponent < -15.0:
        return f"1 - 1e{exponent:.0f}"
    return probability(float(1.0 / (1.0 + np.exp(-log_odds))))
