"""A run's data set, loaded anew after training: the classes must still be those that the network knows."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from experiments.runs.configuration import Config
from preload_jax.data import datasets, names, own_data, own_digest
from preload_jax.data.splits import Splits
from preload_jax.errors import DataError

# OOD test sets are the same for every method and training seed, so that rows of a table can be compared.
OOD_SEED = 0


def load_splits(
    config: Config,
    *,
    data_dir: Path | None,
    strict: bool = False,
    report: Callable[[str], None] | None = None,
) -> Splits:
    """Training, validation and test images of a configuration.

    A folder whose class folders or images were renamed, added or removed since has other labels or another split, so
    that its test images would be training images: refused.

    Raises:
        DataError: when the data are not there, or have other classes or images than the network was trained on.
    """
    if names.is_own(config.dataset) and not os.path.exists(path := names.path_of(config.dataset)):
        started = "" if path.is_absolute() else ", or start in the folder from which the run was started"
        raise DataError(
            f"{path}: the images of the run are not there any more; put them back, or a link to them{started}"
        )
    known, now = config.data.class_names, datasets.get(config.dataset).class_names
    if known != now:
        raise DataError(
            f"{config.dataset} has the classes {_list(now)}; the network was trained on {_list(known)}:"
            " give the data that it was trained on"
        )
    if config.data_digest is not None and not own_digest.may_be_one(config.data_digest, digest(config.dataset)):
        raise DataError(
            f"{config.dataset} has other images than the network was trained on: some were added, removed or changed,"
            " so that training images could be tested; put them back, train again, or give other data as --dataset"
            " with --weights=FILE, which evaluate --export=FILE writes"
        )
    return datasets.load(
        config.data,
        data_dir=data_dir,
        validation=config.validation,  # type: ignore[arg-type]
        rows=config.validation_rows,  # type: ignore[arg-type]
        strict=strict,
        report=report,
    )


def digest(dataset: str) -> str | None:
    """Of the user's own data as they are now; None for published sets.

    Raises:
        DataError: when the data are not there.
    """
    return own_digest.of(own_data.describe(dataset)) if names.is_own(dataset) else None


def with_digest(config: Config) -> Config:
    """The configuration with the digest of its data; of data that are not there nothing is known."""
    try:
        return replace(config, data_digest=digest(config.dataset))
    except DataError:
        return replace(config, data_digest=None)


def _list(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:10])
    return shown if len(names) <= 10 else f"{shown}, … ({len(names)})"
