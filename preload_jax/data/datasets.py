"""The door to the data: `get` describes a data set, `load` reads it, `load_ood` and `load_outliers` what goes with it.

Source of the protocol: the paper's section 5 and its supplement on OOD test sets.
"""

from pathlib import Path

from preload_jax.data import builtin, own_data
from preload_jax.data.ood import available_ood, check_ood, load_ood
from preload_jax.data.outliers import load_outliers
from preload_jax.data.paths import data_root, default_data_dir
from preload_jax.data.preparing import tfds_source
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.specs import DATASETS, Augmentation, DatasetSpec, unknown
from preload_jax.data.splits import Arrays, Splits, Validation, hold_out

__all__ = [
    "DATASETS",
    "Arrays",
    "Augmentation",
    "DatasetSpec",
    "Splits",
    "available_ood",
    "check_ood",
    "default_data_dir",
    "get",
    "load",
    "load_ood",
    "load_outliers",
]


def get(name: str) -> DatasetSpec:
    """The description of the data set `name`: a key of `DATASETS`, "folder:PATH" or a path that ends in ".npz".

    Raises:
      DataError: for another name, or a folder or file that cannot be read.
    """
    if name in DATASETS:
        return DATASETS[name]
    if own_data.is_own(name):
        return own_data.spec(name)
    raise unknown("dataset", name, [*DATASETS, "folder:PATH", "FILE.npz"])


def load(
    dataset: DatasetSpec | str,
    *,
    data_dir: str | Path | None = None,
    validation: Validation = "test",
    strict: bool = False,
    report: Report | None = None,
) -> Splits:
    """Reads a data set into memory and holds its validation images out, always the same ones.

    Args:
      dataset: a spec, or the name of one.
      data_dir: where the prepared data sets are; None for TFDS's own default.
      validation: the split that validation images are taken from. "test" is the paper's protocol (1,000 of the test
        images); "train" keeps the test images whole.
      strict: an unreadable image in the user's own folder is an error; else it is skipped.
      report: is told, in one line, how many were skipped.

    Raises:
      DataError: NotPreparedError when it has to be prepared first.
    """
    spec = get(dataset) if isinstance(dataset, str) else dataset
    root = data_root(data_dir)
    if spec.name == "digits":
        train, test = builtin.digits()
    elif spec.name in DATASETS:
        train, test = (tfds_source.read(spec.name, split, data_dir=root) for split in ("train", "test"))
    else:
        train, test = own_data.read(spec, data_dir=root, strict=strict, report=report)
    return hold_out(train, test, size=spec.validation_size, validation=validation)
