"""Folders of images: found in a fixed order, decoded on all cores, unreadable ones skipped and counted."""

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.data.cache import CACHE_FOLDER
from preload_jax.data.images import to_channels
from preload_jax.data.readers import image_files
from preload_jax.data.readers.bounds import require_memory
from preload_jax.data.readers.image_files import SUFFIXES
from preload_jax.errors import DataError, reason

Report = Callable[[str], None]
_MAX_THREADS = 16
_MAX_ENDINGS = 5  # that a message names
# What systems and programs make beside images, in lower case: thumbnails, deleted files, and copies without content.
_OF_SYSTEMS = frozenset(
    (
        "@eadir",
        "#recycle",
        "#snapshot",
        "$recycle.bin",
        "system volume information",
        "lost+found",
        "__macosx",
        "__pycache__",
    )
)


def find_images(folder: Path, *, report: Report | None = None) -> list[Path]:
    """The image files in `folder` and its sub-folders, sorted by path.

    Hidden ones, systems' folders and folders that hold a trained run are left out.

    Links to folders are followed. A link to an image that is gone is listed, too: it is an image that cannot be read.

    Args:
      folder: of images.
      report: is told, in one line each, which folders systems made or hold a run, how many files are no images by
        their names, and which endings they have.

    Raises:
      DataError: if there is no such folder or no image in it; for a folder that cannot be read; and where links lead
        into a folder twice.
    """
    if not os.path.isdir(folder):
        raise DataError(f"{folder}: no such folder; expected a folder of images")
    paths: list[Path] = []
    others: list[Path] = []
    of_systems: list[Path] = []
    runs: list[Path] = []
    for path in sorted(files(folder, report=of_systems.append, of_run=runs.append)):
        (paths if path.suffix.lower() in SUFFIXES else others).append(path)
    if not paths:
        raise DataError(f"{folder}: no images; expected files that end in {', '.join(sorted(SUFFIXES))}")
    if of_systems and report is not None:
        names = ", ".join(sorted({path.name for path in of_systems}))
        report(f"left out {len(of_systems):,} folders that systems make ({names}); the first: {min(of_systems)}")
    if runs and report is not None:
        report(f"left out {len(runs):,} folders that hold a trained run; the first: {min(runs)}")
    if others and report is not None:
        endings = Counter(path.suffix.lower() or "no ending" for path in others).most_common(_MAX_ENDINGS)
        counted = ", ".join(f"{count:,} of {ending}" for ending, count in endings)
        report(
            f"left out {len(others):,} of {len(paths) + len(others):,} files, which are no images by their names "
            f"({counted}); the first: {others[0]}"
        )
    return paths


def is_left_out(name: str) -> bool:
    """Whether a file or folder of this name is left out: a hidden one, our cache, and what systems make."""
    return name.startswith(".") or name == CACHE_FOLDER or name.lower() in _OF_SYSTEMS


def is_run(names: Collection[str]) -> bool:
    """Whether these are the names in a folder that holds a run of ours, whose figures would be images."""
    begun = ".lock" in names and all(name.startswith(".") for name in names)
    kept = "config.json" in names and not {".lock", "results.json", "checkpoints"}.isdisjoint(names)
    return begun or (kept and not any(os.path.splitext(name)[1].lower() in SUFFIXES for name in names))


def files(
    root: Path,
    *,
    report: Callable[[Path], None] = lambda path: None,
    of_run: Callable[[Path], None] = lambda path: None,
) -> Iterator[Path]:
    """The files below `root`, in no order, without those that are left out.

    Args:
      root: a folder; never left out itself.
      report: is told systems' folders.
      of_run: is told the folders that hold a run.
    """
    entered: dict[tuple[int, int], Path] = {}
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            status = folder.stat()
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            raise DataError(f"{folder}: cannot be read ({reason(error)})") from error
        before = entered.setdefault((status.st_dev, status.st_ino), folder)
        if before in folder.parents:
            raise DataError(f"{folder}: a link to {before}, the folder that it is in, so that it never ends; remove it")
        if before != folder:
            raise DataError(f"{folder}: the same folder as {before}; remove one of the links")
        if folder != root and is_run({entry.name for entry in entries}):
            of_run(folder)
            continue
        for entry in entries:
            path = folder / entry.name
            if is_left_out(entry.name):
                if entry.name.lower() in _OF_SYSTEMS and os.path.isdir(path):
                    report(path)
                continue
            if os.path.isdir(path):
                waiting.append(path)
            else:
                yield path


def read_squashed(
    paths: Sequence[Path],
    image_shape: tuple[int, int, int],
    *,
    where: object,
    strict: bool = False,
    report: Report | None = None,
) -> tuple[np.ndarray, list[int]]:
    """Many images, each squashed to a shape: uint8 [n, h, w, c], and the rows that they belong to.

    Args:
      paths: image files.
      image_shape: (h, w, c).
      where: what messages call all of them.
      strict, report: see `read_images`.

    Raises:
      DataError: as `read_images`, and where the memory has no room for them.
    """
    require_memory(where, len(paths) * math.prod(image_shape), copies=2)

    def keep(_: int, image: Any) -> np.ndarray:
        return _squashed(image, image_shape)

    images, rows = read_images(paths, keep, strict=strict, report=report)
    return np.stack(images), rows


def read_squashed_into(
    images: np.ndarray,
    paths: Sequence[Path],
    image_shape: tuple[int, int, int],
    *,
    strict: bool = False,
    report: Report | None = None,
) -> list[int]:
    """The same, each image straight into its row of an array [n, h, w, c]; returns the rows that were read."""

    def keep(row: int, image: Any) -> None:
        images[row] = _squashed(image, image_shape)

    _, rows = read_images(paths, keep, strict=strict, report=report)
    return rows


def _squashed(image: Any, image_shape: tuple[int, int, int]) -> np.ndarray:
    height, width, channels = image_shape
    return to_channels(image_files.to_array(image, (height, width))[None], channels)[0]


def read_images(
    paths: Sequence[Path],
    keep: Callable[[int, Any], Any],
    *,
    shrink_to: tuple[int, int] | None = None,
    strict: bool = False,
    report: Report | None = None,
) -> tuple[list[Any], list[int]]:
    """Applies `keep(row, image)` to many images, on all cores; Pillow decodes and resizes without Python's lock.

    Args:
      paths: image files.
      keep: takes a PIL image in mode RGB or L, and returns what to keep of it, or raises DataError.
      shrink_to: (width, height) that is enough, see `image_files.read`.
      strict: raises for the first unreadable image instead of skipping it.
      report: is told, in one line each, how many were skipped and which was the first, and how many were changed.

    Returns:
      What `keep` returned, and the rows that it belongs to.

    Raises:
      DataError: if an image is unreadable and `strict`, or if none is readable.
    """

    def attempt(row: int) -> Any:
        try:
            with image_files.in_turn(paths[row]):
                picture = image_files.read(paths[row], shrink_to=shrink_to)
                return keep(row, picture.image), picture.changes
        except DataError as error:
            if strict:
                raise
            return error

    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as pool:
        results = list(pool.map(attempt, range(len(paths))))
    errors = [result for result in results if isinstance(result, DataError)]
    rows = [row for row, result in enumerate(results) if not isinstance(result, DataError)]
    if not rows:
        raise DataError(f"none of {len(paths):,} images is readable; the first: {errors[0]}")
    if report is not None:
        if errors:
            report(f"skipped {len(errors):,} of {len(paths):,} images; the first: {errors[0]}")
        for change, count in Counter(change for row in rows for change in results[row][1]).items():
            report(f"{count:,} of {len(paths):,} images: {change}")
    return [results[row][0] for row in rows], rows
