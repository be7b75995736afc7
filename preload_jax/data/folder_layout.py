"""How a user's folder is laid out: whether its sub-folders are classes or splits, and which are neither."""

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from preload_jax.data.alike import alike, both_shown
from preload_jax.data.cache import CACHE_FOLDER
from preload_jax.data.readers import image_files, image_folder
from preload_jax.data.readers.image_folder import Report
from preload_jax.data.split_names import paired, split_meant
from preload_jax.errors import DataError

_MAX_NAMED = 3  # folders in a message
_STRAYS = 0.1  # of the images in a folder and below it: fewer of its own are not what it is for
# What is below a folder: the parts of each image's path.
Inside = Sequence[tuple[str, ...]]
# How many images each folder below a class has straight in it; the class itself is ().
Images = Mapping[tuple[str, ...], int]


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
    _report_left_out(folder, others, report)
    return found


def check_classes(
    root: Path, inside: Inside, *, split: str | None, classes: Collection[str] = (), report: Report
) -> None:
    """Refuses sub-folders that may be something else than classes with images.

    Args:
      root: holds the class folders: the user's folder, or one of its splits.
      inside: the paths of its images, in parts, from the root on.
      split: the one that the root is; None where there are no splits.
      classes: the names that the network learns, as far as they are known from another folder.
      report: is told which sub-folders are no classes, and whether classes have parts.

    Raises:
      DataError: for a class folder without images, for sub-folders that look like splits, a wrapper or a copy of
        classes, and for names that look alike.
    """
    others = _without_images(root, inside, trained=split in (None, "train"))
    images: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for parts in inside:
        if len(parts) > 1:
            images[parts[0]][parts[1:-1]] += 1
    _report_left_out(root, others, report, classes=len(images) if split in (None, "train") else None)
    _require_different(root, images)
    known = {alike(name) for name in (*images, *classes)}
    for name in images:
        _require_no_other_classes(root, name, images[name], known - {alike(name)})
    without = [name for name in images if _own_are_strays(images[name])]
    # Where several folders are wrapped, the one to train on is what to give.
    for name in sorted(without, key=lambda name: ("train" not in name.casefold(), name)):
        alone = len(images) == 1 and split in (None, "train")
        _require_no_wrapper(root, name, images[name], alone=alone, is_split=split is not None)
    below = _sub_folders(inside)
    # One sub-folder alone, such as CLASS/images/IMAGE, divides nothing.
    if len(set().union(*below.values())) > 1:
        _require_unlike(root, below, without)
        _require_no_split_beside(root, below, without)
    _require_unpaired(root, images)
    for name in below:
        if below[name]:
            first = f"{name}/{min(below[name])}"
            report(f"{root}: images in sub-folders belong to the class above them; the first such folder: {first}")
            return


def _require_different(root: Path, names: Iterable[str]) -> None:
    """Refuses names of classes that look alike: they are rather one class."""
    seen: dict[str, str] = {}
    for name in names:
        if (first := seen.setdefault(alike(name), name)) != name:
            raise DataError(
                f"{root}: the classes {both_shown(first, name)} differ only in case, blanks, unseen characters or "
                f"Unicode form; put their images into one folder, or give them names that differ in more"
            )


def _own_are_strays(images: Images) -> bool:
    """Whether a folder has few images of its own beside those below it: they are covers or thumbnails then.

    They would otherwise make a class of a copy, or of a split.
    """
    own, below = images.get((), 0), len(images.keys() - {()})
    return own < below or (below > 0 and own < _STRAYS * sum(images.values()))


def _require_no_other_classes(root: Path, name: str, images: Images, others: set[str]) -> None:
    """Refuses a class that has the name of another class inside, at any depth.

    Args:
      root: holds the class.
      name: of the class.
      images: in it.
      others: the names of the other classes, as `alike` makes them.
    """
    found: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for folder in images:
        for depth, part in enumerate(folder):
            if alike(part) in others:
                found[folder[:depth]].add(part)
    if found:
        place = min(found)
        raise DataError(
            f"{root.joinpath(name, *place)}: its sub-folders have the names of other classes ({_few(found[place])}), "
            f"but their images would be of the class {name!r}; remove or rename them, or move their images to those "
            f"classes"
        )


def _require_no_wrapper(root: Path, name: str, images: Images, *, alone: bool, is_split: bool) -> None:
    """Refuses a folder around one folder of folders, as archives unpack to: those are rather the classes.

    Args:
      root: holds it.
      name: of a folder whose own images are strays.
      images: in it.
      alone: whether it is the only one to train on; then it is no class in any case.
      is_split: whether the root is a split.
    """
    place = [name]
    while _own_are_strays(images) and len({folder[0] for folder in images if folder}) == 1:
        place += {folder[0] for folder in images if folder}
        images = {folder[1:]: count for folder, count in images.items() if folder}
    if (len(place) == 1 and not alone) or not _own_are_strays(images):
        return
    if is_split:
        advice = f"move them up if they are classes, to {root}/CLASS/IMAGE, or give that folder as the data set"
    else:
        advice = (
            f"give that folder as the data set if they are its classes, or lay splits out as {root}/train/CLASS/IMAGE "
            f"and {root}/test/CLASS/IMAGE"
        )
    raise DataError(
        f"{root.joinpath(*place)}: has sub-folders ({_few({folder[0] for folder in images if folder})}) where images "
        f"of the class {name!r} are expected; {advice}" + ("" if alone else "; if it is a class, move its images up")
    )


def _require_no_split_beside(root: Path, below: dict[str, set[str]], without: list[str]) -> None:
    """Refuses a split beside folders that are none: its classes would become one."""
    for name in without:
        if split_meant(name) and len(below[name]) > 1 and len(below) > 1:
            raise DataError(
                f"{root}: {name!r} has the name of a split, and sub-folders ({_few(below[name])}), but others stand "
                f"beside it ({_few(below.keys() - {name})}); give {root / name} as the data set if those are its "
                f"classes, or move its images straight into it if it is a class"
            )


def _require_unpaired(root: Path, names: Iterable[str]) -> None:
    """Refuses names that are equal but for the split in them, whatever is in the folders: a test split may be flat."""
    if both := paired(names):
        raise DataError(
            f"{root}: are {both[0]!r} and {both[1]!r} splits? Their names differ in that alone; if they are splits, "
            f"lay them out as {root}/train/CLASS/IMAGE and {root}/test/CLASS/IMAGE, or give {root / both[0]} as the "
            f"data set if it holds the classes; if they are classes, give them other names"
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
        if name in there or known or not os.path.isdir(root / name) or _holds_runs(root, name):
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


def _holds_runs(root: Path, name: str) -> bool:
    """Whether there are trained runs in a sub-folder, or it is one: finding the images has said so."""
    found: list[Path] = []
    for _ in image_folder.files(root / name, of_run=found.append):
        pass
    return bool(found) or image_folder.is_run(os.listdir(root / name))


def _holds_other_things(folder: Path) -> bool:
    """Whether it holds files, and none that may be images which cannot be read."""
    files = list(image_folder.files(folder))
    return bool(files) and not any(path.suffix.lower() in image_files.NOT_READ for path in files)


def _report_left_out(root: Path, names: list[str], report: Report, *, classes: int | None = None) -> None:
    """Says which sub-folders are neither classes nor splits, and how many classes that leaves, where they count."""
    if names:
        leaves = "" if classes is None else f"; that leaves K = {classes:,} classes"
        report(f"{root}: left out {len(names):,} sub-folders without images: {', '.join(names)}{leaves}")
    if hidden := [name for name in sorted(os.listdir(root)) if name.startswith(".") and _has_images(root / name)]:
        report(
            f"{root}: left out {len(hidden):,} hidden folders with images: {', '.join(hidden)}; a class must not begin "
            f"with a dot"
        )


def _has_images(folder: Path) -> bool:
    """Whether there are images in a folder, at any depth; links are not followed, and what cannot be read has none."""
    names = (name for _, _, names in os.walk(folder) for name in names if not image_folder.is_left_out(name))
    return any(os.path.splitext(name)[1].lower() in image_files.SUFFIXES for name in names)


def _require_classes(folder: Path, inside: Inside, meaning: dict[str, str | None]) -> None:
    """Refuses folders that look like classes only because a split has an unusual name or stands inside of them."""
    below = _sub_folders(inside)
    _require_unlike(folder, below, [name for name, split in meaning.items() if split])
    for name, deeper in below.items():
        splits = {split_meant(other) for other in deeper} - {None}
        if ("train" in splits and len(splits) > 1) or paired(deeper):
            raise DataError(f"{folder / name}: has splits in it; expected {folder}/SPLIT/CLASS/IMAGE")


def _sub_folders(inside: Inside) -> dict[str, set[str]]:
    """The sub-folders with images of each folder that has images, itself or in one of them."""
    below: dict[str, set[str]] = {parts[0]: set() for parts in inside if len(parts) > 1}
    for parts in inside:
        if len(parts) > 2:
            below[parts[0]].add(parts[1])
    return below


def _require_unlike(root: Path, below: dict[str, set[str]], suspects: list[str]) -> None:
    """Refuses suspects that share the name of a sub-folder with another folder: both may be splits."""
    keys = {name: {alike(deeper): deeper for deeper in below[name]} for name in below}
    for name in suspects:
        for other in keys:
            if other != name and (shared := keys[name].keys() & keys[other].keys()):
                raise DataError(
                    f"{root}: are {name!r} and {other!r} splits? Both have the same sub-folders "
                    f"({_few({keys[name][key] for key in shared})}); if they are splits, name them train, validation "
                    f"and test; if they are classes, give their sub-folders other names, or move the images up"
                )
