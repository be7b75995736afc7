"""How the paper's tables call methods, data sets and OOD sets; and which methods belong together in a table."""

from collections.abc import Iterable

from experiments.cli.visible import visible
from preload_jax.data.specs import DATASETS
from preload_jax.methods import METHODS

SCRATCH = tuple(name for name, row in METHODS.items() if not row.fine_tunes)
FINE_TUNED = tuple(name for name, row in METHODS.items() if row.fine_tunes)
GROUPS = {"Trained from scratch": SCRATCH, "Fine-tuned": FINE_TUNED}
METHOD_TITLES = {name: row.title for name, row in METHODS.items()}
FAR_SETS = ("faraway", "faraway_rd")

OOD_TITLES = {
    **{spec.name: spec.title for spec in DATASETS.values()},
    "emnist": "E-MNIST",
    "kmnist": "K-MNIST",
    "cifar_gr": "CIFAR-Gr",
    "lsun_classroom": "LSUN-CR",
    "fmnist_3d": "FMNIST-3D",
    "photo": "Photo",
    "uniform": "Uniform",
    "smooth": "Smooth",
    "faraway": "FarAway",
    "faraway_rd": "FarAway-RD",
}

SHIFTS = {
    "rotation": "rotated by {}°",
    "cifar10_c": "CIFAR-10-C, severity {}",
    "corruptions": "corruptions made here, severity {}",
}


def dataset(name: str) -> str:
    """The title of an in-domain set; a user's own is called by its name, on one line."""
    return DATASETS[name].title if name in DATASETS else visible(name)


def ood(name: str) -> str:
    """The title of an OOD set; a user's own is called by its name, on one line."""
    return OOD_TITLES.get(name) or visible(name)


def ood_sets(dataset: str, found: list[str]) -> list[str]:
    """The OOD sets of a data set in the order of the paper's tables; of a user's own set those `found`."""
    known = DATASETS[dataset].ood_sets if dataset in DATASETS else ()
    return [*known, *(name for name in ordered(dataset, found) if name not in known)]


def ordered(dataset: str, found: Iterable[str]) -> list[str]:
    """Those of `found` that are in the paper's tables, in their order, then the others as they come."""
    known = [*(DATASETS[dataset].ood_sets if dataset in DATASETS else ()), *OOD_TITLES]
    return sorted(found, key=lambda name: known.index(name) if name in known else len(known))
