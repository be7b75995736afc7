"""All methods and detectors of a folder of results on one page, in the shape of OpenOOD's leaderboard.

A table a data set and set-up: FPR-95 and AUROC as means over near-OOD, far-OOD and far-away sets, accuracy, ECE, and
the number of seeds.  Below, which command, commit and machine made each row, and the digests of its files.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.runs import averages, titles
from experiments.runs.collected import Collection
from experiments.runs.estimates import Estimate, best, estimate
from experiments.runs.paper_numbers import ROUNDING
from experiments.runs.run_dir import RunDir
from experiments.tables import comparable, setups
from experiments.tables.by_detector import title as detector_title
from experiments.tables.cells import MEASURES, Measure
from experiments.tables.comparable import Comparison
from experiments.tables.render import NOT_AS_RECIPE, NOT_COMPARED, NOT_RECIPES, OTHER_SETTINGS, SEEN, number
from experiments.tables.setups import Setup
from preload_jax.data.specs import DATASETS
from preload_jax.detectors import TABLE

_OF_GROUP, _IN_DOMAIN = (MEASURES["fpr95"], MEASURES["auroc"]), (MEASURES["accuracy"], MEASURES["ece"])
_GROUPS = {"near": "near-OOD", "far": "far-OOD", "far_away": "far away"}
_ABOUT = (
    "In percent, mean ± standard error over seeds. FPR-95 ↓ and AUROC ↑ are means over the OOD sets of a group, as in"
    " OpenOOD. The best are bold, error bars taken into account. The first group's AUROC orders the rows."
)
# Of the table of the files.
_HEAD = ("| row | seeds | command | commit | machine | files |", "|---|---|---|---|---|---|")
# Of a SHA-256, enough to tell files apart.
_DIGEST_DIGITS = 12


@dataclass(frozen=True)
class Entry:
    """A row: a method, an ensemble of a method's networks, or a detector.

    Attributes:
        title: of the row.
        runs: by seed the results: the metrics of each OOD set, and "in_domain" where they are the row's own.
        places: the files that the numbers are from.
        other: whether its runs have other settings than those that are compared.
    """

    title: str
    runs: tuple[dict[str, Any], ...]
    places: tuple[Path, ...]
    other: bool = False


@dataclass(frozen=True)
class Board:
    """A table: its rows' estimates by column."""

    setup: Setup
    entries: tuple[Entry, ...]
    groups: dict[str, list[str]]
    left_out: tuple[str, ...]
    rows: dict[str, dict[tuple[str, str], Estimate]]


def methods(results: Collection, dataset: str) -> list[Entry]:
    """An entry a method, in the order of the paper's tables, then the ensembles."""
    found = []
    compared = comparable.of_all_methods(results, dataset)
    for method, title in titles.METHOD_TITLES.items():
        if by_seed := compared.shown[method]:
            places = tuple(RunDir(results.folders[dataset, method, seed]).results for seed in by_seed)
            found.append(Entry(title, tuple(by_seed.values()), places, method in compared.others))
    ensembles: dict[str, list[Path]] = {}
    for place, values in results.ensembles.items():
        if values["dataset"] == dataset:
            title = f"{titles.METHOD_TITLES[values['method']]}, ensemble of {len(values['ensemble'])}"
            ensembles.setdefault(title, []).append(place)
    for title, folders in ensembles.items():
        runs = tuple(results.ensembles[place] for place in folders)
        other = any(map(compared.is_other, runs))
        found.append(Entry(title, runs, tuple(RunDir(place).results for place in folders), other))
    return found


def detectors(results: Collection, compared: Comparison, method: str) -> list[Entry]:
    """An entry a detector that all of a method's runs with detectors have."""
    dataset = compared.dataset
    by_seed = {seed: values for seed, values in compared.shown[method].items() if values["detectors"]}
    names = [{name for name, row in v["detectors"].items() if row.get("ood")} for v in by_seed.values()]
    places = tuple(RunDir(results.folders[dataset, method, seed]).detectors for seed in by_seed)
    found = []
    for name in sorted(set.intersection(*names)) if names else ():
        # Where the runs came from is the results' to say.
        runs = tuple(
            {**v, "ood": v["detectors"][name]["ood"], "in_domain": None, "command": _with_detectors(v)}
            for v in by_seed.values()
        )
        found.append(Entry(detector_title(name), runs, places))
    return found


def _with_detectors(values: dict[str, Any]) -> str | None:
    """The command of a run that was given detectors."""
    names = "all" if set(values["detectors"]) == set(TABLE) else ",".join(values["detectors"])
    return values["command"] and f"{values['command']} --detectors={names}"


def board(setup: Setup, entries: Sequence[Entry], near: Sequence[str]) -> Board:
    """The table of some entries; means are over the OOD sets that all of them have."""
    every = [list(run["ood"]) for entry in entries for run in entry.runs]
    shared = [name for name in every[0] if all(name in there for there in every)]
    sets = titles.ordered(entries[0].runs[0]["dataset"], shared)
    groups = averages.groups(sets, averages.among(sets, near))
    rows: dict[str, dict[tuple[str, str], Estimate]] = {}
    for entry in entries:
        means = [averages.of({name: run["ood"][name] for name in sets}, groups.get("near", [])) for run in entry.runs]
        row = {(g, m.name): estimate([mean[g][m.key] for mean in means]) for g in groups for m in _OF_GROUP}
        if all(run["in_domain"] for run in entry.runs):
            row |= {("", m.name): estimate([run["in_domain"][m.key] for run in entry.runs]) for m in _IN_DOMAIN}
        rows[entry.title] = row
    left_out = dict.fromkeys(name for there in every for name in there if name not in sets)
    if groups:
        rows = dict(sorted(rows.items(), key=lambda row: -row[1][next(iter(groups)), "auroc"].mean))
    return Board(setup, tuple(entries), groups, tuple(left_out), rows)


def markdown(found: Board) -> str:
    """The table, and which sets are in which group."""
    columns = list(next(iter(found.rows.values())))
    heads = [f"{_GROUPS[group]} {_short(name)}" if group else _short(name) for group, name in columns]
    lines = [f"| | {' | '.join(heads)} | seeds |", "|---" + "|--:" * (len(columns) + 1) + "|"]
    bold = {column: _best(found, column) for column in columns}
    by_title = {entry.title: entry for entry in found.entries}
    own = comparable.is_own(found.entries[0].runs[0]["dataset"])
    for title, row in found.rows.items():
        entry, cells = by_title[title], []
        for column, value in row.items():
            text = number(value, MEASURES[column[1]])
            text = f"**{text}**" if title in bold[column] else text
            cells.append(text + NOT_AS_RECIPE * entry.other + SEEN * _seen(found, entry, column))
        lines.append(f"| {title} | {' | '.join(cells)} | {len(entry.runs)} |")
    parts = [f"{_GROUPS[group]}: {', '.join(map(titles.ood, names))}" for group, names in found.groups.items()]
    note = f"{'. '.join(part[0].upper() + part[1:] for part in parts)}."
    if found.left_out:
        note += f" Not in the means, because some row lacks them: {', '.join(map(titles.ood, found.left_out))}."
    if any(SEEN in line for line in lines):
        note += f" {SEEN}: training saw images of one of these sets{NOT_COMPARED * own}."
    if any(entry.other for entry in found.entries):
        note += f" {OTHER_SETTINGS if own else NOT_RECIPES}"
    return "\n".join([*lines, "", note]) + "\n"


def _short(name: str) -> str:
    measure = MEASURES[name]
    return {"fpr95": "FPR-95", "auroc": "AUROC", "ece": "ECE"}.get(name, measure.name) + _arrow(measure)


def _arrow(measure: Measure) -> str:
    return " ↓" if measure.lower_is_better else " ↑"


def _seen(found: Board, entry: Entry, column: tuple[str, str]) -> bool:
    """Whether training saw images of a set that a number is about."""
    return comparable.saw(entry.runs, found.groups.get(column[0], ()))


def _best(found: Board, column: tuple[str, str]) -> set[str]:
    values = {
        entry.title: found.rows[entry.title][column]
        for entry in found.entries
        if comparable.counts(entry.runs[0]["dataset"], other=entry.other, seen=_seen(found, entry, column))
    }
    lower = bool(MEASURES[column[1]].lower_is_better)
    return best(values, lower_is_better=lower, rounding=ROUNDING) if len(values) > 1 else set()


def origins(setup: Setup, entries: Sequence[Entry]) -> list[str]:
    """Lines of a Markdown table: where the files of some entries come from; entries of the same files share a line."""
    lines: dict[tuple[str, ...], tuple[list[str], list[str]]] = {}
    for entry in entries:
        for run, place in zip(entry.runs, entry.places, strict=True):
            command = setup.fact("command", run).replace(f" --seed={run['seed']}", "")
            facts = (entry.title, command, *(setup.fact(name, run) for name in ("commit", "machine")))
            seeds, digests = lines.setdefault(facts, ([], []))
            seeds.append("–" if "ensemble" in run else str(run["seed"]))
            digests.append(f"`{hashlib.sha256(place.read_bytes()).hexdigest()[:_DIGEST_DIGITS]}`")
    return [
        f"| {title} | {', '.join(seeds)} | {_code(command)} | {_commit(commit)} | {machine} | {' '.join(digests)} |"
        for (title, command, commit, machine), (seeds, digests) in lines.items()
    ]


def _commit(commit: str) -> str:
    """A commit by its first digits, and whether the code was modified; a version as it is."""
    name, *others = commit.split(" ")
    return commit if name == "version" else _code(" ".join([name[:_DIGEST_DIGITS], *others]))


def _code(text: str) -> str:
    return text if text == setups.UNKNOWN else f"`{text}`"


def _require_tested(near: Sequence[str], there: Sequence[Setup]) -> None:
    """Raises a UserError for a set that no result has."""
    results = [run for setup in there for run in (*setup.results.results.values(), *setup.results.ensembles.values())]
    averages.groups(sorted({name for run in results for name in run["ood"]}), near)


def page(root: Path, *, near: Sequence[str] | None = None, level: int = 2) -> str:
    """The leaderboard of a folder of results, in Markdown.

    Args:
        root: with set-ups in it, or runs.
        near: the near-OOD sets of every data set; None for `averages.NEAR`.
        level: of its headings.

    Raises:
        UserError: when there is no result, or a file is damaged.
    """
    there = setups.read(root)
    _require_tested(near or (), there)
    datasets = [name for setup in there for name in setup.results.datasets()]
    known = list(DATASETS)
    lines, sources = [_ABOUT, ""], []
    for dataset in sorted(dict.fromkeys(datasets), key=lambda name: known.index(name) if name in known else len(known)):
        close = averages.NEAR.get(dataset, ()) if near is None else near
        for setup in there:
            if not (entries := methods(setup.results, dataset)):
                continue
            about = f"{titles.dataset(dataset)}: {setup.title or root}"
            lines += [f"{'#' * level} {about}", ""]
            lines += [setup.note, ""] * bool(setup.note) + [markdown(board(setup, entries, close))]
            compared = comparable.of_all_methods(setup.results, dataset)
            lines += [line for note in (*compared.notes, *setup.results.notes) for line in (note, "")]
            sources += [f"{'#' * (level + 1)} Files of {about}", "", *_HEAD]
            sources += origins(setup, entries)
            for method, title in titles.METHOD_TITLES.items():
                if rows := detectors(setup.results, compared, method):
                    lines += [f"Detectors on the networks of {title}:", "", markdown(board(setup, rows, close))]
                    shared = Entry(f"Detectors on {title}", rows[0].runs, rows[0].places)
                    sources += origins(setup, [shared])
            sources.append("")
    what = (
        "A digest is the beginning of the file's SHA-256, `results.json` of a method and `detectors.json` of detectors."
    )
    return "\n".join([*lines, f"{'#' * level} Where the numbers come from", "", what, "", *sources]).rstrip() + "\n"
