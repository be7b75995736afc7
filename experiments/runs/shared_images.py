"""Says which test images a run was, or will be, trained on as outliers, and which OOD images are in-domain ones."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from experiments.runs.configuration import Config
from preload_jax import methods
from preload_jax.data import datasets, names, overlap
from preload_jax.data.outliers import stored_shape
from preload_jax.data.splits import Splits
from preload_jax.errors import DataError


def report(
    config: Config,
    splits: Splits,
    sets: Sequence[str],
    *,
    data_dir: Path | None,
    warn: Callable[[str], None],
    outliers: np.ndarray | None = None,
) -> None:
    """One line for the data set and for each OOD test set that shares images with the outliers.

    Two published sets are compared only where no image has to be resized: their names say what they are.

    Args:
        config: of the run; a method that sees no outliers has nothing to report.
        splits: of its data set.
        sets: names of OOD test sets.
        data_dir: where prepared data sets are.
        warn: is told.
        outliers: as training has them, where they were read.
    """
    if not methods.get(config.method).uses_outliers:
        return
    as_tested = stored_shape(config.data) == config.data.image_shape

    @functools.cache
    def digests() -> list[bytes]:
        given = outliers if as_tested and outliers is not None else _read(config, splits, data_dir)
        return list(overlap.digests(given))

    def of_set(name: str) -> np.ndarray:
        return datasets.load_ood(name, in_domain=config.data, test_images=splits.test.images, data_dir=data_dir)

    loads: dict[str, Callable[[], np.ndarray]] = {config.dataset: lambda: splits.test.images}
    loads |= {name: functools.partial(of_set, name) for name in sets}
    for name, load in loads.items():
        if not (as_tested or _is_ones_own(name) or _is_ones_own(config.outliers)):
            continue
        try:
            found = overlap.between(config.outliers, name, outlier_digests=digests, test_images=load)
        except DataError as error:
            warn(f"whether images of {name} are among the outliers {config.outliers} is not known: {error}")
            continue
        if found is not None and found.count:
            warn(found.in_words(name, config.outliers))


def report_in_domain(
    config: Config, splits: Splits, sets: Sequence[str], *, data_dir: Path | None, warn: Callable[[str], None]
) -> None:
    """One line for each OOD set of the user's own that shares images with the in-domain data.

    Args:
        config, splits, data_dir, warn: as for `report`.
        sets: names of OOD test sets; the in-domain data among them are refused when they are loaded.
    """

    def digests() -> list[bytes]:
        parts = (splits.train, splits.validation, splits.test)
        return [key for part in parts for key in overlap.digests(part.images)]

    for name in sets:
        if not _is_ones_own(name) or names.canonical(name) == names.canonical(config.dataset):
            continue
        load = functools.partial(
            datasets.load_ood, name, in_domain=config.data, test_images=splits.test.images, data_dir=data_dir
        )
        found = overlap.between(config.dataset, name, outlier_digests=digests, test_images=load)
        if found is not None and found.count:
            warn(found.of_in_domain(name, config.dataset))


def _read(config: Config, splits: Splits, data_dir: Path | None) -> np.ndarray:
    return datasets.load_outliers(
        config.outliers,
        in_domain=config.data,
        train_images=splits.train.images,
        data_dir=data_dir,
        seed=config.seed,
    )


def _is_ones_own(name: str) -> bool:
    return names.is_own(name) or names.is_list(name) or name.endswith(".npy")
