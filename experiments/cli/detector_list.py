"""Which detectors there are; imports no JAX."""

import os
from dataclasses import MISSING, fields
from typing import Any

from rich.table import Table

from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from preload_jax import detectors
from preload_jax.errors import UserError

# In place of names, in every command that takes detectors.
WORD = "list"


def show(args: Any) -> int:
    """Prints them for --detectors=list, which needs no network; returns the exit status.

    Raises:
        UserError: for options that would change nothing.
    """
    for field in fields(args):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        # What a command always takes is not in the way.
        given = default is not MISSING and getattr(args, field.name) != default
        if given and field.name not in ("detectors", "quiet", "json"):
            option = f"--{field.name.replace('_', '-')}"
            raise UserError(f"--detectors=list shows which there are, and {option} changes nothing; leave one out")
    Display(quiet=args.quiet, json=args.json).result(document(), text=table())
    return 0


def document() -> list[dict[str, Any]]:
    """Each detector's name, title, paper, year, and what it needs, for JSON."""
    return [
        {"name": name, "title": row.title, "reference": row.reference, "year": row.year, "needs": list(row.needs)}
        for name, row in detectors.TABLE.items()
    ]


def table(*, width: int | None = None) -> str:
    """The same for a terminal."""
    view = Table(title=f"{len(detectors.TABLE)} detectors", title_justify="left")
    for column in ("name", "detector", "paper, year", "needs"):
        view.add_column(column, overflow="fold")
    for row in document():
        needs = ", ".join(need.replace("_", " ") for need in row["needs"])
        view.add_row(row["name"], row["title"], row["reference"], needs)
    # Words, and no numbers that a program would read: as wide as was asked for, in a file, too.
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if width is None and columns.isdecimal() and int(columns) else width
    return rendered(view, "Options, formulas and prices are in docs/detectors.md.", width=width)
