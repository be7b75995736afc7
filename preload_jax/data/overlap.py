"""Images that occur in two sets, such as outliers and a test set: the same bytes, or the same pixels."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from preload_jax.data import names
from preload_jax.data.images import to_channels
from preload_jax.data.outliers import MADE
from preload_jax.data.readers import image_files, image_folder, image_list
from preload_jax.data.repeated import EXAMPLES, digest_of, digests, size_of
from preload_jax.data.specs import NOISE_SETS
from preload_jax.errors import DataError

_MADE = (*MADE, *NOISE_SETS)


@dataclass(frozen=True)
class Overlap:
    """What was found.

    Attributes:
      count: test images that are among the outliers, or in an OOD set among the in-domain images.
      total: test images.
      examples: the first of them, in words.
    """

    count: int
    total: int
    examples: tuple[str, ...]

    def in_words(self, tested: str, outliers: str) -> str:
        """One line with a remedy; nothing is dropped."""
        shown = "; ".join(self.examples) + ("; …" if self.count > len(self.examples) else "")
        return (
            f"{self.count:,} of {self.total:,} images of {tested} are among the outliers {outliers}, too: {shown}."
            " They are kept in both, and a network that was trained on them is not tested by them: take them out of"
            " one, or choose other --outliers"
        )

    def of_in_domain(self, tested: str, in_domain: str) -> str:
        """The same of an OOD set that holds in-domain images."""
        shown = "; ".join(self.examples) + ("; …" if self.count > len(self.examples) else "")
        return (
            f"{self.count:,} of {self.total:,} images of the OOD set {tested} are in-domain images of {in_domain}, too:"
            f" {shown}. They are counted as OOD: take them out of one, or choose another --ood"
        )


def between(
    outliers: str, tested: str, *, outlier_digests: Callable[[], Sequence[bytes]], test_images: Callable[[], np.ndarray]
) -> Overlap | None:
    """Which images of a test set are among the outliers; None where both cannot share any.

    Files are compared by their bytes. Otherwise pixels are compared, as both are in the shape of the test images. Of
    outliers in files those are read that have the test images' size: crops of others are other images.

    Args:
      outliers, tested: the sets' names.
      outlier_digests: gives the `digests` of the outliers, in the shape of the test images; called where they are no
        files.
      test_images: gives the test images, uint8 [n, h, w, c]; called where not both are files.
    """
    if outliers in _MADE or tested in _MADE:
        return None
    ours, theirs = files(outliers), files(tested)
    if ours is not None and theirs is not None:
        return of_files(ours, theirs)
    found = test_images()
    if found.dtype != np.uint8:
        return None
    if ours is None:
        return of_images(outlier_digests(), found, name=lambda number: f"outlier {number}")
    same = _of_size(ours, (found.shape[2], found.shape[1]))
    decoded = (key for image in _decoded(same, found.shape[-1]) for key in digests(image))
    return of_images(decoded, found, name=lambda number: str(same[number]))


def files(name: str) -> list[Path] | None:
    """The image files that a set's name means; None for a set that is no folder and no list."""
    if names.is_folder(name):
        return image_folder.find_images(names.path_of(name))
    return image_list.find_images(names.path_of(name))[0] if names.is_list(name) else None


def of_files(outliers: Sequence[Path], tested: Sequence[Path]) -> Overlap:
    """Files of the same bytes; only those are read whose size occurs in both sets."""
    sizes = {size_of(path) for path in outliers} & {size_of(path) for path in tested} - {-1}
    there = {digest_of(path): path for path in reversed(outliers) if size_of(path) in sizes}
    shared = [(path, there[key]) for path in tested if size_of(path) in sizes and (key := digest_of(path)) in there]
    return Overlap(len(shared), len(tested), tuple(f"{a} is {b}" for a, b in shared[:EXAMPLES]))


def of_images(outliers: Iterable[bytes], tested: np.ndarray, *, name: Callable[[int], str]) -> Overlap:
    """Images of the same pixels.

    Args:
      outliers: their `digests`.
      tested: uint8 [n, h, w, c].
      name: what the outlier of a number is called.
    """
    rows: dict[bytes, list[int]] = {}
    for row, key in enumerate(digests(tested)):
        rows.setdefault(key, []).append(row)
    found: dict[int, int] = {}
    for number, key in enumerate(outliers):
        for row in rows.get(key, ()):
            found.setdefault(row, number)
    shown = sorted(found.items())[:EXAMPLES]
    return Overlap(len(found), len(tested), tuple(f"test image {row} is {name(number)}" for row, number in shown))


def _of_size(paths: Sequence[Path], size: tuple[int, int]) -> list[Path]:
    """The files of a (width, height) by their headers."""
    found = []
    for path in paths:
        try:
            if image_files.describe(path)[0] == size:
                found.append(path)
        except DataError:  # Skipped, or an error, when the images are read.
            continue
    return found


def _decoded(paths: Sequence[Path], channels: int) -> Iterator[np.ndarray]:
    """One image after the other, [1, h, w, c]; of an unreadable one nothing of any size."""
    for path in paths:
        try:
            image = image_files.read(path).image
            yield to_channels(image_files.to_array(image, (image.height, image.width))[None], channels)
        except DataError:
            yield np.zeros((1, 0), np.uint8)
