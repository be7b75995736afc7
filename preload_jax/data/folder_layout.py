"""How a user's folder is laid out: whether its sub-folders are classes or splits, and which are neither."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from preload_jax.data.cache import CACHE_FOLDER
from preload_jax.data.readers import image_files, image_folder
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.split_names import split_meant
from preload_jax.errors import DataError

_MAX_NAMED = 3  # folders in a message
# What is below a folder: the parts of each image's path.
Inside = Sequence[tuple[str, ...]]


def split_folders(folder: Path, inside: Inside, *, report: Report) -> dict[str, Path]:
    """The folders of the splits by our names; empty if the sub-folders are classes.

    Args:
      folder: the user's.
      inside: the paths of its images, in parts, from the folder on.
      report: is told which folders beside the splits have no images.

    Raises:
      DataError: for a split without images, and where it is not clear which folders are splits.
    """
    others = _without_images(folder, inside, beside_splits=True)
    names = sorted({parts[0] for parts in inside if len(parts) > 1})
    meaning = {name: split_meant(name) for name in names}
    meant = set(meaning.values()) - {None}
    are_splits = meant and (None not in meaning.values() or ("train" in meant and len(meant) > 1))
    if not are_splits:
        _require_classes(folder, inside, meaning)
        return {}
    if "train" not in meant:
        raise DataError(f"{folder}: has the splits {', '.join(names)}, but none to train on; expected {folder}/train")
    found: dict[str, Path] = {}
    for name, split in meaning.items():
        if split is None:
            raise DataError(
                f"{folder}: {name!r} stands beside splits ({', '.join(n for n in names if meaning[n])}); expected "
                f"class folders alone, or splits alone"
            )
        if split in found:
            raise DataError(f"{folder}: {found[split].name!r} and {name!r} are both the {split} split; expected one")
        found[split] = folder / name
    _report_without_images(folder, others, report)
    return found


def check_classes(root: Path, inside: Inside, *, trained: bool, report: Report) -> None:
    """Refuses sub-folders that may be something else than classes with images.

    Args:
      root: holds the class folders: the user's folder, or one of its splits.
      inside: the paths of its images, in parts, from the root on.
      trained: whether the classes here are those that the network learns.
      report: is told which sub-folders are no classes, and whether classes have parts.

    Raises:
      DataError: for a class folder without images, and for sub-folders that look like splits.
    """
    _report_without_images(root, _without_images(root, inside, trained=trained), report)
    below = _sub_folders(inside)
    # A class has images of its own.  A single one does not make classes of the folders beside it.
    have_images = {parts[0] for parts in inside if len(parts) == 2}
    without = [name for name in below if name not in have_images]
    folders: dict[str, set[tuple[str, ...]]] = {name: set() for name in without}
    for parts in inside:
        if parts[0] in folders:
            folders[parts[0]].add(parts[1:-1])
    for name in without:
        _require_no_classes_inside(root, name, below, folders[name])
    # One sub-folder alone, such as CLASS/images/IMAGE, divides nothing.
    if len(set().union(*below.values())) < 2:
        return
    _require_unlike(root, below, without)
    for name in below:
        if _like(name, below) or (name in without and len(below[name]) > 1):
            first = f"{name}/{min(below[name])}"
            report(f"{root}: images in sub-folders belong to the class above them; the first such folder: {first}")
            return


def _require_no_classes_inside(
    root: Path, name: str, below: dict[str, set[str]], folders: set[tuple[str, ...]]
) -> None:
    """Refuses a folder whose sub-folders are rather the classes: a copy of those beside it, or a wrapper of others.

    Args:
      root: holds it.
      name: of a folder without images of its own.
      below: the sub-folders of each.
      folders: those below it that have images.
    """
    if copies := sorted(below[name] & below.keys() - {name}):
        raise DataError(
            f"{root / name}: its sub-folders have the names of the classes beside it ({_few(copies)}), so their images "
            f"would be of the class {name!r}; remove it, or give it alone as the data set"
        )
    place, inside = [name], folders
    while () not in inside and len({parts[0] for parts in inside}) == 1:
        place += {parts[0] for parts in inside}
        inside = {parts[1:] for parts in inside}
    if len(place) > 1 and () not in inside:
        raise DataError(
            f"{root.joinpath(*place)}: has sub-folders ({_few({parts[0] for parts in inside})}) where images of the "
            f"class {name!r} are expected; give that folder as the data set if they are its classes, or lay splits out "
            f"as {root}/train/CLASS/IMAGE and {root}/test/CLASS/IMAGE"
        )


def _few(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:_MAX_NAMED]) + ", …" * (len(names) > _MAX_NAMED)


def _without_images(root: Path, inside: Inside, *, trained: bool = True, beside_splits: bool = False) -> list[str]:
    """The sub-folders that hold other files than images, so that they are no classes; beside splits none is one.

    Raises:
      DataError: for an empty one, which may be a class whose images are missing, and for a split without images.
    """
    there, found = {parts[0] for parts in inside}, []
    for name in sorted(os.listdir(root)):
        known = image_folder.is_left_out(name) or os.path.isdir(root / name / CACHE_FOLDER)
        if name in there or known or not os.path.isdir(root / name):
            continue
        if split_meant(name) is None and (beside_splits or _holds_other_things(root / name)):
            found.append(name)
            continue
        remove = "remove it" if trained else "remove it, so that the class has no images here"
        raise DataError(
            f"{root / name}: a folder without images; {remove}, or add files that end in "
            f"{', '.join(sorted(image_files.SUFFIXES))}"
        )
    return found


def _holds_other_things(folder: Path) -> bool:
    """Whether it holds files, and none that may be images which cannot be read."""
    files = list(image_folder.files(folder))
    return bool(files) and not any(path.suffix.lower() in image_files.NOT_READ for path in files)


def _report_without_images(root: Path, names: list[str], report: Report) -> None:
    if names:
        report(f"{root}: left out {len(names):,} sub-folders without images: {', '.join(names)}")


def _require_classes(folder: Path, inside: Inside, meaning: dict[str, str | None]) -> None:
    """Refuses folders that look like classes only because a split has an unusual name or stands inside of them."""
    below = _sub_folders(inside)
    _require_unlike(folder, below, [name for name, split in meaning.items() if split])
    for name, deeper in below.items():
        splits = {split_meant(other) for other in deeper} - {None}
        if "train" in splits and len(splits) > 1:
            raise DataError(f"{folder / name}: has splits in it; expected {folder}/SPLIT/CLASS/IMAGE")


def _sub_folders(inside: Inside) -> dict[str, set[str]]:
    """The sub-folders with images of each folder that has images, itself or in one of them."""
    below: dict[str, set[str]] = {parts[0]: set() for parts in inside if len(parts) > 1}
    for parts in inside:
        if len(parts) > 2:
            below[parts[0]].add(parts[1])
    return below


def _like(name: str, below: dict[str, set[str]]) -> str | None:
    """Another folder that shares a sub-folder's name with a folder; None where no other does."""
    return next((other for other in below if other != name and below[other] & below[name]), None)


def _require_unlike(root: Path, below: dict[str, set[str]], suspects: list[str]) -> None:
    for name in suspects:
        if shared := _like(name, below):
            raise DataError(
                f"{root}: are {name!r} and {shared!r} splits? Both have the same sub-folders; expected the names "
                f"train, validation and test, or, if they are classes, the images straight in them"
            )
