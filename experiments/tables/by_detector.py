"""What detectors make of finished runs' networks, as tables: a row a detector, a column an OOD set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table as View
from rich.text import Text

from experiments.cli.terminal import rendered
from experiments.cli.visible import named
from experiments.runs import titles
from experiments.runs.collected import Collection
from experiments.runs.estimates import Estimate, best, estimate
from experiments.tables import comparable
from experiments.tables.cells import MEASURES, Measure
from experiments.tables.render import heading, in_markdown, number, tex

# Of `cells.MEASURES`, those that a detector has.
KNOWN = ("fpr95", "auroc", "aupr")
CSV_COLUMNS = ("table", "dataset", "method", "detector", "ood", "mean", "standard_error", "values", "bold")


@dataclass(frozen=True)
class DetectorTable:
    """One measure of all detectors on the networks of one method.

    Attributes:
        measure: what the numbers are.
        dataset, method: of the runs.
        sets: the columns.
        rows: by detector the estimate of each column, over seeds.
        bold: by column the best detectors, error bars taken into account.
        seeds: of the runs.
    """

    measure: Measure
    dataset: str
    method: str
    sets: tuple[str, ...]
    rows: dict[str, dict[str, Estimate]]
    bold: dict[str, set[str]]
    seeds: tuple[int, ...]

    @property
    def title(self) -> str:
        """Its heading: which networks, which measure, which seeds."""
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"seeds {', '.join(map(str, self.seeds))}"
        networks = f"{titles.dataset(self.dataset)}, networks of {titles.METHOD_TITLES[self.method]}, {seeds}"
        return f"{heading(self.measure)}; {networks}"


def build(name: str, collection: Collection, *, methods: Sequence[str]) -> list[DetectorTable]:
    """The tables of a measure of `KNOWN`: of every data set and method that has detectors in all of its seeds."""
    measure = MEASURES[name]
    tables = []
    for dataset in collection.datasets():
        compared = comparable.of_all_methods(collection, dataset)
        for method in methods:
            results = {seed: r["detectors"] for seed, r in compared.shown[method].items() if r["detectors"]}
            rows = _rows(measure, list(results.values()))
            if not rows:
                continue
            everywhere = set.intersection(*(set(row) for row in rows.values()))
            sets = titles.ordered(dataset, [of_set for of_set in next(iter(rows.values())) if of_set in everywhere])
            bold = {of_set: _best(measure, {d: row[of_set] for d, row in rows.items()}) for of_set in sets}
            tables.append(DetectorTable(measure, dataset, method, tuple(sets), rows, bold, tuple(results)))
    return tables


def _rows(measure: Measure, results: Sequence[dict[str, Any]]) -> dict[str, dict[str, Estimate]]:
    """By detector and OOD set, where every seed has both."""
    found = {}
    for detector in results[0] if results else ():
        by_seed = [result.get(detector, {}).get("ood", {}) for result in results]
        sets = [of_set for of_set in by_seed[0] if all(of_set in row for row in by_seed)]
        if sets:
            found[detector] = {s: estimate([row[s][measure.key] for row in by_seed]) for s in sets}
    return found


def _best(measure: Measure, values: dict[str, Estimate]) -> set[str]:
    if len(values) < 2 or measure.lower_is_better is None:
        return set()
    # 0.05: these are printed with one decimal of a percent.
    return set(best(values, lower_is_better=measure.lower_is_better, rounding=0.0005))


def terminal(table: DetectorTable, *, width: int | None = None) -> str:
    """For a terminal, or a file."""
    view = View(title=named(table.title), title_justify="left")
    view.add_column("detector", overflow="fold")
    for of_set in table.sets:
        view.add_column(named(titles.ood(of_set)), justify="right")
    for detector, row in table.rows.items():
        cells = []
        for of_set in table.sets:
            is_best = detector in table.bold[of_set]
            cells.append(Text(number(row[of_set], table.measure) + "*" * is_best, "bold green" if is_best else ""))
        view.add_row(title(detector), *cells)
    return rendered(view, width=width)


def markdown(table: DetectorTable) -> str:
    """A Markdown table."""
    lines = [f"**{table.title}**", "", "| | " + " | ".join(in_markdown(titles.ood(name)) for name in table.sets) + " |"]
    lines.append("|---|" + "--:|" * len(table.sets))
    for detector, row in table.rows.items():
        texts = {of_set: number(row[of_set], table.measure) for of_set in table.sets}
        cells = [f"**{text}**" if detector in table.bold[of_set] else text for of_set, text in texts.items()]
        lines.append(f"| {title(detector)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def latex(table: DetectorTable) -> str:
    """A LaTeX table for booktabs."""
    lines = [r"\begin{table}", rf"\caption{{{tex(table.title)}}}", rf"\begin{{tabular}}{{l{'c' * len(table.sets)}}}"]
    lines += [r"\toprule", " & ".join(["", *(tex(titles.ood(of_set)) for of_set in table.sets)]) + r" \\", r"\midrule"]
    for detector, row in table.rows.items():
        texts = {of_set: tex(number(row[of_set], table.measure)) for of_set in table.sets}
        cells = [rf"\textbf{{{text}}}" if detector in table.bold[of_set] else text for of_set, text in texts.items()]
        lines.append(" & ".join([tex(title(detector)), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def lines(table: DetectorTable) -> list[list[Any]]:
    """Of a CSV file with `CSV_COLUMNS`, fractions in full precision."""
    start = [table.measure.name, table.dataset, table.method]
    return [
        [*start, detector, of_set, value.mean, value.error, value.count, int(detector in table.bold[of_set])]
        for detector, row in table.rows.items()
        for of_set, value in row.items()
    ]


def title(detector: str) -> str:
    """The title of a detector; one that this version lacks has its name."""
    from preload_jax import detectors

    return detectors.get(detector).title if detector in detectors.TABLE else detector


FORMATS: dict[str, Callable[[DetectorTable], str]] = {"terminal": terminal, "markdown": markdown, "latex": latex}
