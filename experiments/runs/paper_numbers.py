"""The paper's own figures, read from `data/*.csv`, as fractions by data set, OOD set and method (our names)."""

import csv
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

from experiments.runs import titles
from experiments.runs.estimates import Estimate, pool
from preload_jax.data.specs import DATASETS

SEEDS = (0, 1, 2, 3, 4)
# Half a unit of the last printed digit, of numbers in percent with one decimal.
ROUNDING = 0.0005

_DATASETS = {spec.title: spec.name for spec in DATASETS.values()} | {"CIFAR10": "cifar10", "CIFAR100": "cifar100"}
_METHODS = {title: name for name, title in titles.METHOD_TITLES.items()}
_OOD = {title: name for name, title in titles.OOD_TITLES.items()}


def read(file: str) -> Iterator[dict[str, str]]:
    """The rows of one of the files in `data/`."""
    text = resources.files("experiments.runs").joinpath("data", file).read_text()
    yield from csv.DictReader(text.splitlines())


@cache
def _ood() -> dict[tuple[str, str, str, str], Estimate]:
    return {
        (row["metric"], _DATASETS[row["in_domain"]], _OOD[row["ood"]], _METHODS[row["method"]]): Estimate(
            float(row["mean_percent"]) / 100, float(row["standard_error"]) / 100, len(SEEDS)
        )
        for row in read("ood_detection.csv")
    }


@cache
def _in_domain(metric: str) -> dict[tuple[str, str], Estimate]:
    return {
        (_DATASETS[row["in_domain"]], _METHODS[row["method"]]): Estimate(float(row["percent"]) / 100, None, len(SEEDS))
        for row in read(f"{metric}.csv")
    }


@cache
def _averages() -> dict[tuple[str, str], Estimate]:
    return {
        (_DATASETS[row["in_domain"]], _METHODS[row["method"]]): Estimate(
            float(row["mean_percent"]) / 100, float(row["standard_error"]) / 100, 6 * len(SEEDS)
        )
        for row in read("fpr95_average.csv")
    }


def knows(dataset: str) -> bool:
    """Whether the paper has numbers of an in-domain set."""
    return any(dataset == known for known, _ in _averages())


def ood(metric: str, dataset: str, ood_set: str, method: str) -> Estimate | None:
    """The supplement's "fpr95" or "auroc" of an OOD set; None where the paper has no such number."""
    return _ood().get((metric, dataset, ood_set, method))


def in_domain(metric: str, dataset: str, method: str) -> Estimate | None:
    """The supplement's "accuracy" or "ece"; None where the paper has no such number."""
    return _in_domain(metric).get((dataset, method)) if metric in ("accuracy", "ece") else None


def average(dataset: str, method: str, ood_sets: Sequence[str]) -> Estimate | None:
    """Table 2's mean FPR-95 and its error over set × seed values.

    Over fewer sets than the paper's six it is worked out from the supplement's numbers.
    """
    printed = _averages().get((dataset, method))
    sets = [name for name in DATASETS[dataset].ood_sets if name not in titles.FAR_SETS] if printed else []
    if printed is None or set(ood_sets) == set(sets):
        return printed
    groups = [ood("fpr95", dataset, name, method) for name in ood_sets]
    known = [group for group in groups if group is not None]
    return pool(known) if known and len(known) == len(groups) else None
