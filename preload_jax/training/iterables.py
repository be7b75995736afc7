"""Training data in batches that something yields: larger than memory, read again in each epoch.

The order is that of whatever yields the batches: it is read as it comes, and cut into batches of the training's size.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from preload_jax.devices import sharding
from preload_jax.errors import UserError
from preload_jax.training.data import Chunk, prefetched
from preload_jax.training.plan import Plan

Rows = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class Source:
    """Inputs of one kind, and their labels where they have any.

    Attributes:
        passes: (epoch, how often it was read before in this epoch) → one pass over all: inputs [m, …] and labels [m],
            or None, of any m.
        shape, dtype: of one input.
        name: what messages call them.
    """

    passes: Callable[[int, int], Iterator[Rows]]
    shape: tuple[int, ...]
    dtype: np.dtype
    name: str

    def batches(self, epoch: int, size: int) -> Iterator[Rows]:
        """Batches of a size without end: where a pass is over, the next begins.

        Raises:
            UserError: where a pass has nothing, as of an iterable that can be read only once.
        """
        held: list[Rows] = []
        count = 0
        for repeat in itertools.count():
            found = 0
            for inputs, labels in self.passes(epoch, repeat):
                found += len(inputs)
                held, count = [*held, (inputs, labels)], count + len(inputs)
                while count >= size:
                    batch, rest = _cut(held, size)
                    held, count = [rest], count - size
                    yield batch
            if not found:
                raise UserError(
                    f"the {self.name} yield nothing when they are read again; give something that can be read once an"
                    " epoch: a list, a data loader, or a function that returns the batches anew"
                )


def _cut(held: list[Rows], size: int) -> tuple[Rows, Rows]:
    """The first `size` of the rows, and the rest."""
    inputs, labels = held[0]
    if len(held) > 1:
        inputs = np.concatenate([x for x, _ in held])
        labels = None if labels is None else np.concatenate([y for _, y in held if y is not None])
    rest = None if labels is None else labels[size:]
    return (inputs[:size], None if labels is None else labels[:size]), (inputs[size:], rest)


@dataclass(frozen=True)
class Batches:
    """What `TrainingData` is, of sources that are read batch by batch.

    Attributes:
        images: with labels.
        outliers: or None.
        num_images: an epoch's.
    """

    images: Source
    outliers: Source | None
    num_images: int

    def sample(self, count: int) -> np.ndarray:
        """The first images of a pass, at most `count`."""
        found: list[np.ndarray] = []
        for inputs, _ in self.images.passes(0, 0):
            found.append(inputs[:count])
            count -= len(inputs)
            if count <= 0:
                break
        return np.concatenate(found)

    def stream(self, plan: Plan, *, start: int, mesh: Mesh | None, num_logits: int) -> Iterator[Chunk]:
        """The chunk of each compiled call from step `start` on; a thread reads ahead, and ends when this is closed.

        What an epoch's steps before `start` took is read and passed over.

        Raises:
            UserError: for labels that the head has no logit for.
            Exception: whatever reading raised.
        """
        yield from prefetched(self._calls(plan, start, mesh, num_logits))

    def _calls(self, plan: Plan, step: int, mesh: Mesh | None, num_logits: int) -> Iterator[Callable[[], Chunk]]:
        steps: Iterator[Any] = iter(())
        epoch = -1
        while taken := plan.steps_from(step):
            if step // plan.steps_per_epoch != epoch:
                epoch = step // plan.steps_per_epoch
                steps = self._epoch(epoch, plan.batch_size, passed=step % plan.steps_per_epoch)
            yield partial(_chunk, steps, taken, mesh, num_logits)
            step += taken

    def _epoch(self, epoch: int, size: int, *, passed: int) -> Iterator[tuple[Rows, Rows | None]]:
        images = self.images.batches(epoch, size)
        outliers = itertools.repeat(None) if self.outliers is None else self.outliers.batches(epoch, size)
        return itertools.islice(zip(images, outliers, strict=False), passed, None)


def _chunk(steps: Iterator[tuple[Rows, Rows | None]], taken: int, mesh: Mesh | None, num_logits: int) -> Chunk:
    """So many steps' batches, on the devices."""
    images, outliers = zip(*itertools.islice(steps, taken), strict=True)
    labels = np.stack([y for _, y in images])
    if labels.min() < 0 or labels.max() >= num_logits:
        raise UserError(
            f"labels run from {labels.min()} to {labels.max()}; expected 0 to {num_logits - 1}, for a head of"
            f" {num_logits} logits"
        )
    others = None if outliers[0] is None else _put(np.stack([x for x, _ in outliers]), mesh)
    chunk = Chunk(_put(np.stack([x for x, _ in images]), mesh), _put(labels.astype(np.int32), mesh), others)
    # The copy is part of this thread's work, and so are its errors.
    return jax.block_until_ready(chunk)


def _put(array: np.ndarray, mesh: Mesh | None) -> jax.Array:
    if mesh is None:
        return jax.device_put(array)
    spread = NamedSharding(mesh, PartitionSpec(None, sharding.AXIS))
    return jax.make_array_from_callback(array.shape, spread, lambda index: array[index])


def shuffled(name: str, images: np.ndarray, labels: np.ndarray | None, *, seed: int) -> Source:
    """An array that goes with an iterable: in an order of its own in each pass."""

    def passes(epoch: int, repeat: int) -> Iterator[Rows]:
        order = np.random.default_rng([seed, epoch, repeat]).permutation(len(images))
        for start in range(0, len(order), _ROWS):
            rows = order[start : start + _ROWS]
            yield images[rows], None if labels is None else labels[rows]

    return Source(passes, images.shape[1:], images.dtype, name)


# Rows of an array that are gathered at once.
_ROWS = 256
