"""Images of one data set that occur in it more than once: in two of its splits, or as two classes."""

import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from preload_jax.data.split_names import SPLITS
from preload_jax.data.splits import Arrays

EXAMPLES = 3
_ROWS, _BYTES = 256, 1 << 20  # of what is looked at, at once
# Of splits that should share no image, the one whose images are named first.
_APART = (("test", "train"), ("validation", "train"), ("validation", "test"))
_IN_WORDS = {"train": "training", "validation": "validation", "test": "test"}


def in_files(paths: Sequence[Path], labels: np.ndarray, splits: np.ndarray, *, class_names: Sequence[str]) -> list[str]:
    """What there is to say of files of the same bytes, in a line each; only those are read whose size another has.

    Args:
      paths: of the image files.
      labels, splits: the class of each, and its index into `SPLITS`.
      class_names: by label.
    """
    by_size: dict[int, list[int]] = defaultdict(list)
    for row, path in enumerate(paths):
        by_size[size_of(path)].append(row)
    # What cannot be read, and what has no content, is no image; reading the set says so.
    for no_image in (-1, 0):
        by_size.pop(no_image, None)
    by_digest: dict[bytes, list[int]] = defaultdict(list)
    for rows in by_size.values():
        for row in rows if len(rows) > 1 else ():
            by_digest[digest_of(paths[row])].append(row)
    return _in_words(by_digest.values(), labels, splits, class_names, name=lambda row: str(paths[row]))


def in_arrays(parts: Mapping[str, Arrays], *, class_names: Sequence[str]) -> list[str]:
    """The same of arrays by split: images of the same pixels."""
    rows_of: list[tuple[str, int]] = []
    by_digest: dict[bytes, list[int]] = defaultdict(list)
    for split, part in parts.items():
        for number, key in enumerate(digests(part.images)):
            by_digest[key].append(len(rows_of))
            rows_of.append((split, number))

    def name(row: int) -> str:
        return f"{_IN_WORDS[rows_of[row][0]]} image {rows_of[row][1]}"

    labels = np.concatenate([part.labels for part in parts.values()])
    splits = np.array([SPLITS.index(split) for split, _ in rows_of])
    return _in_words(by_digest.values(), labels, splits, class_names, name=name)


def digests(images: np.ndarray) -> Iterator[bytes]:
    """Of each image's pixels; read in blocks, since the array may be memory-mapped."""
    for start in range(0, len(images), _ROWS):
        for image in np.ascontiguousarray(images[start : start + _ROWS]):
            yield hashlib.blake2b(image.tobytes(), digest_size=16).digest()


def size_of(path: Path) -> int:
    """The size of a file; -1 for what is none, such as a link to nothing: reading the set says so."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def digest_of(path: Path) -> bytes:
    """Of a file's bytes."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BYTES):
            digest.update(block)
    return digest.digest()


def _in_words(
    groups: Iterable[list[int]],
    labels: np.ndarray,
    splits: np.ndarray,
    class_names: Sequence[str],
    *,
    name: Callable[[int], str],
) -> list[str]:
    """A line with a remedy for each kind of repetition among groups of equal images; nothing is dropped."""
    alike = sorted((rows for rows in groups if len(rows) > 1), key=lambda rows: rows[0])
    said = []
    for tested, other in _APART:
        number, of = SPLITS.index(tested), SPLITS.index(other)
        found = [
            (row, there[0])
            for rows in alike
            if (there := [row for row in rows if splits[row] == of])
            for row in rows
            if splits[row] == number
        ]
        if found:
            said.append(
                f"{len(found):,} of {np.count_nonzero(splits == number):,} {_IN_WORDS[tested]} images are"
                f" {_IN_WORDS[other]} images, too: {_shown(found, name)}. They are kept in both, and numbers on them"
                " say nothing about unseen images: take them out of one"
            )
    twice = [(row, rows[0]) for rows in alike for row in rows if labels[row] != labels[rows[0]]]
    if twice:

        def with_class(row: int) -> str:
            return f"{name(row)} (class {class_names[labels[row]]!r})"

        said.append(
            f"{len(twice):,} of {len(labels):,} images are in two classes: {_shown(twice, with_class)}. They"
            " are kept in both: take them out of the wrong one"
        )
    # One's own splits are told of above.
    again = [] if splits.any() else [(row, rows[0]) for rows in alike for row in rows[1:]]
    if again:
        said.append(
            f"{len(again):,} of {len(labels):,} images repeat another: {_shown(again, name)}. The split that is made"
            " may train on one and test the other: take the copies out"
        )
    return said


def _shown(found: Sequence[tuple[int, int]], name: Callable[[int], str]) -> str:
    shown = "; ".join(f"{name(a)} is {name(b)}" for a, b in found[:EXAMPLES])
    return shown + ("; …" if len(found) > EXAMPLES else "")
