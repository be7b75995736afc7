"""Finished runs under a folder: finds and checks their results.json files, and selects among them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.runs import documents
from preload_jax.errors import UserError

RESULTS_FORMAT = 1


@dataclass(frozen=True)
class Collection:
    """The results of a folder.

    Attributes:
        root: the folder.
        results: by (data set, method, seed); with "shifts", the reports of evaluations under shift by name.
        unfinished: runs that have a config.json and no results.
        seeds: the seeds that were asked for, or None.
    """

    root: Path
    results: dict[tuple[str, str, int], dict[str, Any]]
    unfinished: set[tuple[str, str, int]]
    seeds: tuple[int, ...] | None = None

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

    Raises:
        UserError: when there is none, one cannot be read or is of another version, or two are of the same run.
    """
    if not root.is_dir():
        raise UserError(f"no folder {root}; give --root the folder of finished runs")
    found: dict[tuple[str, str, int], Path] = {}
    results = {}
    for path in sorted(root.glob("**/results.json")):
        values = read(path)
        key = (values["dataset"], values["method"], values["seed"])
        if key in found:
            raise UserError(
                f"{found[key]} and {path} are both of {key[0]}, {key[1]}, seed {key[2]}; remove one or narrow --root"
            )
        found[key], results[key] = path, {**values, "shifts": _shifts(path.parent)}
    if not results:
        raise UserError(f"no results.json under {root}; run `python -m experiments.paper --root={root}` first")
    return Collection(root, dict(sorted(results.items(), key=_order)), set(_begun(root)) - set(results))


def read(path: Path) -> dict[str, Any]:
    """One results.json, checked.

    Raises:
        UserError: when it cannot be read, or is of another version.
    """
    damaged = "delete it and run again"
    values = documents.read(path, {"format?": object}, missing="it is gone", damaged=damaged)
    there = values.get("format")
    if there != RESULTS_FORMAT:
        raise UserError(
            f"{path} is of format {there}, this version reads format {RESULTS_FORMAT}; evaluate the run again"
        )
    return documents.read(path, documents.RESULTS, missing="it is gone", damaged=damaged)


def read_shift(path: Path) -> dict[str, Any]:
    """One shift_NAME.json, checked.

    Raises:
        UserError: when it is damaged.
    """
    damaged = "delete it and evaluate again"
    return {"num_images": None, **documents.read(path, documents.SHIFT, missing="it is gone", damaged=damaged)}


def _shifts(folder: Path) -> dict[str, dict[str, Any]]:
    reports = [read_shift(path) for path in sorted(folder.glob("shift_*.json"))]
    return {report["shift"]: report for report in reports}


def _begun(root: Path) -> Iterable[tuple[str, str, int]]:
    for path in root.glob("**/config.json"):
        try:
            config = documents.read(path, documents.CONFIG, missing="", damaged="")
        except UserError:
            continue  # not a run's
        yield config["dataset"], config["method"], config["seed"]


def _order(item: tuple[tuple[str, str, int], Any]) -> tuple[int, str, int, str, int]:
    from preload_jax.data.specs import DATASETS

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
        there = [sorted({key[i] for key in collection.results}, key=str) for i in range(3)]
        raise UserError(
            f"no results under {collection.root} match the filters; there are data sets {there[0]}, methods {there[1]},"
            f" seeds {there[2]}"
        )
    return Collection(collection.root, kept, collection.unfinished, None if seeds is None else tuple(seeds))
