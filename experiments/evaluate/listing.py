"""Which detectors there are; imports no JAX."""

from dataclasses import fields
from typing import Any

from rich.table import Table

from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from preload_jax import detectors
from preload_jax.errors import UserError


def show(args: Any) -> int:
    """Prints them for `evaluate --detectors=list`, which needs no network; returns the exit status.

    Raises:
        UserError: for options that would change nothing.
    """
    for field in fields(args):
        if field.name not in ("detectors", "quiet", "json") and getattr(args, field.name) != field.default:
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
    return rendered(view, "Options, formulas and prices are in docs/detectors.md.", width=width)
