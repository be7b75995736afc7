"""Data sets by name: `get`, `resolve` and `load` a set, `load_outliers` to train with, `load_ood` to test on.

Source of the protocol: the paper's section 5 and its supplement on OOD test sets.
"""

from pathlib import Path

from preload_jax.data.listed import read_image_list
from preload_jax.data.names import canonical, split_list
from preload_jax.data.ood import available_ood, check_ood, load_ood, seen_in_training
from preload_jax.data.outliers import load_outliers
from preload_jax.data.paths import default_data_dir
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.resolved import TRAINING_RANGE, Dataset, described, resolve
from preload_jax.data.specs import DATASETS, Augmentation, DatasetSpec
from preload_jax.data.splits import Arrays, Rows, Splits, Validation

__all__ = [
    "DATASETS",
    "TRAINING_RANGE",
    "Arrays",
    "Augmentation",
    "Dataset",
    "DatasetSpec",
    "Splits",
    "available_ood",
    "canonical",
    "check_ood",
    "default_data_dir",
    "described",
    "get",
    "load",
    "load_ood",
    "load_outliers",
    "read_image_list",
    "resolve",
    "seen_in_training",
    "split_list",
]


def get(name: str | Path, *, image_size: int | tuple[int, int] | None = None) -> DatasetSpec:
    """The description of the data set `name`: a key of `DATASETS`, "folder:PATH" or a path that ends in ".npz".

    Args:
      name: of the data set.
      image_size: what the images of a folder are resized to, see `resolve`.

    Raises:
      DataError: for another name, or a folder or file that cannot be read.

    Example:
      >>> from preload_jax.data import datasets
      >>> digits = datasets.get("digits")
      >>> digits.num_classes, digits.image_shape
      (10, (8, 8, 1))
    """
    return resolve(name, image_size=image_size).spec


def load(
    dataset: Dataset | DatasetSpec | str | Path,
    *,
    data_dir: str | Path | None = None,
    validation: Validation = "test",
    rows: Rows = "ours",
    strict: bool = False,
    report: Report | None = None,
) -> Splits:
    """Reads a data set into memory and holds out its validation images, which are always the same.

    Args:
      dataset: what `resolve` returned; or a spec, or the name of one.
      data_dir: where the prepared data sets are; None for TFDS's own default. A resolved data set has its own.
      validation: the split that validation images are taken from. "test" is the paper's protocol (1,000 of the test
        images); "train" keeps the test images whole. The user's own validation split is used as it is.
      rows: which are taken: "ours", or "released_code" for the 1,000 that the authors' code takes.
      strict: an unreadable image in the user's own folder is an error; else it is skipped.
      report: is told, in one line each, what was skipped, resized or changed.

    Returns:
      `Splits`: images uint8 [n, h, w, c] in [0, 255] and labels int32 [n] to train on, validate with and test.

    Raises:
      DataError: for an unknown name, or files that cannot be read; NotPreparedError if it has to be prepared first.

    Example:
      >>> from preload_jax.data import datasets
      >>> splits = datasets.load("digits")
      >>> len(splits.train), len(splits.validation), len(splits.test), splits.train.images.dtype
      (1297, 100, 400, dtype('uint8'))
    """
    if not isinstance(dataset, Dataset):
        dataset = resolve(dataset, data_dir=data_dir)
    return dataset.load(validation=validation, rows=rows, strict=strict, report=report)
