"""A data set whose name was read once: what it is, and where its arrays and those that go with it come from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.data import builtin, names, ood, outliers, own_data
from preload_jax.data.paths import data_root
from preload_jax.data.preparing import tfds_source
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.specs import DATASETS, DatasetSpec, own_spec, unknown
from preload_jax.data.splits import Arrays, Rows, Splits, Validation, hold_out
from preload_jax.errors import DataError, reason

TRAINING_RANGE = (0, 255)


@dataclass(frozen=True)
class Dataset:
    """An in-domain data set, resolved: nothing about it is looked up again.

    Attributes:
      spec: its shape, its classes and what the paper does with it; `name` is as it was given.
      canonical_name: the same for every spelling: "folder:x" and "folder:x/" have one absolute path.
      data_dir: where prepared sets and caches are.
      source: where its arrays come from, in words.
      training_range: smallest and largest value that an image at rest can have; networks see them divided by 255.
      own: the listing of the user's own files; None for a known set, and where they were not looked at (`described`).
    """

    spec: DatasetSpec
    canonical_name: str
    data_dir: Path
    source: str
    training_range: tuple[int, int] = TRAINING_RANGE
    own: own_data.Own | None = None

    @property
    def name(self) -> str:
        """As it was given."""
        return self.spec.name

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.spec.image_shape

    @property
    def num_classes(self) -> int:
        """K, never counting the extra class."""
        return self.spec.num_classes

    @property
    def class_names(self) -> tuple[str, ...]:
        """One a class, in the order of the labels: of folders the alphabetical one."""
        return self.spec.class_names

    @property
    def note(self) -> str:
        """What is done to the user's own images to give them one shape, in words; empty for nothing."""
        return self.spec.note

    def load(
        self,
        *,
        validation: Validation = "test",
        rows: Rows = "ours",
        strict: bool = False,
        report: Report | None = None,
    ) -> Splits:
        """Reads the images and holds the validation images out; see `datasets.load`."""
        train, test, given = self._arrays(strict, report)
        splits = hold_out(train, test, size=self.spec.validation_size, validation=validation, rows=rows, given=given)
        if report is not None and names.is_own(self.name):
            own_data.report_absent(self.name, splits, self.class_names, report)
        return splits

    def _arrays(self, strict: bool, report: Report | None) -> tuple[Arrays, Arrays, Arrays | None]:
        if names.is_own(self.name):
            own = self._same_as_described() if self.own is None else self.own
            return own_data.read(own, data_dir=self.data_dir, strict=strict, report=report)
        if self.name == "digits":
            return *builtin.digits(), None
        train, test = (tfds_source.read(self.name, split, data_dir=self.data_dir) for split in ("train", "test"))
        return train, test, None

    def _same_as_described(self) -> own_data.Own:
        """The user's own files, which must still have the classes that they had."""
        own = own_data.describe(self.canonical_name)
        if own.spec.class_names != self.class_names:
            raise DataError(
                f"{own.path}: its classes are {list(own.spec.class_names)}; expected {list(self.class_names)}, as they "
                f"were when the network was trained"
            )
        return replace(own, spec=self.spec)

    def as_dict(self) -> dict[str, Any]:
        """What `described` makes the data set of again, in values that JSON has."""
        return {
            "name": self.name,
            "canonical_name": self.canonical_name,
            "image_shape": list(self.image_shape),
            "class_names": list(self.class_names),
            "training_range": list(self.training_range),
            "note": self.note,
        }

    def load_ood(self, name: str, *, test_images: np.ndarray, **options: Any) -> np.ndarray:
        """Loads or makes one OOD test set in this set's shape; see `datasets.load_ood`."""
        return ood.load_ood(name, in_domain=self.spec, test_images=test_images, data_dir=self.data_dir, **options)

    def check_ood(self, name: str) -> None:
        """Raises what `load_ood` would for a set that is not there; see `datasets.check_ood`."""
        ood.check_ood(name, data_dir=self.data_dir)

    def available_ood(self) -> tuple[list[str], list[str]]:
        """(available, missing) OOD test sets; see `datasets.available_ood`."""
        return ood.available_ood(self.spec, data_dir=self.data_dir)

    def load_outliers(self, name: str, *, train_images: np.ndarray, **options: Any) -> np.ndarray:
        """Loads or makes the auxiliary OOD images of a training run; see `datasets.load_outliers`."""
        return outliers.load_outliers(
            name, in_domain=self.spec, train_images=train_images, data_dir=self.data_dir, **options
        )


def resolve(
    name: str | Path | DatasetSpec,
    *,
    data_dir: str | Path | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> Dataset:
    """Reads a data set's name, once: the images are not read, but files of the user's own are listed.

    Args:
      name: a key of `DATASETS`, "folder:PATH" or a path that ends in ".npz"; or the spec of one.
      data_dir: where the prepared data sets and caches are; None for TFDS's own default.
      image_size: what the images of a folder are resized to, in pixels: (height, width), or one number for both.
        None keeps one size of at most 96 pixels that they all have, and else takes 32x32.

    Raises:
      DataError: for another name, a folder or file that cannot be read, or an image size for images of a fixed size.

    Example:
      >>> from preload_jax.data import datasets
      >>> digits = datasets.resolve("digits")
      >>> digits.source, digits.available_ood()[1]
      ('bundled with scikit-learn', [])
    """
    spec = name if isinstance(name, DatasetSpec) else None
    name = name.name if isinstance(name, DatasetSpec) else names.as_text(name, what="a data set")
    root = data_root(data_dir)
    if name in DATASETS:
        if image_size is not None:
            raise DataError(f"the images of {name} have one size; leave out image_size, which is for folder:PATH")
        source = "bundled with scikit-learn" if name == "digits" else f"prepared in {root}"
        return Dataset(spec or DATASETS[name], name, root, source)
    if not names.is_own(name):
        raise unknown("dataset", name, [*DATASETS, "folder:PATH", "FILE.npz"])
    own = own_data.describe(name, image_size=_both_sides(image_size))
    if spec is not None:
        own = replace(own, spec=spec)
    return Dataset(own.spec, names.canonical(name), root, str(own.path), own=own)


def _both_sides(image_size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if image_size is None:
        return None
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    if min(height, width) < 1:
        raise DataError(f"image_size must be at least 1, got {min(height, width)}")
    return height, width


def described(values: Mapping[str, Any], *, data_dir: str | Path | None = None) -> Dataset:
    """The data set that `Dataset.as_dict` described; no file of it is looked at before `load` is called.

    Args:
      values: the description.
      data_dir: as for `resolve`.

    Raises:
      DataError: for values that do not describe a data set.
    """
    root = data_root(data_dir)
    try:
        name, canonical_name, note = (str(values[key]) for key in ("name", "canonical_name", "note"))
        height, width, channels = (int(size) for size in values["image_shape"])
        class_names = tuple(str(class_name) for class_name in values["class_names"])
        low, high = (int(value) for value in values["training_range"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"not the description of a data set ({reason(error)})") from error
    shape = height, width, channels
    if min(shape) < 1 or not class_names:
        raise DataError(f"not the description of a data set: images {list(shape)}, {len(class_names)} classes")
    if name in DATASETS:
        return resolve(name, data_dir=root)
    spec = own_spec(name, image_shape=shape, class_names=class_names, note=note)
    return Dataset(spec, canonical_name, root, str(names.path_of(canonical_name)), (low, high))
