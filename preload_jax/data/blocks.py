"""Made images in blocks of bounded size, so that a set need not be in memory at once."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from preload_jax.data.readers.bounds import require_memory

# Numbers of the images that are made at once: 16 MB as float32.
NUMBERS = 2**22


def counts(shape: Sequence[int]) -> Iterator[int]:
    """How many images each block of a set of `shape` [n, h, w, c] has; one at least."""
    size = max(1, NUMBERS // max(1, math.prod(shape[1:])))
    yield from (min(size, shape[0] - start) for start in range(0, shape[0], size))


@dataclass(frozen=True)
class Made:
    """A made set of images, the same whenever it is iterated.

    Attributes:
      shape: (n, h, w, c).
      dtype: of its numbers.
      blocks: begins to make it anew, in blocks of `counts`.
    """

    shape: tuple[int, ...]
    dtype: Any
    blocks: Callable[[], Iterator[np.ndarray]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return self.blocks()

    def array(self) -> np.ndarray:
        """All of it, [n, h, w, c].

        Raises:
          DataError: where the memory has no room for it.
        """
        require_memory(f"{self.shape[0]:,} made images", math.prod(self.shape) * np.dtype(self.dtype).itemsize)
        return joined(self.blocks(), self.shape, self.dtype)


def joined(blocks: Iterator[np.ndarray], shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Blocks as one array of `shape`, without a second copy of all."""
    array, start = np.empty(shape, dtype), 0
    for block in blocks:
        array[start : start + len(block)] = block
        start += len(block)
    return array
