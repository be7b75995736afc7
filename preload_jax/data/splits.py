"""Images with labels, and how a data set is divided into training, validation and test images."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from preload_jax.data import stored
from preload_jax.errors import DataError
from preload_jax.integers import require_seed

Validation = Literal["test", "train", "none"]

Rows = Literal["ours", "released_code"]

# Our own choice, fixed once.
_SPLIT_SEED = 20240502
_RELEASED_SEED = 42
# Images of which one is held out.
_FEWEST = 5


@dataclass(frozen=True)
class Arrays:
    """Labelled images: `images` uint8 [n, h, w, c], in memory or on disk (see `stored`), `labels` int32 [n]."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: np.ndarray) -> "Arrays":
        """The images and labels at `rows` (indices [m]); images on disk stay there."""
        images = self.images
        some = stored.taken(images, rows) if isinstance(images, np.memmap) else images[rows]
        return Arrays(images=some, labels=self.labels[rows])


@dataclass(frozen=True)
class Splits:
    """A data set ready for a run: three sets of images, uint8 [n, h, w, c], that share no image.

    Attributes:
      train, validation, test: the sets.
      own_validation: whether the data set brought its validation images along; else they were taken out of a set.
    """

    train: Arrays
    validation: Arrays
    test: Arrays
    own_validation: bool = False


def hold_out(
    train: Arrays,
    test: Arrays,
    *,
    size: int,
    validation: Validation = "test",
    rows: Rows = "ours",
    given: Arrays | None = None,
) -> Splits:
    """Takes `size` validation images out of the test or the training images, always the same ones.

    Args:
      train: labelled training images.
      test: labelled test images.
      size: number of validation images; of a small set, a fifth at most.
      validation: "test" is the paper's protocol; "train" leaves the test images whole, which is what a result that
        claims to be about unseen data needs; "none" trains on all training images and tests all test images.
      rows: "ours" or "released_code", the rows that the authors' code draws with its seed of 42.
      given: validation images that the data set brings along; then none are taken out of the others.

    Raises:
      DataError: for another `validation` or `rows`, or when there are too few images to take any from.
    """
    if validation not in ("test", "train", "none"):
        raise DataError(f"unknown validation {validation!r}; expected 'test' (the paper's protocol), 'train' or 'none'")
    if rows not in ("ours", "released_code"):
        raise DataError(f"unknown rows {rows!r}; expected 'ours' or 'released_code'")
    if given is not None:
        return Splits(train=train, validation=given, test=test, own_validation=True)
    if validation == "none":
        return Splits(train=train, validation=test.take(np.arange(0)), test=test)
    source = test if validation == "test" else train
    size = held_out_size(len(source), size)
    if size == 0:
        other = " 'train' (out of the training images) or" if validation == "test" and len(train) >= _FEWEST else ""
        raise DataError(
            f"cannot hold validation images out of {len(source)} {validation} images; expected at least {_FEWEST}: give"
            f" more {validation} images, or choose validation{other} 'none'"
        )
    order = (
        np.random.default_rng(_SPLIT_SEED).permutation(len(source))
        if rows == "ours"
        else torch_permutation(len(source), seed=_RELEASED_SEED)
    )
    held_out, rest = source.take(np.sort(order[:size])), source.take(np.sort(order[size:]))
    if validation == "test":
        return Splits(train=train, validation=held_out, test=rest)
    return Splits(train=rest, validation=held_out, test=test)


def held_out_size(num_images: int, size: int) -> int:
    """How many of so many images are held out for validation where `size` are asked for: a fifth at most."""
    return min(size, num_images // _FEWEST)


def torch_permutation(n: int, *, seed: int) -> np.ndarray:
    """What `torch.randperm(n)` gives on a CPU after `manual_seed(seed)`, which is what `random_split` divides by.

    The entry at i is exchanged with the one at i + (the next 32-bit draw mod n − i), for i = 0 … n − 2; the draws are
    those of MT19937, the generator of NumPy's `RandomState`, which has the same start for a seed below 2³².

    Source: `randperm_cpu` in PyTorch's aten/src/ATen/native/TensorFactories.cpp.
    """
    draws = np.frombuffer(np.random.RandomState(require_seed(seed)).bytes(4 * max(0, n - 1)), "<u4").astype(np.int64)
    order = np.arange(n)
    for i, step in enumerate(draws % np.arange(n, 1, -1)):
        order[[i, i + step]] = order[[i + step, i]]
    return order


def stratified_split(labels: np.ndarray, *, test_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Row indices of a fixed split (train, test) in which every class has its share (± 1) of the test images."""
    rng = np.random.default_rng(_SPLIT_SEED)
    # Shuffle within each class, give the rows of class c the positions (i + ½)/n_c, and cut where they are sorted.
    position = np.empty(len(labels))
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        position[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    order = np.argsort(position, kind="stable")
    return np.sort(order[test_size:]), np.sort(order[:test_size])
