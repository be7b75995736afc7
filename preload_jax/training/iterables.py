"""Training data in batches that something yields: larger than memory, read again in each epoch.

The order is that of whatever yields the batches: it is read as it comes, and cut into batches of the training's size.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from preload_jax.devices import sharding
from preload_jax.errors import UserError
from preload_jax.training.data import Chunk, prefetched
from preload_jax.training.passes import Parts, Pass, Rows
from preload_jax.training.plan import Plan

# What is said of them.
READ_ONCE = (
    "yield nothing when they are read again; give something that can be read once an epoch: a list, a data loader, or a"
    " function that returns the batches anew"
)


@dataclass(frozen=True)
class _Held:
    """Rows that were read and not yet taken.

    Attributes:
        rows: themselves.
        place: where the batch that they are of can be read again, and how many of its rows come before them; None where
            that is not known.
    """

    rows: Rows
    place: dict[str, Any] | None

    def __len__(self) -> int:
        return len(self.rows[0])

    def after(self, count: int) -> "_Held":
        inputs, labels = self.rows
        place = None if self.place is None else {**self.place, "skip": self.place["skip"] + count}
        return _Held((inputs[count:], None if labels is None else labels[count:]), place)


@dataclass(frozen=True)
class Source:
    """Inputs of one kind, and their labels where they have any.

    Attributes:
        passes: (epoch, how often it was read before in this epoch) → one pass over all, of batches of any size.
        shape, dtype: of one input.
        name: what messages call them.
    """

    passes: Callable[[int, int], Pass]
    shape: tuple[int, ...]
    dtype: np.dtype
    name: str

    def batches(
        self, epoch: int, size: int, *, passed: int = 0, place: dict[str, Any] | None = None
    ) -> Iterator[tuple[Rows, dict[str, Any] | None]]:
        """Batches of a size without end, each with the place after it: where a pass is over, the next begins.

        Args:
            epoch: whose.
            size: of each batch.
            passed: how many batches of the epoch are left out: read and passed over, unless their end is known.
            place: of their end, as it was yielded with the last of them.

        Raises:
            UserError: where a pass has nothing, as of an iterable that can be read only once.
        """
        found = self._from_place(epoch, size, place) if place is not None else self._all(epoch, size)
        return found if place is not None else itertools.islice(found, passed, None)

    def _from_place(self, epoch: int, size: int, place: dict[str, Any]) -> Iterator[tuple[Rows, Any]]:
        reading = self.passes(epoch, place["repeat"])
        reading.go_to(place["position"])
        yield from self._all(epoch, size, reading=reading, repeat=place["repeat"], skip=place["skip"])

    def _all(
        self, epoch: int, size: int, *, reading: Pass | None = None, repeat: int = 0, skip: int = 0
    ) -> Iterator[tuple[Rows, Any]]:
        held: list[_Held] = []
        for again in itertools.count(repeat):
            # A pass that goes on may be at its end.
            found = reading is not None
            reading = reading or self.passes(epoch, again)
            while (read := _read(reading, again)) is not None:
                found = True
                held.append(read.after(skip))
                skip = 0
                while sum(map(len, held)) >= size:
                    batch, held = _cut(held, size)
                    yield batch, held[0].place if held else _place(reading, again)
            reading = None
            if not found:
                raise UserError(f"the {self.name} {READ_ONCE}")


def _place(reading: Pass, repeat: int) -> dict[str, Any] | None:
    position = reading.position()
    return None if position is None else {"repeat": repeat, "position": position, "skip": 0}


def _read(reading: Pass, repeat: int) -> _Held | None:
    place = _place(reading, repeat)
    rows = next(reading, None)
    return None if rows is None else _Held(rows, place)


def _cut(held: list[_Held], size: int) -> tuple[Rows, list[_Held]]:
    """The first `size` of the rows, and the rest."""
    taken: list[Rows] = []
    while size:
        first = held.pop(0)
        count = min(size, len(first))
        inputs, labels = first.rows
        taken.append((inputs[:count], None if labels is None else labels[:count]))
        held = [first.after(count), *held] if count < len(first) else held
        size -= count
    if len(taken) == 1:
        return taken[0], held
    labels = None if taken[0][1] is None else np.concatenate([y for _, y in taken if y is not None])
    return (np.concatenate([x for x, _ in taken]), labels), held


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

    def stream(
        self, plan: Plan, *, start: int, mesh: Mesh | None, num_logits: int, place: Any = None
    ) -> Iterator[tuple[Chunk, Any]]:
        """The chunk of each compiled call from step `start` on, and the place after it, which JSON can keep.

        A thread reads ahead, and ends when this is closed.  What an epoch's steps before `start` took is passed over
        without being read where `place` says where that is: what came with the last chunk before.

        Raises:
            UserError: for labels that the head has no logit for.
            Exception: whatever reading raised.
        """
        yield from prefetched(self._calls(plan, start, mesh, num_logits, place or [None, None]))

    def _calls(
        self, plan: Plan, step: int, mesh: Mesh | None, num_logits: int, places: Sequence[Any]
    ) -> Iterator[Callable[[], tuple[Chunk, Any]]]:
        steps: Iterator[Any] = iter(())
        epoch = -1
        while taken := plan.steps_from(step):
            if step // plan.steps_per_epoch != epoch:
                epoch = step // plan.steps_per_epoch
                passed = step % plan.steps_per_epoch
                steps = self._epoch(epoch, plan.batch_size, passed, places if passed else (None, None))
            yield partial(_chunk, steps, taken, mesh, num_logits)
            step += taken

    def _epoch(self, epoch: int, size: int, passed: int, places: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        images = self.images.batches(epoch, size, passed=passed, place=places[0])
        outliers: Iterator[Any] = itertools.repeat((None, None))
        if self.outliers is not None:
            outliers = self.outliers.batches(epoch, size, passed=passed, place=places[1])
        return zip(images, outliers, strict=False)


def _chunk(steps: Iterator[tuple[Any, Any]], taken: int, mesh: Mesh | None, num_logits: int) -> tuple[Chunk, Any]:
    """So many steps' batches, on the devices, and the places after them, of images and of outliers."""
    both = list(itertools.islice(steps, taken))
    images, outliers = [x for (x, _), _ in both], [x for _, (x, _) in both]
    places = [both[-1][0][1], both[-1][1][1]]
    labels = np.stack([y for _, y in images])
    if labels.min() < 0 or labels.max() >= num_logits:
        raise UserError(
            f"labels run from {labels.min()} to {labels.max()}; expected 0 to {num_logits - 1}, for a head of"
            f" {num_logits} logits"
        )
    others = None if outliers[0] is None else _put(np.stack([x for x, _ in outliers]), mesh)
    chunk = Chunk(_put(np.stack([x for x, _ in images]), mesh), _put(labels.astype(np.int32), mesh), others)
    # The copy is part of this thread's work, and so are its errors.
    return jax.block_until_ready(chunk), None if places == [None, None] else places


def _put(array: np.ndarray, mesh: Mesh | None) -> jax.Array:
    if mesh is None:
        return jax.device_put(array)
    spread = NamedSharding(mesh, PartitionSpec(None, sharding.AXIS))
    return jax.make_array_from_callback(array.shape, spread, lambda index: array[index])


def shuffled(name: str, images: np.ndarray, labels: np.ndarray | None, *, seed: int) -> Source:
    """An array that goes with an iterable: in an order of its own in each pass."""

    def passes(epoch: int, repeat: int) -> Pass:
        order = np.random.default_rng([seed, epoch, repeat]).permutation(len(images))
        return Pass(Parts(order), lambda _, rows: (images[rows], None if labels is None else labels[rows]))

    return Source(passes, images.shape[1:], images.dtype, name)
