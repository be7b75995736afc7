"""Tables as text: for a terminal, Markdown, LaTeX, CSV."""

import csv
import io
import re
from collections.abc import Callable

from experiments.cli.terminal import rendered
from experiments.cli.visible import named
from experiments.runs import titles
from experiments.runs.estimates import Estimate
from experiments.tables.cells import Cell, Measure, Row, Table
from experiments.tables.comparable import is_own

MARK = "≠"
NOT_AS_RECIPE, SEEN = "†", "‡"
NOT_RECIPES = f"{NOT_AS_RECIPE}: not with the recipe's settings, and not compared."
OTHER_SETTINGS = f"{NOT_AS_RECIPE}: of one's own data, not with the settings that most runs have, and not compared."
# Behind what SEEN means.
NOT_COMPARED = "; on one's own data that is not compared"
_SMALL = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def legend(tables: list[Table]) -> str:
    """What the numbers and marks of some tables mean."""
    text = "Mean ± standard error over seeds, as many as the small digit says"
    averages = [
        cell for table in tables if table.measure.sets == "average" for row in table.rows for cell in row.cells.values()
    ]
    if averages:
        alone = any(cell.seeds == 1 and cell.ours and cell.ours.error is not None for cell in averages)
        text += f" (Table 2: over set × seed{', of one seed alone over its OOD sets' if alone else ''})"
    compared = any(cell.paper for table in tables for row in table.rows for cell in row.cells.values())
    if compared:
        text += "; in brackets the paper's"
    text += (
        ". Bold or *: the best, error bars taken into account, of those trained from scratch and of those fine-tuned"
        " (-FT)."
    )
    if compared:
        text += f" {MARK}: two seeds or more differ from the paper's by more than the combined error."
    cells = [(is_own(row.dataset), cell) for table in tables for row in table.rows for cell in row.cells.values()]
    if any(cell.not_as_recipe for own, cell in cells if not own):
        text += f" {NOT_RECIPES}"
    if any(cell.not_as_recipe for own, cell in cells if own):
        text += f" {OTHER_SETTINGS}"
    if any(cell.seen for _, cell in cells):
        text += f" {SEEN}: training saw images of this OOD set{NOT_COMPARED * any(c.seen for own, c in cells if own)}."
    return text


def marks(cell: Cell) -> str:
    """What is said of a number of ours beside its being best."""
    return NOT_AS_RECIPE * cell.not_as_recipe + SEEN * cell.seen


def number(value: Estimate, measure: Measure) -> str:
    """A mean and its error, "12.3±0.4" in percent or "0.123±0.004"."""
    scale, digits = (100, 1) if measure.percent else (1, 3)
    # Adding 0.0 turns -0.0 into 0.0.
    mean = f"{round(scale * value.mean, digits) + 0.0:.{digits}f}"
    return mean if value.error is None else f"{mean}±{scale * value.error:.{digits}f}"


def with_seeds(value: Estimate, seeds: int, measure: Measure) -> str:
    """`number`, and behind it in small digits how many seeds it is of: "12.3±0.4₃"."""
    return number(value, measure) + str(seeds).translate(_SMALL)


def heading(measure: Measure) -> str:
    """The title of a table, its unit and which direction is better."""
    unit = " (%)" if measure.percent else ""
    return measure.title + unit + {True: " ↓", False: " ↑", None: ""}[measure.lower_is_better]


def label(row: Row) -> str:
    return titles.dataset(row.dataset) if row.ood is None else titles.ood(row.ood)


def _columns(table: Table) -> list[tuple[str, list[str]]]:
    """The groups that the table has, and the methods in each."""
    groups = ((name, [m for m in group if m in table.methods]) for name, group in titles.GROUPS.items())
    return [(name, methods) for name, methods in groups if methods]


def _paper(cell: Cell, measure: Measure) -> str:
    return "" if cell.paper is None else f"[{number(cell.paper, measure)}]{MARK if cell.differs else ''}"


def _ours(cell: Cell, measure: Measure) -> str:
    return cell.why if cell.ours is None else with_seeds(cell.ours, cell.seeds, measure)


def terminal(table: Table, *, width: int | None = None) -> str:
    """For a terminal: ours above, the paper's below in brackets."""
    from rich.table import Table as View
    from rich.text import Text

    methods = [m for _, group in _columns(table) for m in group]
    view = View(title=heading(table.measure), title_justify="left")
    view.add_column("data set / OOD set")
    for method in methods:
        view.add_column(titles.METHOD_TITLES[method], justify="right")
    for row, starts in _with_starts(table):
        if starts and row.ood is not None:
            view.add_section()
            view.add_row(Text(titles.dataset(row.dataset), style="bold"))
        cells = []
        for cell in (row.cells[method] for method in methods):
            ours, paper = _texts(cell, table.measure)
            style = "dim" if cell.ours is None else "bold green" if cell.bold else ""
            parts = [(ours, style)] + ([("\n", ""), (paper, "yellow" if cell.differs else "dim")] if paper else [])
            cells.append(Text.assemble(*parts))
        view.add_row(named(label(row)), *cells)
    return rendered(view, *table.notes, width=width)


def _texts(cell: Cell, measure: Measure) -> tuple[str, str]:
    """What a terminal shows of a cell: ours, with a star for bold, and the paper's."""
    return _ours(cell, measure) + "*" * cell.bold + marks(cell), _paper(cell, measure)


def _with_starts(table: Table) -> list[tuple[Row, bool]]:
    """The rows, and whether each is the first of its data set."""
    before = [None, *(row.dataset for row in table.rows)]
    return [(row, row.dataset != previous) for row, previous in zip(table.rows, before, strict=False)]


def markdown(table: Table) -> str:
    """A Markdown table."""
    methods = [m for _, group in _columns(table) for m in group]
    lines = [f"**{heading(table.measure)}**", ""]
    lines.append("| | " + " | ".join(titles.METHOD_TITLES[m] for m in methods) + " |")
    lines.append("|---|" + "--:|" * len(methods))
    for row, starts in _with_starts(table):
        if starts and row.ood is not None:
            lines.append(f"| **{in_markdown(titles.dataset(row.dataset))}** |" + " |" * len(methods))
        cells = []
        for method in methods:
            cell = row.cells[method]
            ours = f"*{cell.why}*" if cell.ours is None else _ours(cell, table.measure) + marks(cell)
            paper = _paper(cell, table.measure)
            cells.append((f"**{ours}**" if cell.bold else ours) + (f" {paper}" if paper else ""))
        lines.append(f"| {in_markdown(label(row))} | " + " | ".join(cells) + " |")
    notes = "".join(f"\n{note}\n" for note in table.notes)
    return "\n".join(lines) + "\n" + notes


def in_markdown(name: str) -> str:
    """A name for a cell of a Markdown table, which `|` would end."""
    return name.replace("|", r"\|")


def latex(table: Table) -> str:
    """A LaTeX table for booktabs, laid out as the paper's."""
    groups = _columns(table)
    spec = "l " + " || ".join("c" * len(methods) for _, methods in groups)
    title = tex(heading(table.measure))
    span = " & ".join(rf"\multicolumn{{{len(methods)}}}{{c}}{{\textbf{{{name}}}}}" for name, methods in groups)
    names = " & ".join(rf"\textbf{{{titles.METHOD_TITLES[m]}}}" for _, methods in groups for m in methods)
    lines = [
        r"\begin{table}",
        rf"\caption{{{title}}}",
        rf"\begin{{tabular}}{{{spec}}}",
        r"\toprule",
        rf"& {span} \\",
        rf"& {names} \\",
    ]
    for row, starts in _with_starts(table):
        if starts:
            lines.append(r"\midrule")
            if row.ood is not None:
                lines.append(rf"\textbf{{{tex(titles.dataset(row.dataset))}}} \\")
        cells = [_tex_cell(row.cells[m], table.measure) for _, methods in groups for m in methods]
        lines.append(rf"{tex(label(row))} & " + " & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", *(rf"% {note}" for note in table.notes), r"\end{table}"]
    return "\n".join(lines) + "\n"


def _tex_cell(cell: Cell, measure: Measure) -> str:
    if cell.ours is None:
        ours = rf"\textit{{{tex(cell.why)}}}"
    else:
        ours = tex(_ours(cell, measure) + marks(cell))
        ours = rf"\textbf{{{ours}}}" if cell.bold else ours
    paper = _paper(cell, measure)
    return ours + (rf" {{\scriptsize {tex(paper)}}}" if paper else "")


_LARGE = {small: large for large, small in _SMALL.items()}
_TEX_MARKS = {"↓": r"$\downarrow$", "↑": r"$\uparrow$", NOT_AS_RECIPE: r"$\dagger$", SEEN: r"$\ddagger$"}


def tex(text: str) -> str:
    """The text as LaTeX writes it."""
    for sign, command in {"%": r"\%", "_": r"\_", "&": r"\&", "±": r"$\pm$", MARK: r"$\neq$", **_TEX_MARKS}.items():
        text = text.replace(sign, command)
    return re.sub("[₀-₉]+", lambda digits: f"$_{{{digits[0].translate(_LARGE)}}}$", text)


CSV_COLUMNS = (
    *("table", "dataset", "ood", "method", "mean", "standard_error", "values", "seeds", "bold"),
    *("paper_mean", "paper_standard_error", "differs", "why", "not_as_recipe", "seen_in_training"),
)


def comma_separated(tables: list[Table]) -> str:
    """Every cell of every table as a line, fractions in full precision."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for table in tables:
        for row in table.rows:
            for method, cell in row.cells.items():
                ours, paper = (([e.mean, e.error] if e else ["", ""]) for e in (cell.ours, cell.paper))
                count = "" if cell.ours is None else cell.ours.count
                start = [table.measure.name, row.dataset, row.ood or "", method]
                flags = [int(cell.bold), *paper, int(cell.differs), cell.why]
                flags += [int(cell.not_as_recipe), int(cell.seen)]
                writer.writerow([*start, *ours, count, cell.seeds, *flags])
    return output.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {"terminal": terminal, "markdown": markdown, "latex": latex}
