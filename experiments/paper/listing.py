"""The plan of a grid as text: what is finished, what is left, and roughly what it costs."""

from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.cli.display import duration
from experiments.cli.terminal import rendered
from experiments.paper.grid import Job
from experiments.runs import titles


def table(
    cells: Sequence[Job],
    *,
    root: Path,
    cost: Callable[[Sequence[Job]], float],
    machine: str,
    others: Container[Job] = (),
) -> str:
    """A row a data set and method (or shift), in the order of the plan.

    Args:
        cells: the plan.
        root: of the runs.
        cost: gives rough seconds of some cells.
        machine: on which.
        others: cells in whose place there is a run of another configuration.
    """
    groups: dict[tuple[str, str, str], list[Job]] = {}
    for cell in cells:
        groups.setdefault((cell.dataset, cell.method, cell.shift or ""), []).append(cell)
    view = Table(title=f"The plan, for {root}; rough times for {machine}", title_justify="left")
    for name in ("data set", "method", "shift", "seeds"):
        view.add_column(name)
    for name in ("finished", "begun", "to do", "about"):
        view.add_column(name, justify="right")
    everything: list[Job] = []
    for (dataset, method, shift), group in groups.items():
        left = [cell for cell in group if not cell.is_finished(root) or cell in others]
        begun = sum(cell.is_begun(root) for cell in left)
        everything += left
        view.add_row(
            titles.dataset(dataset),
            titles.METHOD_TITLES[method],
            shift,
            ", ".join(str(cell.seed) for cell in group),
            *(str(number) for number in (len(group) - len(left), begun, len(left))),
            duration(cost(left)) if left else "",
        )
    return rendered(view) + f"{len(everything)} of {len(cells)} to do, about {duration(cost(everything))} on {machine}"


def document(
    cells: Sequence[Job],
    *,
    root: Path,
    cost: Callable[[Sequence[Job]], float],
    machine: str,
    others: Container[Job] = (),
) -> dict[str, Any]:
    """The same for --json: every cell, its state and its rough cost."""
    rows = []
    for cell in cells:
        state = "finished" if cell.is_finished(root) else "begun" if cell.is_begun(root) else "to do"
        state = "of another configuration" if cell in others else state
        rows.append({**cell.as_dict(root), "state": state, "seconds": round(cost([cell]))})
    return {"root": str(root), "machine": machine, "cells": rows}
