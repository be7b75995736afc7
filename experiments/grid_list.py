"""The plan of a grid as text: what is finished, what is left, and roughly what it costs."""

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments import grid, titles
from experiments.grid import Cell


def table(cells: Sequence[Cell], *, root: Path, accelerator: bool, epochs: int | None = None) -> str:
    """A row a data set and method (or shift), in the order of the plan."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.dataset, cell.method, cell.shift or ""), []).append(cell)
    machine = "an H100-like accelerator" if accelerator else "two CPU cores"
    view = Table(title=f"The plan, for {root}; rough times for {machine}", title_justify="left")
    for name in ("data set", "method", "shift", "seeds"):
        view.add_column(name)
    for name in ("finished", "begun", "to do", "about"):
        view.add_column(name, justify="right")
    everything: list[Cell] = []
    for (dataset, method, shift), group in groups.items():
        left = [cell for cell in group if not cell.is_finished(root)]
        begun = sum(cell.is_begun(root) for cell in left)
        everything += left
        cost = grid.seconds(left, accelerator=accelerator, epochs=epochs)
        view.add_row(
            titles.dataset(dataset),
            titles.METHOD_TITLES[method],
            shift,
            ", ".join(str(cell.seed) for cell in group),
            *(str(number) for number in (len(group) - len(left), begun, len(left))),
            grid.duration(cost) if left else "",
        )
    output = io.StringIO()
    Console(file=output, highlight=False, width=110, force_jupyter=False).print(view)
    cost = grid.seconds(everything, accelerator=accelerator, epochs=epochs)
    return output.getvalue() + f"{len(everything)} of {len(cells)} to do, about {grid.duration(cost)} on {machine}"
