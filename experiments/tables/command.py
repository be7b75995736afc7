"""The paper's tables from finished runs, the paper's numbers beside ours: `python -m experiments.tables`."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from experiments.tables.by_detector import DetectorTable

_ALL = "(default: all)"


@dataclass(frozen=True)
class Args:
    """Makes the paper's tables from the results.json files under a folder, with the paper's numbers beside ours.

    Tables 1 and 2, and the supplement's by OOD set, accuracy and calibration.
    """

    root: Path = Path("runs")
    """Folder that finished runs are under."""
    table: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint=_ALL)] = ""
    """Which: faraway (Table 1), average (Table 2), fpr95, auroc, aupr, ood_mmc, accuracy, ece, shift_ece (Figure 3),
    mmc, brier, log_likelihood; several joined by commas."""
    dataset: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint=_ALL)] = ""
    """Only these in-domain data sets, joined by commas."""
    method: Annotated[str, tyro.conf.arg(metavar="NAMES", help_behavior_hint=_ALL)] = ""
    """Only these methods, joined by commas."""
    seeds: Annotated[str, tyro.conf.arg(metavar="NUMBERS", help_behavior_hint=_ALL)] = ""
    """Only these seeds, such as 0,1,2 or 0-4."""
    detectors: bool = False
    """What each detector makes of the runs' networks instead, where runs were given --detectors; --table is then fpr95,
    auroc or aupr."""
    leaderboard: bool = False
    """One page in Markdown instead, in the shape of OpenOOD's leaderboard: means over near-OOD, far-OOD and far-away
    sets, of all methods and detectors, and where the numbers come from."""
    near: Annotated[str, tyro.conf.arg(metavar="A,B,…", help_behavior_hint="(default: images of the same kind)")] = ""
    """With --leaderboard: the near-OOD sets."""
    format: str = "terminal"
    """terminal, markdown, latex or csv."""


def main(args: Args) -> int:
    """Prints what is asked for; returns the exit status."""
    from experiments.cli.display import show

    show(text(args))
    return 0


def text(args: Args) -> str:
    """The tables, or the leaderboard.

    Raises:
        UserError: for an unknown name, options that do not belong together, or when there is nothing to show.
    """
    from experiments.cli import filters
    from experiments.runs import collected, paper_numbers, titles
    from experiments.tables import by_detector, cells, render
    from preload_jax.errors import UserError, unknown
    from preload_jax.methods import METHODS, PAPER

    if args.leaderboard:
        return _leaderboard(args)
    if args.near:
        raise UserError(f"--near={args.near} is of --leaderboard; give both, or leave it out")
    if args.format not in (*render.FORMATS, "csv"):
        raise UserError(unknown("--format", args.format, [*render.FORMATS, "csv"]))
    known = by_detector.KNOWN if args.detectors else cells.MEASURES
    measures = filters.names(args.table, option="--table", known=known) or tuple(known)
    methods = filters.names(args.method, option="--method", known=titles.METHOD_TITLES)
    seeds = filters.numbers(args.seeds, option="--seeds") if args.seeds else None
    everything = collected.collect(args.root)
    collection = collected.select(
        everything,
        datasets=filters.parts(args.dataset),
        methods=methods,
        seeds=seeds,
    )
    if args.detectors:
        tables_of = [by_detector.build(name, collection, methods=methods or tuple(METHODS)) for name in measures]
        return _detectors([table for tables in tables_of for table in tables], args)
    # In the paper's order, whatever order they were named in.
    there = {method for _, method, _ in (*collection.results, *collection.unfinished)}
    # The paper's methods have numbers to compare with on its data sets alone.
    papers = PAPER if any(map(paper_numbers.knows, collection.datasets())) else ()
    shown = [name for name in titles.METHOD_TITLES if name in (methods or (*papers, *there))]
    tables = [cells.build(cells.MEASURES[name], collection, methods=shown) for name in measures]
    if args.table and not all(table.rows for table in tables):
        raise UserError(
            "no run was evaluated under shift, so --table=shift_ece is empty; give experiments.run or paper --shift"
        )
    tables = [table for table in tables if table.rows]
    if args.format == "csv":
        return render.comma_separated(tables)
    comment = "% " if args.format == "latex" else ""
    separator = "\n\n" if args.format == "markdown" else "\n"
    notes = (
        render.legend(tables),
        *cells.seed_notes(collection, methods=shown),
        *cells.recipe_notes(collection, methods=shown),
        *collection.notes,
    )
    parts = [render.FORMATS[args.format](table) for table in tables]
    return "\n".join([*parts, separator.join(comment + note for note in notes)]) + "\n"


def _leaderboard(args: Args) -> str:
    from experiments.cli import filters
    from experiments.tables import leaderboard
    from preload_jax.errors import UserError

    for option in ("table", "dataset", "method", "seeds", "detectors", "format"):
        if getattr(args, option) != getattr(Args, option):
            raise UserError(f"--{option} is of the tables, and --leaderboard shows everything; leave one out")
    return leaderboard.page(args.root, near=filters.parts(args.near) if args.near else None)


def _detectors(tables: "list[DetectorTable]", args: Args) -> str:
    from experiments.tables import by_detector
    from preload_jax.errors import UserError

    if not tables:
        raise UserError(f"no run under {args.root} has detectors; give experiments.run or paper --detectors=all")
    if args.format == "csv":
        output = io.StringIO()
        writer = csv.writer(output, lineterminator="\n")
        writer.writerow(by_detector.CSV_COLUMNS)
        writer.writerows(line for table in tables for line in by_detector.lines(table))
        return output.getvalue()
    return "\n".join(by_detector.FORMATS[args.format](table) for table in tables) + "\n"
