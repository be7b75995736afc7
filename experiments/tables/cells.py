"""The paper's tables as data: each cell ours and the paper's, or why there is nothing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.runs import paper_numbers, recipes, titles
from experiments.runs.collected import Collection
from experiments.runs.estimates import Estimate, best, differs, estimate
from experiments.tables import comparable
from experiments.tables.comparable import Comparison


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Attributes:
        ours: mean, standard error and number of values (1 alone has no error); None where there is no run.
        seeds: how many seeds are in it.
        paper: the paper's number; None where it has none.
        bold: among the best of its group, error bars taken into account.
        differs: ours, of two seeds at least, from the paper's by more than the combined error.
        why: why `ours` is None.
        not_as_recipe: of runs with other settings than their recipe's, so that it is not the paper's cell; of one's own
            data, than those of the runs that are compared.
        seen: some of it is about OOD images that training saw.
    """

    ours: Estimate | None = None
    seeds: int = 0
    paper: Estimate | None = None
    bold: bool = False
    differs: bool = False
    why: str = ""
    not_as_recipe: bool = False
    seen: bool = False


@dataclass(frozen=True)
class Row:
    """A row: an in-domain set, an OOD set where the table has them, and a cell a method."""

    dataset: str
    ood: str | None
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Measure:
    """What a table is about.

    Attributes:
        name: as --table spells it.
        title: its heading.
        key: of the number in results.json.
        lower_is_better: or higher; None for neither (then nothing is bold).
        sets: "all", "far" or "average" OOD sets; "shifts" for shifted test images; None for the in-domain ones.
        percent: or a plain number with three decimals.
        note: printed below.
    """

    name: str
    title: str
    key: str
    lower_is_better: bool | None
    sets: str | None
    percent: bool = True
    note: str = ""


_PAPER_ECE = (
    "The paper's ECE leaves out every confidence from 14/15 up; only runs of --recipe=released_code compute it so."
)
MEASURES = {
    measure.name: measure
    for measure in (
        Measure("faraway", "Table 1: FPR-95 far away", "fpr95", True, "far"),
        Measure("average", "Table 2: FPR-95, mean over OOD sets that are not far away", "fpr95", True, "average"),
        Measure("fpr95", "FPR-95 by OOD set", "fpr95", True, "all"),
        Measure("auroc", "AUROC by OOD set", "auroc", False, "all"),
        Measure("aupr", "AUPR by OOD set, in-domain positive", "aupr", False, "all"),
        Measure("ood_mmc", "Mean maximal confidence by OOD set", "mmc", True, "all"),
        Measure("accuracy", "Accuracy", "accuracy", False, None),
        Measure("ece", "Expected calibration error, 15 bins", "ece", True, None, note=_PAPER_ECE),
        Measure("shift_ece", "Figure 3 as numbers: ECE under shift, 15 bins", "ece", True, "shifts"),
        Measure("mmc", "Mean maximal confidence on in-domain test images", "mmc", None, None),
        Measure("brier", "Brier score", "brier", True, None, percent=False),
        Measure("log_likelihood", "Mean log-likelihood (nats)", "log_likelihood", False, None, percent=False),
    )
}


@dataclass(frozen=True)
class Table:
    """A measure's rows, the methods that are its columns, and notes on what is not as it should be."""

    measure: Measure
    methods: tuple[str, ...]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)


def build(measure: Measure, collection: Collection, *, methods: Sequence[str]) -> Table:
    """The table of a measure from whatever results there are."""
    rows: list[Row] = []
    notes = [measure.note] if measure.note else []
    for dataset in collection.datasets():
        comparison = comparable.of(collection, dataset, methods)
        by_method = comparison.shown
        if measure.sets is None:
            makers: dict[str | None, Maker] = {None: _in_domain}
        elif measure.sets == "shifts":
            makers = _shifted_sets(by_method)
        else:
            sets = _sets(measure, dataset, by_method)
            if measure.sets == "average":
                makers, note = _average(dataset, sets, by_method)
                notes += note
            else:
                makers = {name: _one_set(name) for name in sets}
        tested: dict[str | None, tuple[str | None, ...]] = {
            ood: ((ood,) if measure.sets in ("all", "far") else ()) for ood in makers
        }
        if measure.sets == "average":
            tested[None] = tuple(_everywhere(sets, by_method))
        for ood, maker in makers.items():
            cells = {m: _cell(measure, (m, tested[ood]), comparison, maker, collection) for m in methods}
            rows.append(Row(dataset, ood, _embolden(dataset, cells, measure)))
    return Table(measure, tuple(methods), rows, notes)


# Takes a measure, a data set, a method and results by seed; gives our values, or why there are none, and the paper's.
Maker = Callable[[Measure, str, str, dict[int, dict[str, Any]]], tuple[list[float] | str, Estimate | None]]


def _cell(
    measure: Measure,
    about: tuple[str, tuple[str | None, ...]],
    comparison: Comparison,
    maker: Maker,
    collection: Collection,
) -> Cell:
    """The cell of a method, and the OOD sets that it is about."""
    method, tested = about
    dataset, results = comparison.dataset, comparison.shown[method]
    values, paper = maker(measure, dataset, method, results)
    if not results:
        return Cell(paper=paper, why=collection.why_none(dataset, method))
    if isinstance(values, str):
        return Cell(paper=paper, why=values)
    ours = estimate(values)
    # Table 2 has several values a seed; else a seed may lack the OOD set.
    seeds = len(results) if measure.sets == "average" else len(values)
    other = method in comparison.others
    different = paper is not None and not other and seeds > 1 and differs(ours, paper, rounding=paper_numbers.ROUNDING)
    seen = comparable.saw(list(results.values()), [name for name in tested if name is not None])
    return Cell(ours, seeds, paper, differs=bool(different), not_as_recipe=other, seen=seen)


def _in_domain(measure: Measure, dataset: str, method: str, results: dict[int, dict[str, Any]]) -> Any:
    values = [result["in_domain"][measure.key] for result in results.values()]
    return values, paper_numbers.in_domain(measure.name, dataset, method)


def _one_set(name: str) -> Maker:
    def make(measure: Measure, dataset: str, method: str, results: dict[int, dict[str, Any]]) -> Any:
        values = [result["ood"][name][measure.key] for result in results.values() if name in result["ood"]]
        return values or _why_no_set(name, results), paper_numbers.ood(measure.key, dataset, name, method)

    return make


def _shifted_sets(by_method: dict[str, dict[int, dict[str, Any]]]) -> dict[str | None, Maker]:
    """A row a level of each shift that some run was evaluated under; of corruptions, the mean over kinds."""
    reports = [report for results in by_method.values() for r in results.values() for report in r["shifts"].values()]
    levels = sorted({(report["shift"], row["level"]) for report in reports for row in report["levels"]})
    return {titles.SHIFTS[shift].format(level): _shift_level(shift, level) for shift, level in levels}


def _shift_level(shift: str, level: int) -> Maker:
    def make(measure: Measure, dataset: str, method: str, results: dict[int, dict[str, Any]]) -> Any:
        reports = [result["shifts"][shift] for result in results.values() if shift in result["shifts"]]
        values = [[row[measure.key] for row in report["levels"] if row["level"] == level] for report in reports]
        return [math.fsum(row) / len(row) for row in values if row] or "not evaluated", None

    return make


def _average(
    dataset: str, sets: list[str], by_method: dict[str, dict[int, dict[str, Any]]]
) -> tuple[dict[str | None, Maker], list[str]]:
    """Over the sets that every run has: a mean over other sets would not be comparable."""
    everywhere = _everywhere(sets, by_method)
    notes = []
    if len(everywhere) < len(sets):
        missing = ", ".join(titles.ood(name) for name in sets if name not in everywhere)
        notes.append(
            f"{titles.dataset(dataset)}: over {len(everywhere)} of {len(sets)} sets, ours and the paper's alike"
            f" (not prepared for every run: {missing})."
        )

    def make(measure: Measure, dataset: str, method: str, results: dict[int, dict[str, Any]]) -> Any:
        values = [result["ood"][name][measure.key] for result in results.values() for name in everywhere]
        paper = paper_numbers.average(dataset, method, everywhere) if dataset in titles.DATASETS else None
        return values or "no OOD set prepared", paper

    return {None: make}, notes


def _everywhere(sets: list[str], by_method: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    return [name for name in sets if all(name in r["ood"] for results in by_method.values() for r in results.values())]


def _sets(measure: Measure, dataset: str, by_method: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    found = dict.fromkeys(name for results in by_method.values() for r in results.values() for name in r["ood"])
    far = measure.sets == "far"
    return [
        name
        for name in titles.ood_sets(dataset, list(found))
        if measure.sets == "all" or (name in titles.FAR_SETS) == far
    ]


def _why_no_set(name: str, results: dict[int, dict[str, Any]]) -> str:
    prepared = all(name not in result.get("ood_not_prepared", ()) for result in results.values())
    return "not measured" if prepared else "not prepared"


def _embolden(dataset: str, cells: dict[str, Cell], measure: Measure) -> dict[str, Cell]:
    """Marks the best of each group."""
    if measure.lower_is_better is None:
        return cells
    marked = dict(cells)
    for group in titles.GROUPS.values():
        ours = {
            name: cell.ours
            for name, cell in cells.items()
            if name in group
            and cell.ours is not None
            and comparable.counts(dataset, other=cell.not_as_recipe, seen=cell.seen)
        }
        if len(ours) < 2:
            continue  # nothing to compare
        for name in best(ours, lower_is_better=measure.lower_is_better, rounding=paper_numbers.ROUNDING):
            marked[name] = replace(cells[name], bold=True)
    return marked


def recipe_notes(collection: Collection, *, methods: Sequence[str]) -> list[str]:
    """The runs that have other settings than those they could be compared with, and whether they are in the tables."""
    return [note for dataset in collection.datasets() for note in comparable.of(collection, dataset, methods).notes]


def seed_notes(collection: Collection, *, methods: Sequence[str]) -> list[str]:
    """Which seeds are missing, of those asked for or else of the paper's five; and recipes that are mixed."""
    wanted = collection.seeds or paper_numbers.SEEDS
    notes = []
    for dataset in collection.datasets():
        by_seeds: dict[tuple[int, ...], list[str]] = {}
        for method in methods:
            there = tuple(sorted(collection.of(dataset, method)))
            if there and not set(wanted) <= set(there):
                by_seeds.setdefault(there, []).append(method)
        for there, names in by_seeds.items():
            run = [method for method in methods if collection.of(dataset, method)]
            who = "all methods" if names == run else ", ".join(titles.METHOD_TITLES[name] for name in names)
            listed = ", ".join(map(str, there))
            # Data sets that the paper does not have are not five seeds short.
            of = f" of {len(wanted)} seeds" if collection.seeds else " of the paper's 5 seeds"
            if not collection.seeds and not paper_numbers.knows(dataset):
                of = " seeds" if len(there) > 1 else " seed"
            notes.append(
                f"{titles.dataset(dataset)}: {len(there)}{of} ({listed}) of {who}"
                f"{'; one seed has no error' if len(there) == 1 else ''}."
            )
        mixed = recipes.mixed(result for (d, _, _), result in collection.results.items() if d == dataset)
        if mixed:
            notes.append(f"{titles.dataset(dataset)}: runs of different recipes are mixed: {mixed}.")
    return notes
