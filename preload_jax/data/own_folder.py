"""The user's own data set as a folder of class folders, with or without folders of splits above those."""

import functools
import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preload_jax.data import stored
from preload_jax.data.cache import CACHE_FOLDER, cached, listing_key
from preload_jax.data.readers import image_files, image_folder
from preload_jax.data.readers.bounds import free_memory
from preload_jax.data.split_names import SPLITS, split_meant
from preload_jax.data.splits import Arrays
from preload_jax.errors import DataError

_MAX_NATIVE_SIZE = 96  # pixels; larger images, and images of several sizes, are resized to 32x32
_RESIZED = (32, 32)
_NO_CLASSES = (CACHE_FOLDER, "__MACOSX", "__pycache__")  # What programs leave beside class folders.
_COPIES = 3  # of the images, while they are divided into splits


@dataclass(frozen=True)
class Listing:
    """The image files of a folder, with what each one is.

    Attributes:
      root: the folder.
      paths: in the order of their names.
      labels: int32 [n].
      splits: index into `SPLITS` of each image.
      class_names: in alphabetical order, which is the order of the labels.
      folders: of the splits, by their names in `SPLITS`; empty where there are none.
      left_out: how many files are no images by their names, in words; empty for none.
    """

    root: Path
    paths: list[Path]
    labels: np.ndarray
    splits: np.ndarray
    class_names: tuple[str, ...]
    folders: dict[str, Path]
    left_out: str = ""

    @property
    def key(self) -> str:
        """Other if a file was changed, added or removed."""
        return listing_key(self.paths)


def list_folder(folder: Path) -> Listing:
    """Finds the images of a folder, their classes and their splits; reads none of them.

    Raises:
      DataError: unless it holds CLASS/IMAGE or SPLIT/CLASS/IMAGE, of two classes or more, each with images.
    """
    left_out: list[str] = []
    paths = image_folder.find_images(folder, report=left_out.append)
    # Once for all that looks at them: there may be millions.
    inside = [path.relative_to(folder).parts for path in paths]
    folders = _split_folders(folder, inside)
    roots = folders or {"train": folder}
    split_of = {root.name: split for split, root in folders.items()}
    for root in roots.values():
        of_root = [parts[1:] for parts in inside if parts[0] == root.name] if folders else inside
        _require_images(root, of_root)
        _require_no_splits(root, of_root)
    classes, splits = [], []
    for path, parts in zip(paths, inside, strict=True):
        split = split_of.get(parts[0])
        of_class = parts if split is None else parts[1:]
        if len(of_class) < 2:
            raise DataError(
                f"{path}: not in a class sub-folder; expected {folder if split is None else folders[split]}/CLASS/IMAGE"
            )
        classes.append(of_class[0])
        splits.append(SPLITS.index(split or "train"))
    names = sorted({name for name, split in zip(classes, splits, strict=True) if split == 0})
    for name, number in zip(classes, splits, strict=True):
        if name not in names:
            raise DataError(f"{folders[SPLITS[number]]}: class {name!r} has no images in {folders['train']}")
    if len(names) < 2:
        raise DataError(
            f"{roots['train']}: only one class, {names[0]!r}; expected at least two sub-folders, one a class"
        )
    index = {name: label for label, name in enumerate(names)}
    labels = np.array([index[name] for name in classes], np.int32)
    return Listing(folder, paths, labels, np.array(splits), tuple(names), folders, "".join(left_out))


def _require_images(root: Path, inside: list[tuple[str, ...]], *, splits_alone: bool = False) -> None:
    """Refuses a sub-folder without images: a class that would be missing, or a split, where `splits_alone`."""
    there = {parts[0] for parts in inside}
    for name in sorted(os.listdir(root)):
        known = name.startswith(".") or name in _NO_CLASSES or os.path.isdir(root / name / CACHE_FOLDER)
        if name in there or known or not os.path.isdir(root / name):
            continue
        if split_meant(name) or not splits_alone:
            raise DataError(
                f"{root / name}: a folder without images; remove it, or add files that end in "
                f"{', '.join(sorted(image_files.SUFFIXES))}"
            )


def _split_folders(folder: Path, inside: list[tuple[str, ...]]) -> dict[str, Path]:
    """The folders of the splits by our names; empty if the sub-folders are classes."""
    _require_images(folder, inside, splits_alone=True)
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
    return found


def _require_classes(folder: Path, inside: list[tuple[str, ...]], meaning: dict[str, str | None]) -> None:
    """Refuses folders that look like classes only because a split has an unusual name or stands inside of them."""
    below = _sub_folders(inside)
    _require_unlike(folder, below, [name for name, split in meaning.items() if split])
    for name, deeper in below.items():
        splits = {split_meant(other) for other in deeper} - {None}
        if "train" in splits and len(splits) > 1:
            raise DataError(f"{folder / name}: has splits in it; expected {folder}/SPLIT/CLASS/IMAGE")


def _require_no_splits(root: Path, inside: list[tuple[str, ...]]) -> None:
    """Refuses folders that share sub-folders and have no images of their own: splits, whatever their names are."""
    below = _sub_folders(inside)
    # One sub-folder alone, such as CLASS/images/IMAGE, divides nothing.
    if all(len(parts) > 2 for parts in inside) and len(set().union(*below.values())) > 1:
        _require_unlike(root, below, list(below))


def _sub_folders(inside: list[tuple[str, ...]]) -> dict[str, set[str]]:
    """The sub-folders with images of each folder that has images, itself or in one of them."""
    below: dict[str, set[str]] = {parts[0]: set() for parts in inside if len(parts) > 1}
    for parts in inside:
        if len(parts) > 2:
            below[parts[0]].add(parts[1])
    return below


def _require_unlike(root: Path, below: dict[str, set[str]], suspects: list[str]) -> None:
    for name in suspects:
        if shared := next((other for other in below if other != name and below[other] & below[name]), None):
            raise DataError(
                f"{root}: are {name!r} and {shared!r} splits? Both have the same sub-folders; expected the names "
                f"train, validation and test, or, if they are classes, the images straight in them"
            )


def common_shape(
    paths: tuple[Path, ...], key: str, wanted: tuple[int, int] | None = None
) -> tuple[tuple[int, int, int], str]:
    """The shape of the images if they all have one and it is small, else 32x32; grey only if all are.

    Args:
      paths: image files.
      key: other if one of them was changed.
      wanted: (h, w) that the images get, whatever they have.

    Returns:
      (h, w, c), and what is done to the images in words, empty for nothing.
    """
    sizes, grey = _sizes(paths, key)
    channels = 1 if grey else 3
    smallest, largest = min(sizes, key=math.prod), max(sizes, key=math.prod)
    keep = len(sizes) == 1 and max(largest) <= _MAX_NATIVE_SIZE
    height, width = wanted or (largest[::-1] if keep else _RESIZED)
    resized = sum(count for size, count in sizes.items() if size != (width, height))
    if not resized:
        return (height, width, channels), ""
    found = "×".join(map(str, smallest))
    if len(sizes) > 1:
        found = f"{len(sizes):,} sizes, {found} to {'×'.join(map(str, largest))}"
    total = sum(sizes.values())
    which = "images" if resized == total else f"{resized:,} of {total:,} images,"
    return (height, width, channels), f"{which} of {found} pixels are resized to {width}×{height}"


@functools.lru_cache(maxsize=4)  # A run asks for its spec many times; `key` changes when a file does.
def _sizes(paths: tuple[Path, ...], key: str) -> tuple[Counter[tuple[int, int]], bool]:
    """How many images have each (width, height), and whether all are grey; by the files' headers."""
    sizes: Counter[tuple[int, int]] = Counter()
    grey = True
    for path in paths:
        try:
            size, is_grey = image_files.describe(path)
        except DataError:  # Unreadable: skipped, or an error, when the images are read.
            continue
        sizes[size] += 1
        grey &= is_grey
    if not sizes:
        raise DataError(f"{paths[0].parent.parent}: none of {len(paths):,} images is readable")
    return sizes, grey


def read(
    listing: Listing,
    image_shape: tuple[int, int, int],
    *,
    data_dir: Path,
    strict: bool = False,
    report: image_folder.Report | None = None,
) -> dict[str, Arrays]:
    """Reads the splits of a folder, from a cache in `data_dir` where they were read before.

    Images that do not fit into memory are decoded into a file of the cache, and stay on disk, see `stored`.

    Args:
      listing: of the folder.
      image_shape: (h, w, c) that the images get.
      data_dir: where decoded images are cached.
      strict: an unreadable image is an error instead of being skipped.
      report: is told how many images were skipped or changed.
    """
    parent, size = listing.root, len(listing.paths) * math.prod(image_shape)
    key = listing_key(listing.paths, image_shape, strict, listing.splits.tolist(), "3")
    folder = data_dir / CACHE_FOLDER
    if _COPIES * size <= free_memory():
        names = "images", "labels", "splits", "said"
        arrays = cached(folder / f"folder-{key}.npz", lambda: _decode(listing, image_shape, strict), names=names)
    else:
        if report is not None:
            report(f"{parent}: {size / 1e9:,.1f} GB of images do not fit into memory; they are kept in {folder}")
        shape = (len(listing.paths), *image_shape)
        arrays = stored.kept(
            folder / f"stored-{key}.npz",
            shape,
            lambda images: _decode_into(images, listing, image_shape, strict),
            names=("labels", "splits", "said"),
            of_each=("labels", "splits"),
            what=parent,
        )
    for message in (listing.left_out, str(arrays["said"])):
        if report is not None and message:
            report(message)
    whole, parts = Arrays(images=arrays["images"], labels=arrays["labels"]), {}
    for number, split in enumerate(SPLITS):
        rows = np.flatnonzero(arrays["splits"] == number)
        wanted = np.unique(listing.labels[listing.splits == number])
        # A class or a split that quietly vanished would not be what was asked for.
        for label in np.setdiff1d(wanted, arrays["labels"][rows]):
            where = listing.folders.get(split, parent)
            raise DataError(f"{where}: none of the images of class {listing.class_names[label]!r} is readable")
        if len(wanted):
            parts[split] = whole.take(rows)
    return parts


def _decode(listing: Listing, image_shape: tuple[int, int, int], strict: bool) -> dict[str, np.ndarray]:
    messages: list[str] = []
    said: Callable[[str], None] = messages.append
    images, rows = image_folder.read_squashed(
        listing.paths, image_shape, where=listing.root, strict=strict, report=said
    )
    return {
        "images": images,
        "labels": listing.labels[rows],
        "splits": listing.splits[rows],
        "said": np.array("; ".join(messages)),
    }


def _decode_into(
    images: np.ndarray, listing: Listing, image_shape: tuple[int, int, int], strict: bool
) -> dict[str, np.ndarray]:
    """The same straight into an array; the splits of images that cannot be read are −1."""
    messages: list[str] = []
    rows = image_folder.read_squashed_into(images, listing.paths, image_shape, strict=strict, report=messages.append)
    splits = np.full(len(listing.paths), -1)
    splits[rows] = listing.splits[rows]
    return {"labels": listing.labels, "splits": splits, "said": np.array("; ".join(messages))}
