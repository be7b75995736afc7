"""The paper's tables from finished runs, the paper's numbers beside ours: `python -m experiments.tables`."""

import csv
import sys
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
    format: str = "terminal"
    """terminal, markdown, latex or csv."""


def main(args: Args) -> int:
    """Collects, selects and prints; returns the exit status."""
    from experiments.cli import filters
    from experiments.runs import collected, titles
    from experiments.tables import by_detector, cells, render
    from preload_jax.errors import UserError
    from preload_jax.methods import METHODS, PAPER

    if args.format not in (*render.FORMATS, "csv"):
        raise UserError(f"unknown --format {args.format!r}; expected one of {[*render.FORMATS, 'csv']}")
    known = by_detector.KNOWN if args.detectors else cells.MEASURES
    measures = filters.names(args.table, option="--table", known=known) or tuple(known)
    methods = filters.names(args.method, option="--method", known=titles.METHOD_TITLES)
    everything = collected.collect(args.root)
    collection = collected.select(
        everything,
        datasets=filters.parts(args.dataset),
        methods=methods,
        seeds=filters.numbers(args.seeds, option="--seeds") if args.seeds else None,
    )
    if args.detectors:
        tables_of = [by_detector.build(name, collection, methods=methods or tuple(METHODS)) for name in measures]
        _show_detectors([table for tables in tables_of for table in tables], args)
        return 0
    # In the paper's order, whatever order they were named in.
    there = {method for _, method, _ in (*collection.results, *collection.unfinished)}
    shown = [name for name in titles.METHOD_TITLES if name in (methods or (*PAPER, *there))]
    tables = [cells.build(cells.MEASURES[name], collection, methods=shown) for name in measures]
    if args.table and not all(table.rows for table in tables):
        raise UserError(
            "no run was evaluated under shift, so --table=shift_ece is empty; give experiments.run or paper --shift"
        )
    tables = [table for table in tables if table.rows]
    if args.format == "csv":
        print(render.comma_separated(tables), end="")
        return 0
    print("\n".join(render.FORMATS[args.format](table) for table in tables))
    comment = "% " if args.format == "latex" else ""
    separator = "\n\n" if args.format == "markdown" else "\n"
    print(
        separator.join(
            comment + note
            for note in (
                render.legend(tables),
                *cells.seed_notes(collection, methods=shown),
                *cells.recipe_notes(collection, methods=shown),
                *collection.notes,
            )
        )
    )
    return 0


def _show_detectors(tables: "list[DetectorTable]", args: Args) -> None:
    from experiments.tables import by_detector
    from preload_jax.errors import UserError

    if not tables:
        raise UserError(f"no run under {args.root} has detectors; give experiments.run or paper --detectors=all")
    if args.format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(by_detector.CSV_COLUMNS)
        writer.writerows(line for table in tables for line in by_detector.lines(table))
        return
    print("\n".join(by_detector.FORMATS[args.format](table) for table in tables))
