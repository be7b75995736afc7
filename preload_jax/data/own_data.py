"""The user's own images as an in-domain data set: class sub-folders ("folder:PATH") or arrays in a .npz file."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preload_jax.data import names, own_arrays, own_folder, repeated
from preload_jax.data.cache import listing_key
from preload_jax.data.names import is_own
from preload_jax.data.own_arrays import Contents
from preload_jax.data.own_folder import Listing
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.specs import DatasetSpec, own_spec
from preload_jax.data.split_names import SPLITS
from preload_jax.data.splits import Arrays, Splits, Validation, held_out_size, stratified_split
from preload_jax.errors import DataError

__all__ = ["Own", "describe", "is_own", "num_training", "read", "report_absent"]

_TEST_SHARE = 0.2
_MAX_NAMED = 5  # classes in a message


@dataclass(frozen=True)
class Own:
    """The user's own data, described: everything but the images.

    Attributes:
      spec: shape, channels and classes, told from the images.
      path: the folder or file.
      content: what is in it.
      key: other as soon as one of its files is changed.
    """

    spec: DatasetSpec
    path: Path
    content: Listing | Contents
    key: str


def describe(name: str, *, image_size: tuple[int, int] | None = None) -> Own:
    """Describes the user's own data, without reading the images.

    Args:
      name: "folder:PATH" or FILE.npz.
      image_size: (h, w) that a folder's images get; None: as `own_folder.common_shape` says.

    Raises:
      DataError: if there is no such folder or file, it does not hold labelled images, or a file shall be resized.
    """
    path = names.path_of(name)
    if not names.is_folder(name):
        if image_size is not None:
            raise DataError(f"the images of {name} have one size; leave out image_size, which is for folder:PATH")
        return _describe_arrays(name, path, listing_key([path]))
    listing = own_folder.list_folder(path)
    shape, note = own_folder.common_shape(tuple(listing.paths), listing.key, image_size)
    spec = own_spec(name, image_shape=shape, class_names=listing.class_names, note=note)
    return Own(spec, path, listing, listing.key)


@functools.lru_cache(maxsize=4)  # The spec of one file is asked for many times; `key` changes when it does.
def _describe_arrays(name: str, path: Path, key: str) -> Own:
    contents = own_arrays.describe(path)
    return Own(own_spec(name, image_shape=contents.image_shape, class_names=contents.class_names), path, contents, key)


def read(
    own: Own, *, data_dir: Path, strict: bool = False, report: Report | None = None
) -> tuple[Arrays, Arrays, Arrays | None]:
    """Reads the user's own data as (train, test, validation); validation is None where it has none of its own.

    Without a test split the validation split is tested, and without that a fixed fifth of the images.

    Args:
      own: what `describe` returned.
      data_dir: where decoded images are cached.
      strict: an unreadable image is an error instead of being skipped.
      report: is told, in one line each, what was skipped, resized or changed.

    Raises:
      DataError: if the files were changed since they were described, or cannot be read.
    """
    content = own.content
    if own.key != (content.key if isinstance(content, Listing) else listing_key([own.path])):
        raise DataError(f"{own.path}: was changed while it was in use; start again")
    if report is not None and own.spec.note:
        report(own.spec.note)
    if isinstance(content, Listing):
        parts = own_folder.read(content, own.spec.image_shape, data_dir=data_dir, strict=strict, report=report)
    else:
        if report is not None and content.unused:
            report(f"{own.path}: not used are its arrays {', '.join(map(repr, content.unused))}")
        parts = own_arrays.read(own.path, content)
        for line in repeated.in_arrays(parts, class_names=own.spec.class_names) if report is not None else ():
            report(f"{own.path}: {line}")  # type: ignore[misc]
    train = parts["train"]
    if "test" in parts:
        return train, parts["test"], parts.get("validation")
    if "validation" in parts:
        if report is not None:
            report(f"{own.path}: no test split; its validation images are tested")
        return train, parts["validation"], None
    train_rows, test_rows = stratified_split(train.labels, test_size=_test_size(len(train)))
    return train.take(train_rows), train.take(test_rows), None


def makes_test(own: Own) -> bool:
    """Whether a fixed fifth of the images is tested, since there is no test split and no validation split."""
    sizes = _sizes(own)
    return not sizes["test"] and not sizes["validation"]


def num_training(own: Own, validation: Validation) -> int:
    """How many images a network is trained with, if all are readable; see `splits.hold_out` for `validation`."""
    sizes = _sizes(own)
    count = sizes["train"]
    if makes_test(own):
        count -= _test_size(count)
    of_its_own = sizes["test"] and sizes["validation"]
    return count - (held_out_size(count, own.spec.validation_size) if validation == "train" and not of_its_own else 0)


def _sizes(own: Own) -> dict[str, int]:
    """How many images each split has, those that cannot be read among them."""
    content = own.content
    if isinstance(content, Listing):
        return dict(zip(SPLITS, np.bincount(content.splits, minlength=len(SPLITS)).tolist(), strict=True))
    return {split: len(content.labels.get(split, ())) for split in SPLITS}


def _test_size(num_images: int) -> int:
    return round(_TEST_SHARE * num_images)


def report_absent(name: str, splits: Splits, class_names: Sequence[str], report: Report) -> None:
    """Says which classes have no images to train, validate or test with: results are then about the others.

    Of validation images that were taken out of others nothing is said: of the few each class need not have some.

    Args:
      name: of the data set.
      splits: of it, as they are used.
      class_names: by label.
      report: is told.
    """
    parts = {"training": splits.train, "test": splits.test}
    if splits.own_validation:
        parts["validation"] = splits.validation
    for split, part in parts.items():
        if len(missing := np.setdiff1d(np.arange(len(class_names)), part.labels)):
            named = ", ".join(repr(class_names[label]) for label in missing[:_MAX_NAMED])
            more = ", …" if len(missing) > _MAX_NAMED else ""
            report(
                f"{names.path_of(name)}: no {split} images of {len(missing):,} of {len(class_names):,} classes "
                f"({named}{more}); results on that split are about the others"
            )
