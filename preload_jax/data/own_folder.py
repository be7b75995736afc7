"""The user's own data set as a folder of class folders, with or without folders of splits above those."""

import functools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preload_jax.data import folder_layout, repeated, stored
from preload_jax.data.alike import alike, both_shown
from preload_jax.data.cache import CACHE_FOLDER, cached, listing_key
from preload_jax.data.readers import image_files, image_folder
from preload_jax.data.readers.bounds import free_memory
from preload_jax.data.split_names import SPLITS
from preload_jax.data.splits import Arrays
from preload_jax.errors import DataError

_MAX_NATIVE_SIZE = 96  # pixels; larger images, and images of several sizes, are resized to 32x32
_RESIZED = (32, 32)
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
      left_out: what was left out, or may have been meant otherwise, in a line each.
    """

    root: Path
    paths: list[Path]
    labels: np.ndarray
    splits: np.ndarray
    class_names: tuple[str, ...]
    folders: dict[str, Path]
    left_out: tuple[str, ...] = ()

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
    folders = folder_layout.split_folders(folder, inside, report=left_out.append)
    roots = folders or {"train": folder}
    split_of = {root.name: split for split, root in folders.items()}
    trained: set[str] = set()
    for split in sorted(roots, key=SPLITS.index):
        root = roots[split]
        of_root = [parts[1:] for parts in inside if parts[0] == root.name] if folders else inside
        folder_layout.check_classes(
            root, of_root, split=split if folders else None, classes=trained, report=left_out.append
        )
        trained = trained or {parts[0] for parts in of_root if len(parts) > 1}
    classes, splits = [], []
    for path, parts in zip(paths, inside, strict=True):
        own = split_of.get(parts[0])
        of_class = parts if own is None else parts[1:]
        if len(of_class) < 2:
            raise DataError(
                f"{path}: not in a class sub-folder; expected {folder if own is None else folders[own]}/CLASS/IMAGE"
            )
        classes.append(of_class[0])
        splits.append(SPLITS.index(own or "train"))
    names = sorted({name for name, split in zip(classes, splits, strict=True) if split == 0})
    for name, number in zip(classes, splits, strict=True):
        if name not in names:
            message = f"{folders[SPLITS[number]]}: class {name!r} has no images in {folders['train']}"
            if like := [known for known in names if alike(known) == alike(name)]:
                both = both_shown(name, like[0])
                message += (
                    f"; {both} there differ only in case, blanks, unseen characters or Unicode form, so rename one of "
                    f"them"
                )
            raise DataError(message)
    if len(names) < 2:
        raise DataError(
            f"{roots['train']}: only one class, {names[0]!r}; expected at least two sub-folders, one a class"
        )
    index = {name: label for label, name in enumerate(names)}
    labels = np.array([index[name] for name in classes], np.int32)
    return Listing(folder, paths, labels, np.array(splits), tuple(names), folders, tuple(left_out))


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
    key = listing_key(listing.paths, image_shape, strict, listing.splits.tolist(), "4")
    folder = data_dir / CACHE_FOLDER
    if _COPIES * size <= free_memory():
        names = "images", "labels", "splits", "said", "repeated"
        arrays = cached(folder / f"folder-{key}.npz", lambda: _decode(listing, image_shape, strict), names=names)
    else:
        if report is not None:
            report(f"{parent}: {size / 1e9:,.1f} GB of images do not fit into memory; they are kept in {folder}")
        shape = (len(listing.paths), *image_shape)
        arrays = stored.kept(
            folder / f"stored-{key}.npz",
            shape,
            lambda images: _decode_into(images, listing, image_shape, strict),
            names=("labels", "splits", "said", "repeated"),
            of_each=("labels", "splits"),
            what=parent,
        )
    for message in (*listing.left_out, str(arrays["said"]), *arrays["repeated"].tolist()):
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
        "repeated": _repeated(listing),
    }


def _decode_into(
    images: np.ndarray, listing: Listing, image_shape: tuple[int, int, int], strict: bool
) -> dict[str, np.ndarray]:
    """The same straight into an array; the splits of images that cannot be read are −1."""
    messages: list[str] = []
    rows = image_folder.read_squashed_into(images, listing.paths, image_shape, strict=strict, report=messages.append)
    splits = np.full(len(listing.paths), -1)
    splits[rows] = listing.splits[rows]
    said = np.array("; ".join(messages))
    return {"labels": listing.labels, "splits": splits, "said": said, "repeated": _repeated(listing)}


def _repeated(listing: Listing) -> np.ndarray:
    """What there is to say of equal files; kept with the images, since it takes another look at them."""
    found = repeated.in_files(listing.paths, listing.labels, listing.splits, class_names=listing.class_names)
    return np.array([f"{listing.root}: {line}" for line in found], np.str_)
