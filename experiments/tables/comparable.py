"""Which runs of a data set are compared with each other, and what is said of those that are not.

A data set that the project knows has a recipe: runs with other settings are not compared.  One's own data have none.
There runs are compared that share their settings, whatever those are: epochs, batch size, network, validation and so
on.  What each method may choose for itself (its outliers, its learning rate, its λ) may differ.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.runs import titles
from experiments.runs.collected import Collection
from preload_jax import methods as rows
from preload_jax.data.names import canonical
from preload_jax.data.specs import DATASETS

# Of one's own data, what each method may choose for itself.
_OF_THE_METHOD = ("outliers", "ood_weight", "optimizer", "init")
# What is without effect where nothing is trained.
_OF_TRAINING = ("epochs", "batch_size", "max_steps", "class_weights")

Results = Mapping[int, dict[str, Any]]
# A setting's value, and the usual one, by its name; those that are as usual are not in it.
Settings = dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Comparison:
    """The runs of a data set that a table shows.

    Attributes:
        dataset: the data set.
        shown: by method the results of its seeds.
        others: the methods whose results are shown and not compared.
        by_recipe: whether those that are compared have their recipe's settings.
        reference: of one's own data, the settings of those that are compared, by group of methods.
        notes: what the reader must know of it.
    """

    dataset: str
    shown: dict[str, dict[int, dict[str, Any]]]
    others: frozenset[str]
    by_recipe: bool
    reference: dict[str, Settings] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def is_other(self, result: Mapping[str, Any]) -> bool:
        """Whether another result, as of an ensemble, is not to be compared with those shown."""
        if self.by_recipe:
            return bool(result["not_as_recipe"])
        reference = self.reference.get(_group(result["method"]), {})
        return bool(_differences(result["method"], settings(result), reference))


def is_own(dataset: str) -> bool:
    """Whether it is the user's own data set, which has no recipe."""
    return dataset not in DATASETS


def counts(dataset: str, *, other: bool, seen: bool) -> bool:
    """Whether a number may be called the best.

    A method that trained on images of an OOD set is not better at it.  The built-in sets have one kind of outliers for
    all methods, and there a mark is enough.
    """
    return not other and not (seen and is_own(dataset))


def saw(results: Sequence[Mapping[str, Any]], sets: Iterable[str]) -> bool:
    """Whether the training of some of these runs saw images of some of these OOD sets."""
    names = {canonical(name) for name in sets}
    return any(canonical(result["outliers"] or "") in names for result in results)


def of(collection: Collection, dataset: str, methods: Sequence[str]) -> Comparison:
    """The runs of a data set that are shown, and which of them are compared."""
    by_method = {method: collection.of(dataset, method) for method in methods}
    return _by_settings(dataset, by_method) if is_own(dataset) else _of_recipe(dataset, by_method)


def of_all_methods(collection: Collection, dataset: str) -> Comparison:
    """`of` all methods; where no run has its recipe's settings, as in a set-up of its own, by their settings."""
    found = of(collection, dataset, list(titles.METHOD_TITLES))
    there = {method for method, results in found.shown.items() if results}
    return _by_settings(dataset, found.shown) if found.by_recipe and there <= found.others else found


def _of_recipe(dataset: str, by_method: Mapping[str, dict[int, dict[str, Any]]]) -> Comparison:
    """The runs that have their recipe's settings; of a method all where none has."""
    shown, notes = {}, []
    for method, results in by_method.items():
        usual = {seed: result for seed, result in results.items() if not result["not_as_recipe"]}
        shown[method] = usual or dict(results)
        for seed, result in results.items():
            if changed := result["not_as_recipe"]:
                left_out = "" if seed in shown[method] else "; left out, since others have them"
                run = _named(dataset, method, seed)
                notes.append(f"{run} has not its recipe's settings: {', '.join(changed)}{left_out}.")
    others = frozenset(m for m, results in shown.items() if any(r["not_as_recipe"] for r in results.values()))
    return Comparison(dataset, shown, others, by_recipe=True, notes=tuple(notes))


def _by_settings(dataset: str, by_method: Mapping[str, dict[int, dict[str, Any]]]) -> Comparison:
    """Of each method the seeds that are alike in everything; most methods' settings are those that are compared."""
    shown: dict[str, dict[int, dict[str, Any]]] = {method: {} for method in by_method}
    others, reference, notes = set(), {}, []
    for group, members in titles.GROUPS.items():
        there = {method: by_method[method] for method in members if by_method.get(method)}
        if not there:
            continue
        reference[group] = _most_frequent(there)
        for method, results in there.items():
            shown[method] = _alike(method, results, reference[group])
            changed = _differences(method, settings(next(iter(shown[method].values()))), reference[group])
            if changed:
                others.add(method)
            for seed in results:
                run = _named(dataset, method, seed)
                if seed not in shown[method]:
                    notes.append(f"{run} is left out: it has other settings than the other seeds.")
                elif changed:
                    notes.append(f"{run} is not compared: it has {', '.join(changed)} as most runs have.")
    notes += _outliers_note(dataset, {m: results for m, results in shown.items() if m not in others})
    return Comparison(dataset, shown, frozenset(others), False, reference, tuple(notes))


def settings(result: Mapping[str, Any]) -> Settings:
    """What a result has other than usual: its "name value (usual value)" taken apart."""
    found = {}
    for text in result["not_as_recipe"]:
        name, _, rest = text.partition(" ")
        value, _, usual = rest.rpartition(" (")
        found[name] = (value, usual.removesuffix(")"))
    return found


def _differences(method: str, one: Settings, other: Settings) -> list[str]:
    """How settings that all methods share differ, "epochs 2, not 60"."""
    found = []
    for name in {**one, **other}:
        first = name.partition(".")[0]
        # A setting that only some methods have is theirs to choose.
        own = first in _OF_THE_METHOD or len(rows.with_option(first)) < len(rows.METHODS)
        if own or (first in _OF_TRAINING and not rows.get(method).stages):
            continue
        here, there = (a[name][0] if name in a else b[name][1] for a, b in ((one, other), (other, one)))
        if here != there:
            found.append(f"{name} {here}, not {there}")
    return found


def _most_frequent(by_method: Mapping[str, Results]) -> Settings:
    """The settings that runs of the most methods share; of equally frequent ones those with the fewest changes."""
    candidates = [settings(result) for results in by_method.values() for result in results.values()]

    def rank(candidate: Settings) -> tuple[int, int]:
        sharing = [
            method
            for method, results in by_method.items()
            if any(not _differences(method, settings(result), candidate) for result in results.values())
        ]
        return -len(sharing), len(candidate)

    return min(candidates, key=rank)


def _alike(method: str, results: Results, reference: Settings) -> dict[int, dict[str, Any]]:
    """The seeds of a method with one kind of settings: one that is compared, then that of the most seeds."""
    kinds: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for seed, result in results.items():
        kind = (*sorted(result["not_as_recipe"]), canonical(result["outliers"] or ""))
        kinds.setdefault(kind, {})[seed] = result

    def rank(kind: Results) -> tuple[bool, int]:
        return bool(_differences(method, settings(next(iter(kind.values()))), reference)), -len(kind)

    return min(kinds.values(), key=rank)


def _outliers_note(dataset: str, compared: Mapping[str, Results]) -> list[str]:
    """Which outliers the methods that are compared saw, where they are not the same."""
    users: dict[str, list[str]] = {}
    for method, results in compared.items():
        for outliers in dict.fromkeys(r["outliers"] for r in results.values() if r["outliers"]):
            users.setdefault(outliers, []).append(titles.METHOD_TITLES[method])
    if len(users) < 2:
        return []
    parts = (f"{titles.ood(name)} ({', '.join(names)})" for name, names in users.items())
    return [f"{titles.dataset(dataset)}: the methods were not trained on the same outliers: {'; '.join(parts)}."]


def _named(dataset: str, method: str, seed: int) -> str:
    return f"{titles.dataset(dataset)}, {titles.METHOD_TITLES[method]}, seed {seed}"


def _group(method: str) -> str:
    return next(name for name, members in titles.GROUPS.items() if method in members)
