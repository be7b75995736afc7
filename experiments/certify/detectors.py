"""What detectors say of a run's network far away: the share of random directions that each calls OOD in the limit."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from experiments.drawing.style import ACCENT, GREY, OOD, literal
from preload_jax import detectors, guarantees, metrics
from preload_jax.data.splits import Splits
from preload_jax.detectors.network import linear_head, outputs_for, seen_by_classes
from preload_jax.errors import UserError
from preload_jax.models import Classifier
from preload_jax.models.mixtures import is_mixture

# What detectors take for a linear function of the features, and a mean over networks or weights is not.
_LOGITS = {"logits", "ood_logit", "head", "network"}
_MORE = "its limit is not derived: it reads more than features and logits"
_NOT_LINEAR = "its limit is derived of logits that are linear in the features, and this network's are not"
# Directions whose slopes are computed at once.
_BATCH = 500


def measure(
    chosen: Sequence[str],
    model: Classifier,
    variables: Mapping[str, Any],
    splits: Splits,
    *,
    has_ood_class: bool,
    key: jax.Array,
    num_directions: int,
    display: Display,
) -> dict[str, Any]:
    """By detector the share of directions called OOD in the limit, and the rule's name, or why it was left out.

    A detector is fitted to the outputs on the training images; its threshold is the score that 95 % of the test images
    reach.

    Args:
        chosen: rows of `preload_jax.detectors.TABLE`.
        model, variables: the network.
        splits: of its data set.
        has_ood_class: whether the last logit is the OOD class.
        key: of the random directions.
        num_directions: how many.
        display: shows progress.

    Raises:
        UserError: for a backbone that is not affine far away.
    """
    shape = splits.train.images.shape[1:]
    directions = jax.random.normal(key, (num_directions, *shape))
    own = {name: tree["backbone"] for name, tree in variables.items() if "backbone" in tree}
    parts = [directions[i : i + _BATCH] for i in range(0, num_directions, _BATCH)]
    slopes, constants = (
        seen_by_classes(model, np.concatenate([np.asarray(function(model.backbone, own, part)) for part in parts]))
        for function in (guarantees.ray_slopes, guarantees.ray_constants)
    )
    # Rays whose far end float32 does not hold are undecided.
    known = np.isfinite(slopes).all(axis=1) & np.isfinite(constants).all(axis=1)
    derived = [name for name in chosen if detectors.get(name).far_away != "undecided"]
    if is_mixture(model):
        derived = [name for name in derived if not _LOGITS & set(detectors.get(name).needs)]
    train, test = (outputs_for(derived, model, variables, part.images) for part in (splits.train, splits.test))
    head = linear_head(variables)
    num_classes = np.asarray(test.logits).shape[1] - has_ood_class
    found: dict[str, Any] = {}
    with display.progress("detectors far away", total=len(chosen), unit="detectors") as update:
        for done, name in enumerate(chosen, start=1):
            if name not in derived:
                linear = not is_mixture(model) or detectors.get(name).far_away == "undecided"
                found[name] = {"left_out": _MORE if linear else _NOT_LINEAR}
                update(done)
                continue
            try:
                detector = detectors.fit(name, train, splits.train.labels, head=head, num_classes=num_classes)
                limits = np.full(num_directions, np.nan)
                limits[known] = guarantees.detector_limits(detector, slopes[known], constants[known], head=head)
                threshold = metrics.threshold_at_tpr(jnp.asarray(detectors.score(detector, test)))
                decided = ~np.isnan(limits)
                found[name] = {
                    "rule": detectors.get(name).far_away,
                    "ood": float(np.mean(limits[decided] < float(threshold))) if decided.any() else None,
                    "undecided": int((~decided).sum()),
                    "threshold": float(threshold),
                }
            except UserError as error:
                found[name] = {"left_out": str(error)}
            update(done)
    return found


def table(found: Mapping[str, Any], *, num_directions: int, width: int | None = None) -> str:
    """A row a detector, as text for a terminal."""
    view = Table(title=f"Called OOD as t → ∞, of {num_directions:,} random directions", title_justify="left")
    view.add_column("detector", overflow="fold")
    view.add_column("called OOD", justify="right")
    view.add_column("rule")
    for name, row in found.items():
        if "left_out" in row:
            continue
        share = "–" if row["ood"] is None else f"{100 * row['ood']:.2f} %"
        note = f" ({row['undecided']:,} undecided)" if row["undecided"] else ""
        view.add_row(escape(detectors.get(name).title), share + note, detectors.FAR_AWAY[row["rule"]])
    left_out = (
        f"{detectors.get(name).title} was left out: {row['left_out']}"
        for name, row in found.items()
        if "left_out" in row
    )
    return rendered(view, "The threshold is the score that 95 % of the test images reach.", *left_out, width=width)


def draw(found: Mapping[str, Any], *, title: str) -> Figure:
    """A bar a detector: the share of directions that it calls OOD in the limit, the safest first."""
    rows = sorted(
        ((row["ood"], detectors.get(name).title) for name, row in found.items() if row.get("ood") is not None),
        key=lambda row: row[0],
    )
    figure = Figure(figsize=(7.0, 1.2 + 0.23 * max(len(rows), 1)), layout="constrained")
    axis = figure.subplots()
    shares = [100 * share for share, _ in rows]
    colors = [OOD if share < 1 else ACCENT if share > 99 else GREY for share in shares]
    axis.barh(range(len(rows)), shares, color=colors)
    axis.set_yticks(range(len(rows)), [name for _, name in rows], fontsize=8)
    for place, share in enumerate(shares):
        axis.annotate(
            f"{share:.1f}", (share, place), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7
        )
    axis.set_xlim(0, 112)
    axis.set_xlabel("directions called OOD as t → ∞ (%)", fontsize=9)
    axis.set_title(literal(title), fontsize=10)
    return figure
