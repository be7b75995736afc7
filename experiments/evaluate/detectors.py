"""Detectors on a network's outputs: each fitted to those on the training images, and tested on the same OOD sets."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from rich.markup import escape
from rich.table import Table

from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from experiments.evaluate import report
from experiments.runs import averages, derived, folder, titles
from experiments.runs.collected import read_detectors as read
from experiments.runs.data import load_splits
from experiments.runs.run_dir import RunDir
from experiments.runs.shared_folder import SharedFolder
from preload_jax import detectors, methods, metrics
from preload_jax.data.splits import Splits
from preload_jax.detectors import Outputs
from preload_jax.detectors.network import linear_head, outputs_for
from preload_jax.devices import processes, sharing
from preload_jax.errors import UserError

# As cells of the table show them; the second needs --ood-positive.
_COLUMNS = {"fpr95": "FPR-95 ↓", "auroc": "AUROC ↑"}
_BOTH_WAYS = {
    "fpr95": "FPR-95 (in) ↓",
    "fpr95_ood_positive": "FPR-95 (OOD) ↓",
    "auroc": "AUROC ↑",
    "aupr": "AUPR (in) ↑",
    "aupr_ood_positive": "AUPR (OOD) ↑",
}


def is_done(run_dir: RunDir, chosen: Sequence[str]) -> bool:
    """Whether a run's detectors.json has all of these."""
    return run_dir.detectors.is_file() and set(chosen) <= read(run_dir.detectors).keys()


def obtain(
    run_dir: RunDir,
    chosen: Sequence[str],
    *,
    data_dir: Path | None,
    display: Display,
    strict: bool = False,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    """detectors.json of a finished run with the detectors asked for; those that it lacks are measured and added.

    Several processes measure together where the mesh has devices of them; the first alone has the run's folder.

    Raises:
        UserError: when the run is not finished or the file is damaged.
        BusyError: when another process works in the folder.
    """
    run = SharedFolder(run_dir)
    with contextlib.ExitStack() as stack:
        there = run.first(lambda: _open(run_dir, stack))
        missing = [name for name in chosen if name not in there]
        if not missing:
            display.already(run_dir.detectors)
            return {name: there[name] for name in chosen}
        config = run.read_config()
        splits = processes.together(lambda: load_splits(config, data_dir=data_dir, strict=strict, report=display.warn))
        sets = run.first(lambda: list(run_dir.read_results()["ood"]))
        found, _ = of_network(
            missing,
            folder.build_model(config),
            run.read_variables(config, on_damaged=display.warn),
            splits,
            report.ood_loaders(config, sets, splits=splits, data_dir=data_dir, display=display),
            has_ood_class=methods.get(config.method).has_ood_class,
            display=display,
            mesh=mesh,
        )
        run.first(lambda: derived.write(run_dir.detectors, {"detectors": {**there, **found}}))
    return {name: {**there, **found}[name] for name in chosen}


def _open(run_dir: RunDir, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Locks a run's folder, and reads what its detectors.json has."""
    stack.enter_context(run_dir.locked())
    return read(run_dir.detectors) if run_dir.detectors.is_file() else {}


def of_network(
    chosen: Sequence[str],
    model: Any,
    variables: Mapping[str, Any],
    splits: Splits,
    ood: Mapping[str, Callable[[], Any]],
    *,
    has_ood_class: bool,
    display: Display,
    mesh: Mesh | None = None,
    **options: Any,
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """`measure` of a network's outputs: fitted to its training images, the test images in-domain.

    Args:
        chosen: rows of `detectors.TABLE`.
        model, variables: the network.
        splits: of its data set.
        ood: name → a function that gives the images, or an iterator of blocks of them.
        has_ood_class: whether the last logit is the OOD class.
        display: shows progress.
        mesh: the devices that share each batch; those of several processes share batches and detectors.
        options: of `measure`.
    """
    look = partial(outputs_for, chosen, model, variables, mesh=mesh)
    train, test = look(splits.train.images), look(splits.test.images)
    return measure(
        chosen,
        (train, splits.train.labels),
        test,
        {name: look(load()) for name, load in ood.items()},
        head=linear_head(variables),
        num_classes=np.asarray(test.logits).shape[1] - has_ood_class,
        display=display,
        mesh=mesh,
        **options,
    )


def measure(
    chosen: Sequence[str],
    train: tuple[Outputs, np.ndarray | None],
    test: Outputs,
    ood: Mapping[str, Outputs],
    *,
    head: tuple[np.ndarray, np.ndarray] | None,
    num_classes: int | None,
    near: Sequence[str] = (),
    display: Display,
    mesh: Mesh | None = None,
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Each detector's metrics on each OOD set and its seconds, or why it was left out, for JSON; and all its scores.

    Args:
        chosen: rows of `detectors.TABLE`.
        train: outputs on the training data, and its labels.
        test: outputs on in-domain test data.
        ood: outputs by OOD set.
        head: (kernel [d, K], bias [K]) of the last layer, where it is known.
        num_classes: K; None: as many as there are logits.
        near: OOD sets that are near-OOD; with any, means by group are computed, too.
        display: shows progress.
        mesh: if it has devices of several processes, each of them takes its share of the detectors.
    """
    averages.groups(ood, near)  # What is misspelt is said now.
    found: dict[str, Any] = {}
    scores: dict[str, dict[str, np.ndarray]] = {}
    with display.progress("detectors", total=len(chosen), unit="detectors") as update:
        for done, name in enumerate(chosen, start=1):
            if sharing.owner(done - 1, mesh) != jax.process_index():
                continue
            try:
                found[name], scores[name] = _one(name, train, test, ood, head, num_classes)
                if near:
                    found[name]["averages"] = averages.of(found[name]["ood"], near)
            except UserError as error:
                found[name] = {"left_out": str(error)}
            update(done)
    return _of_all_processes(chosen, found, scores, mesh)


def _of_all_processes(
    chosen: Sequence[str], found: dict[str, Any], scores: dict[str, dict[str, np.ndarray]], mesh: Mesh | None
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """What each process has measured, and the scores, in every one, in the order of the detectors."""
    if not sharing.is_shared(mesh):
        return found, scores
    own, merged = found, {name: row for part in processes.exchanged(found) for name, row in part.items()}
    form = next(iter(scores.values()), None)
    sizes = processes.exchanged(None if form is None else {name: len(x) for name, x in form.items()})
    empty = {name: np.zeros(size, np.float32) for name, size in next(filter(None, sizes), {}).items()}
    all_scores = {
        name: sharing.from_process(scores.get(name, empty), number, mesh)
        for number, name in enumerate(chosen)
        if "left_out" not in merged[name]
    }
    return {name: own.get(name, merged[name]) for name in chosen}, all_scores


def require_some(found: Mapping[str, Any]) -> None:
    """Raises a UserError, with the reasons, where every detector was left out."""
    if all("left_out" in row for row in found.values()):
        reasons = "; ".join(f"{name}: {row['left_out']}" for name, row in found.items())
        raise UserError(f"no detector could be measured: {reasons}")


def _one(
    name: str,
    train: tuple[Outputs, np.ndarray | None],
    test: Outputs,
    ood: Mapping[str, Outputs],
    head: tuple[np.ndarray, np.ndarray] | None,
    num_classes: int | None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    began = time.perf_counter()
    detector = detectors.fit(name, *train, head=head, num_classes=num_classes)
    fitted = time.perf_counter()
    scores = {"in_domain": detectors.score(detector, test)}
    scores |= {of_set: detectors.score(detector, outputs) for of_set, outputs in ood.items()}
    seconds = {"fit": fitted - began, "score": time.perf_counter() - fitted}
    rows = {of_set: _metrics(scores["in_domain"], scores[of_set]) for of_set in ood}
    return {"ood": rows, "seconds": seconds}, scores


def _metrics(scores_in: np.ndarray, scores_ood: np.ndarray) -> dict[str, float]:
    both = scores_in, scores_ood
    values = {
        "fpr95": metrics.fpr_at_tpr(*both),
        "auroc": metrics.auroc(*both),
        "aupr": metrics.aupr(*both),
        "fpr95_ood_positive": metrics.fpr_at_tpr(*both, ood_positive=True),
        "aupr_ood_positive": metrics.aupr(*both, ood_positive=True),
    }
    return {name: float(value) for name, value in jax.device_get(values).items()} | {"size": len(scores_ood)}


def table(found: Mapping[str, Any], *, ood_positive: bool = False, width: int | None = None) -> str:
    """A row a detector, a column an OOD set or group, in percent, the best of each column bold; for a terminal."""
    columns = _BOTH_WAYS if ood_positive else _COLUMNS
    rows = {name: row for name, row in found.items() if "left_out" not in row}
    cells = {name: _columns(row) for name, row in rows.items()}
    view = Table(title=f"{' / '.join(columns.values())} of each detector, in percent", title_justify="left")
    view.add_column("detector", overflow="fold")
    for title in next(iter(cells.values()), {}):
        view.add_column(escape(title), justify="right", no_wrap=True)
    view.add_column("seconds", justify="right")
    best = _best(cells, columns)
    for name, row in rows.items():
        texts = []
        for title, values in cells[name].items():
            parts = []
            for metric in columns:
                text = f"{100 * values[metric]:.1f}"
                parts.append(f"[bold]{text}*[/bold]" if text == best[title, metric] else text)
            texts.append(" / ".join(parts))
        view.add_row(escape(detectors.get(name).title), *texts, f"{sum(row['seconds'].values()):.1f}")
    left_out = [
        f"{detectors.get(name).title} was left out: {row['left_out']}"
        for name, row in found.items()
        if "left_out" in row
    ]
    count = [f"{len(rows)} of {len(found)} detectors could be measured"] * bool(left_out)
    star = ["* the best of its column"] if any(best.values()) else []
    return rendered(view, *star, *count, *left_out, width=width)


def _columns(row: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """What a detector's row shows: title → metrics."""
    # A file of ours has its keys in alphabetical order.
    sets = {titles.ood(name): row["ood"][name] for name in titles.ordered("", row["ood"])}
    return sets | {averages.TITLES[group]: values for group, values in row.get("averages", {}).items()}


def _best(cells: Mapping[str, Mapping[str, Any]], columns: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """The best number of each column and metric, as it is printed; nothing is best where one detector stands alone."""
    if len(cells) < 2:
        return {(title, metric): "" for row in cells.values() for title in row for metric in columns}
    found = {}
    for title in next(iter(cells.values())):
        for metric in columns:
            values = [row[title][metric] for row in cells.values()]
            found[title, metric] = f"{100 * (min(values) if metric.startswith('fpr') else max(values)):.1f}"
    return found
