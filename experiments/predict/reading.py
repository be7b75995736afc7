"""The images that `predict` is asked about, and those of them that cannot be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preload_jax.data.readers import single_images
from preload_jax.data.readers.single_images import SingleImage
from preload_jax.errors import DataError


@dataclass(frozen=True)
class Unreadable:
    """A file that gives no image.

    Attributes:
        name: of the file.
        error: why, in one line.
    """

    name: str
    error: str


def read(files: Sequence[Path], image_shape: tuple[int, int, int]) -> list[SingleImage | Unreadable]:
    """The images of each file in their order; what cannot be read does not keep the others from an answer.

    Raises:
        DataError, OSError: the first file's, where none can be read.
    """
    if not files:
        return list(single_images.read(files, image_shape))
    found: list[SingleImage | Unreadable] = []
    first: Exception | None = None
    for path in files:
        try:
            found += single_images.read([path], image_shape)
        except (DataError, OSError) as problem:
            first = first or problem
            found.append(Unreadable(str(path), " ".join(str(problem).split())))
    if first is not None and all(isinstance(each, Unreadable) for each in found):
        raise first
    return found


def in_order(found: Sequence[SingleImage | Unreadable], rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of the images that were read, and between them, as `watch` has it, those of the others."""
    answers = iter(rows)
    return [
        {"image": each.name, "error": each.error} if isinstance(each, Unreadable) else next(answers) for each in found
    ]
