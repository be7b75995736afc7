"""Means over OOD sets in OpenOOD's groups: near-OOD and far-OOD, and far away, which OpenOOD has not."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from experiments.runs import titles
from preload_jax.data.names import canonical
from preload_jax.errors import UserError

TITLES = {"near": "near-OOD, mean", "far": "far-OOD, mean", "far_away": "far away, mean"}
# The near-OOD sets of a data set: other images of its kind.  OpenOOD has CIFAR-100 for CIFAR-10, CIFAR-10 for
# CIFAR-100, and Fashion-MNIST and notMNIST for MNIST; the others are ours.
NEAR: dict[str, tuple[str, ...]] = {
    "mnist": ("fashion_mnist", "emnist", "kmnist"),
    "fashion_mnist": ("mnist", "emnist", "kmnist"),
    "cifar10": ("cifar100",),
    "cifar100": ("cifar10",),
}


def among(sets: Collection[str], near: Sequence[str]) -> list[str]:
    """Those near-OOD sets that are tested."""
    tested = {canonical(name) for name in sets}
    return [name for name in near if canonical(name) in tested]


def groups(sets: Collection[str], near: Sequence[str]) -> dict[str, list[str]]:
    """The sets of each group that has any: "near" those that are named, "far_away" FarAway and FarAway-RD, else "far".

    Raises:
        UserError: when a set is called near that is not tested.
    """
    by_name = {canonical(name): name for name in sets}
    for name in near:
        if canonical(name) not in by_name:
            raise UserError(f"--near names {name}, which is not among the OOD test sets: {', '.join(sets) or 'none'}")
    found: dict[str, list[str]] = {group: [] for group in TITLES}
    chosen = {canonical(name) for name in near}
    for key, name in by_name.items():
        found["near" if key in chosen else "far_away" if name in titles.FAR_SETS else "far"].append(name)
    return {group: names for group, names in found.items() if names}


def of(rows: Mapping[str, Mapping[str, float]], near: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By group each metric's mean over its sets, every set counting alike, and the sets' names."""
    found: dict[str, dict[str, Any]] = {}
    for group, names in groups(rows, near).items():
        metrics = [metric for metric in rows[names[0]] if metric != "size"]
        means = {metric: sum(rows[name][metric] for name in names) / len(names) for metric in metrics}
        found[group] = {**means, "sets": names}
    return found
