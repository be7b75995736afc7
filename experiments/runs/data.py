"""A run's data set, loaded anew after training: the classes must still be those that the network knows."""

import os
from collections.abc import Callable
from pathlib import Path

from experiments.runs.configuration import Config
from preload_jax.data import datasets, names
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

    A folder whose class folders were renamed, added or removed since has other labels and another split: refused.

    Raises:
        DataError: when the data are not there, or have other classes than the network was trained on.
    """
    if names.is_own(config.dataset) and not os.path.exists(path := names.path_of(config.dataset)):
        started = "" if path.is_absolute() else ", or start in the folder from which the run was started"
        raise DataError(
            f"{path}: the images of the run are not there any more; put them back, or a link to them{started}"
        )
    splits = datasets.load(
        config.data,
        data_dir=data_dir,
        validation=config.validation,  # type: ignore[arg-type]
        rows=config.validation_rows,  # type: ignore[arg-type]
        strict=strict,
        report=report,
    )
    known, now = config.data.class_names, datasets.get(config.dataset).class_names
    if known == now:
        return splits
    raise DataError(
        f"{config.dataset} has the classes {_list(now)}; the network was trained on {_list(known)}:"
        " give the data that it was trained on"
    )


def _list(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:10])
    return shown if len(names) <= 10 else f"{shown}, … ({len(names)})"
