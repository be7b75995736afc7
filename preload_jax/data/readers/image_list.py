"""Lists of images in OpenOOD's form: a line an image, its path and its label with a blank between them."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from preload_jax.errors import DataError, reason, what_instead

# What OpenOOD calls the folders of images beside that of its lists.
_ROOTS = (".", "images_classic", "images_largescale")
_MAX_BYTES = 1 << 28  # ImageNet-1k's training list has 60 MB.


def find_images(path: Path, root: Path | None = None) -> tuple[list[Path], np.ndarray]:
    """The images of a list, in its order, and their labels; none is opened.

    Args:
      path: of the list: lines "PATH LABEL", with PATH relative to the root and an integer LABEL, -1 for OOD images.
      root: of the images.  None: the first of the list's folder and those above it, and of `images_classic` and
        `images_largescale` in each, that has the first image.

    Returns:
      (paths, labels int32 [n]).

    Raises:
      DataError: for a list that is missing, empty or of another form, or whose first image is nowhere.
    """
    if not os.path.isfile(path):
        raise DataError(f"{path}: {what_instead(path)}; expected a list of images, PATH LABEL in each line")
    if os.path.getsize(path) > _MAX_BYTES:
        raise DataError(f"{path}: {os.path.getsize(path):,} bytes; a list of images has at most {_MAX_BYTES:,}")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a list of images ({reason(error)}); expected PATH LABEL in each line") from None
    entries = [_entry(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not entries:
        raise DataError(f"{path}: an empty list; expected PATH LABEL in each line")
    first = entries[0][0]
    places = [root] if root is not None else list(_places(path))
    found = next((place for place in places if os.path.exists(place / first)), None)
    if found is None:
        raise DataError(
            f"{path}: its first image, {first}, is not in {places[0]}"
            + ("" if root is not None else " or a folder above, nor in images_classic or images_largescale there")
            + "; put the images there"
        )
    return [found / name for name, _ in entries], np.array([label for _, label in entries], np.int32)


def _entry(path: Path, number: int, line: str) -> tuple[str, int]:
    name, _, label = line.strip().rpartition(" ")
    try:
        value = int(label)
    except ValueError:
        value = None
    if value is None or not name.strip() or "\0" in name or not -(2**31) <= value < 2**31:
        raise DataError(
            f"{path}, line {number}: {line.strip()[:80]!r}; expected PATH LABEL, such as mnist/test/1.png -1"
        )
    return name.strip(), value


def _places(path: Path) -> Iterator[Path]:
    """Where the images may be, nearest first."""
    for folder in path.absolute().parents:
        yield from (folder / name for name in _ROOTS)
