"""Finished runs under a folder: finds and checks their results.json files, and selects among them."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.runs import derived, folder, provenance, recipes, records, results
from preload_jax.data import shift
from preload_jax.data.specs import DATASETS
from preload_jax.errors import UserError

RESULTS_FORMAT = records.FORMAT

# Data set, method, seed.
Key = tuple[str, str, int]


@dataclass(frozen=True)
class Collection:
    """The results of a folder.

    Attributes:
        root: the folder.
        results: by (data set, method, seed); with "shifts", the reports of evaluations under shift by name,
            "detectors", what each detector made of the network's outputs, and "command", where it is known.
        unfinished: runs that have a config.json and no results.
        seeds: the seeds that were asked for, or None.
        folders: where each result is.
        ensembles: the results of ensembles, by the folder where each is.
        notes: what was left out.
    """

    root: Path
    results: dict[Key, dict[str, Any]]
    unfinished: set[Key]
    seeds: tuple[int, ...] | None = None
    folders: dict[Key, Path] = field(default_factory=dict)
    ensembles: dict[Path, dict[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def datasets(self) -> list[str]:
        return list(dict.fromkeys(dataset for dataset, _, _ in self.results))

    def of(self, dataset: str, method: str) -> dict[int, dict[str, Any]]:
        """Results by seed."""
        return {s: values for (d, m, s), values in self.results.items() if (d, m) == (dataset, method)}

    def why_none(self, dataset: str, method: str) -> str:
        """Why there are no results of a method on a data set."""
        return "unfinished" if any(key[:2] == (dataset, method) for key in self.unfinished) else "not run"


def collect(root: Path) -> Collection:
    """Reads every results.json under a folder, data sets in the paper's order and seeds ascending.

    Of several with the same data set, method and seed the recipe's is taken, then the one at its usual place.  There is
    no recipe for one's own data.

    Raises:
        UserError: when there is none, or one cannot be read or is of another version.
    """
    return _of(root, _read(root))


def setups(root: Path) -> dict[str, Collection]:
    """The results under a folder, those of each set-up by themselves, by its name: those of SETUP/DATASET/METHOD/seedN.

    Those of DATASET/METHOD/seedN, and of folders with other names, are of the set-up "".

    Raises:
        UserError: as `collect`.
    """
    found: dict[str, dict[Path, dict[str, Any]]] = {}
    for place, values in _read(root).items():
        found.setdefault("/".join(place.relative_to(root).parts[:-3]), {})[place] = values
    return {name: _of(root / name, found[name]) for name in sorted(found)}


def _read(root: Path) -> dict[Path, dict[str, Any]]:
    """Every results.json under a folder, by the folder where it is."""
    if not root.is_dir():
        raise UserError(f"no folder {root}; give --root the folder of finished runs")
    paths = sorted(root.glob("**/results.json"))
    if not paths:
        raise UserError(f"no results.json under {root}; run `python -m experiments.paper --root={root}` first")
    return {path.parent: _with_origin(path.parent, folder.RunDir(path.parent).read_results()) for path in paths}


def _of(root: Path, there: dict[Path, dict[str, Any]]) -> Collection:
    """The collection of some of a folder's results."""
    found: dict[Key, list[tuple[Path, dict[str, Any]]]] = {}
    ensembles = {place: values for place, values in there.items() if "ensemble" in values}
    for place, values in there.items():
        if place not in ensembles:
            found.setdefault((values["dataset"], values["method"], values["seed"]), []).append((place, values))
    folders, read, notes = {}, {}, []
    for key, candidates in sorted(found.items(), key=_order):
        usual = folder.place(*key, root=root)
        has_recipe = key[0] in DATASETS
        candidates.sort(key=lambda each: (has_recipe and bool(each[1]["not_as_recipe"]), each[0] != usual))
        (folders[key], read[key]), *others = candidates
        read[key]["shifts"] = _shifts(folders[key])
        by_detector = folder.RunDir(folders[key]).detectors
        read[key]["detectors"] = read_detectors(by_detector) if by_detector.is_file() else {}
        for other, _ in others:
            notes.append(
                f"{other} is left out: {folders[key]} is of {key[0]}, {key[1]}, seed {key[2]}, too;"
                " narrow --root to choose it"
            )
    unfinished = set(_begun(root)) - set(read)
    return Collection(root, read, unfinished, folders=folders, ensembles=ensembles, notes=tuple(notes))


def _with_origin(place: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Results with what tells how they came about, which those of earlier versions leave to config.json."""
    known: dict[str, Any] = {"not_as_recipe": [], "outliers": None}
    told = values.keys() >= known.keys()
    if not told and (run_dir := folder.RunDir(place)).config.is_file():
        # A damaged one tells nothing; the results are whole.
        with contextlib.suppress(UserError):
            known, told = recipes.origin(run_dir.read_config()), True
    # Without what is not the recipe's, results do not tell how they came about.
    command = provenance.command({**known, **values}) if told else None
    return {**known, **values, "command": command}


def read_detectors(path: Path) -> dict[str, dict[str, Any]]:
    """What a detectors.json says of each detector.

    Raises:
        UserError: when it is damaged, or of another run.
    """
    advice = "delete it and evaluate again"
    found = derived.read(path, advice=advice).get("detectors")
    if not isinstance(found, dict) or not all(_is_detector(row) for row in found.values()):
        raise UserError(f"{path} is damaged: it has no detectors with their metrics by OOD set; {advice}")
    return found


def _is_detector(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    sets = row.get("ood", {})
    if not isinstance(sets, dict) or not all(isinstance(values, dict) for values in sets.values()):
        return False
    return (
        isinstance(row.get("left_out", ""), str)
        and ("left_out" in row or bool(sets))
        and not any(results.number_problem(*number) for values in sets.values() for number in values.items())
    )


def read_shift(path: Path) -> dict[str, Any]:
    """One shift_NAME.json, checked.

    Raises:
        UserError: when it is damaged, or of another run.
    """
    advice = "delete it and evaluate again"
    report = derived.read(path, advice=advice)
    report.pop("format", None)
    if not _is_shift(report):
        raise UserError(f"{path} is damaged: it has no shift with levels and their metrics; {advice}")
    return {"num_images": None, "label": shift.SHIFTS[report["shift"]], **report}


def _is_shift(report: dict[str, Any]) -> bool:
    levels = report.get("levels")
    return (
        report.get("shift") in shift.SHIFTS
        and isinstance(levels, list)
        and bool(levels)
        and all(is_level(row) for row in levels)
        and isinstance(report.get("num_images"), int | None)
    )


def is_level(row: Any) -> bool:
    """Whether it is a level of a shift with its metrics."""
    return (
        isinstance(row, dict)
        and isinstance(row.get("kind"), str)
        and isinstance(row.get("level"), int)
        and not any(results.number_problem(name, row.get(name)) for name in results.IN_DOMAIN)
    )


def _shifts(place: Path) -> dict[str, dict[str, Any]]:
    reports = [read_shift(path) for path in sorted(place.glob("shift_*.json"))]
    return {report["shift"]: report for report in reports}


def _begun(root: Path) -> Iterable[Key]:
    for path in root.glob("**/config.json"):
        try:
            config = records.read(path, advice="")
        except UserError:
            continue  # not a run's
        key = tuple(config.get(name) for name in ("dataset", "method", "seed"))
        if all(isinstance(part, str | int) for part in key):
            yield key  # type: ignore[misc]


def _order(item: tuple[Key, Any]) -> tuple[int, str, int, str, int]:
    (dataset, method, seed), _ = item
    known = list(DATASETS)
    return (known.index(dataset) if dataset in known else len(known), dataset, 0, method, seed)


def select(
    collection: Collection, *, datasets: Sequence[str], methods: Sequence[str], seeds: Sequence[int] | None
) -> Collection:
    """The results that filters let through; an empty filter lets everything through.

    Raises:
        UserError: when they let nothing through, with what there is.
    """
    kept = {
        (dataset, method, seed): values
        for (dataset, method, seed), values in collection.results.items()
        if (not datasets or dataset in datasets)
        and (not methods or method in methods)
        and (seeds is None or seed in seeds)
    }
    if not kept:
        there = [", ".join(map(str, sorted({key[i] for key in collection.results}, key=str))) for i in range(3)]
        raise UserError(
            f"no results under {collection.root} match the filters; there are data sets {there[0]}, methods {there[1]},"
            f" seeds {there[2]}"
        )
    return replace(collection, results=kept, seeds=None if seeds is None else tuple(seeds))
