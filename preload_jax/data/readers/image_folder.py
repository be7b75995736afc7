"""Folders of images: found in a fixed order, decoded with Pillow, unreadable ones skipped and counted."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.errors import DataError, reason

SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"))
Report = Callable[[str], None]


def find_images(folder: Path) -> list[Path]:
    """The image files in `folder` and its sub-folders, sorted by path; hidden ones are left out."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; expected a folder of images")
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    )
    if not paths:
        raise DataError(f"{folder}: no images; expected files that end in {', '.join(sorted(SUFFIXES))}")
    return paths


def open_image(path: Path, *, shrink_to: tuple[int, int] | None = None) -> Any:
    """A decoded PIL image in mode RGB, or L if the file is grey.

    Args:
      path: image file.
      shrink_to: (width, height) that is enough; a JPEG is then decoded at the smallest size that is not below it.

    Raises:
      DataError: if Pillow cannot decode the whole file.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            if shrink_to is not None:
                image.draft(None, shrink_to)
            if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip to white.
                return Image.fromarray((np.asarray(image) // 256).astype(np.uint8))
            return image.convert("L" if image.mode in ("1", "L") else "RGB")
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise all kinds for damaged files.
        raise DataError(f"{path}: not a readable image ({reason(error)})") from error


def read_images(
    paths: Sequence[Path],
    decode: Callable[[int, Path], Any],
    *,
    strict: bool = False,
    report: Report | None = None,
) -> tuple[list[Any], list[int]]:
    """Applies `decode(row, path)` to many images, on all cores; Pillow decodes and resizes without Python's lock.

    Args:
      paths: image files.
      decode: returns what to keep of an image, or raises DataError.
      strict: raises for the first unreadable image instead of skipping it.
      report: is told, in one line, how many were skipped and which was the first.

    Returns:
      What `decode` returned, and the rows that it belongs to.

    Raises:
      DataError: if an image is unreadable and `strict`, or if none is readable.
    """
    import os
    from concurrent.futures import ThreadPoolExecutor

    def attempt(row: int) -> Any:
        try:
            return decode(row, paths[row])
        except DataError as error:
            if strict:
                raise
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(attempt, range(len(paths))))
    errors = [result for result in results if isinstance(result, DataError)]
    rows = [row for row, result in enumerate(results) if not isinstance(result, DataError)]
    if not rows:
        raise DataError(f"none of {len(paths):,} images is readable; the first: {errors[0]}")
    if errors and report is not None:
        report(f"skipped {len(errors):,} of {len(paths):,} images; the first: {errors[0]}")
    return [results[row] for row in rows], rows


def to_array(image: Any, size: tuple[int, int]) -> np.ndarray:
    """A PIL image as uint8 [h, w, c], squashed to `size` = (height, width) with antialiasing."""
    from PIL import Image

    height, width = size
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(height, width, -1)
