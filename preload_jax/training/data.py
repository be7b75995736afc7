"""Training images at rest: on the device, or in host memory and streamed from there, in the same order.

`TrainingData` of JAX arrays is indexed inside the compiled call.  Of NumPy arrays, also memory-mapped ones, a thread
gathers the images of the calls to come, and copies them to the device while it computes.
"""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Num

from preload_jax.devices import compilation, sharding
from preload_jax.errors import UserError, unknown
from preload_jax.rows import spread
from preload_jax.training.plan import Plan

T = TypeVar("T")
Placement = Literal["device", "host", "auto"]
PLACEMENTS = ("device", "host", "auto")

# Bytes of images that one compiled call takes from host memory.  At most three times as much is on the device: what is
# computed on, and the next `_AHEAD`.
_CHUNK_BYTES = 64 * 2**20
_AHEAD = 2
CALLS_ON_DEVICE = 1 + _AHEAD


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainingData:
    """Inputs [n, …], labels [n], outliers [m, …] or None: all JAX arrays, or all NumPy arrays.

    Inputs are uint8 images [n, h, w, c], or numbers of any rank and type that the network takes as they are.
    Instead of both kinds of inputs their features, float32 [n, 1, 1, d], where `frozen` has computed them.
    """

    images: Num[Any, "n ..."]
    labels: Int[Any, "n"]
    outliers: Num[Any, "m ..."] | None

    @property
    def on_host(self) -> bool:
        return isinstance(self.images, np.ndarray)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chunk:
    """The images of one compiled call in their order, on the device: of each array a row a step."""

    images: Num[Array, "s n ..."]
    labels: Int[Array, "s n"]
    outliers: Num[Array, "s n ..."] | None


def place(data: TrainingData, placement: Placement = "auto", *, mesh: Mesh | None = None) -> TrainingData:
    """Host arrays where training shall take them from.

    Args:
        data: of NumPy arrays.
        placement: "device" copies them to each device; "host" leaves them; "auto" copies them unless they would take
            more than half a device's memory, or that is the host's.
        mesh: of the devices.

    Raises:
        UserError: for another placement.
    """
    check_placement(placement)
    if placement == "host" or (placement == "auto" and not _fits(data)):
        return data
    outliers = None if data.outliers is None else sharding.put(data.outliers, mesh)
    return TrainingData(sharding.put(data.images, mesh), sharding.put(data.labels, mesh), outliers)


def some_of(array: Num[Any, "n ..."], count: int) -> Num[np.ndarray, "m ..."]:
    """Some rows of an array of `TrainingData`, at most `count`, spread over all: classes may lie one after another."""
    rows = spread(len(array), count)
    # Each device has a whole copy; of several processes each looks at its own.
    return np.asarray(array[rows] if isinstance(array, np.ndarray) else array.addressable_data(0)[rows])


def check_placement(placement: str) -> None:
    """Raises a UserError for an unknown placement."""
    if placement not in PLACEMENTS:
        raise UserError(unknown("data placement", placement, PLACEMENTS))


def _fits(data: TrainingData) -> bool:
    arrays = [array for array in (data.images, data.labels, data.outliers) if array is not None]
    limit = device_memory()
    if limit is None:
        # A CPU: a copy would gain nothing, and an epoch's order, which is found once for streamed images, would be
        # found again in each compiled call.
        return False
    # Of all its memory, not of what is free: a run that goes on has to decide as it did before.
    return 2 * sum(array.nbytes for array in arrays) <= limit


def device_memory() -> int | None:
    """Bytes of a device; None for a CPU, whose memory is the host's."""
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")


def steps_per_chunk(batch_size: int, *shapes: tuple[int, ...]) -> int:
    """How many steps a compiled call can take from host memory, inputs having these shapes in bytes.

    Such as (h, w, c) for uint8, and (d, 4) for d numbers of four bytes.
    """
    return max(1, _CHUNK_BYTES // (batch_size * sum(map(math.prod, shapes))))


def epoch_order(key: Array, size: int, needed: int) -> Int[Array, "needed"]:
    """The first `needed` entries of a random order of 0 … size − 1, going round again where there are too few."""
    keys = jax.random.split(key, math.ceil(needed / size))
    return jax.vmap(lambda k: jax.random.permutation(k, size))(keys).reshape(-1)[:needed]


def epoch_orders(
    key: Array, epoch: int | Array, num_images: int, num_outliers: int | None, needed: int
) -> tuple[Int[Array, "needed"], Int[Array, "needed"] | None]:
    """Which images and outliers an epoch's steps take, one batch after the other; `key` is of the stage's orders."""
    image_key, outlier_key = (jax.random.fold_in(k, epoch) for k in key)
    order = epoch_order(image_key, num_images, needed)
    return order, None if num_outliers is None else epoch_order(outlier_key, num_outliers, needed)


_host_orders = compilation.jit(epoch_orders, rare=True, static_argnames=("num_images", "num_outliers", "needed"))


def stream(
    data: TrainingData, plan: Plan, *, start: int, key: Array, mesh: Mesh | None
) -> Generator[Chunk, None, None]:
    """The chunk of each compiled call from step `start` on; close it to end its thread.

    Args:
        data: of NumPy arrays.
        plan: its calls.
        start: a step at which a call starts.
        key: of the stage's orders.
        mesh: the devices that share each batch; a process reads its own devices' shares only.

    Raises:
        Exception: whatever reading or copying raised in the thread.
    """
    yield from prefetched(partial(_gather, data, *rows, mesh) for rows in _calls(data, plan, start, key))


def prefetched(calls: Iterator[Callable[[], T]]) -> Generator[T, None, None]:
    """What the functions return, in their order: one thread is `_AHEAD` of them ahead; close it to end the thread."""
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="training-data") as thread:
        try:
            while True:
                while len(waiting) < _AHEAD and (call := next(calls, None)) is not None:
                    waiting.append(thread.submit(call))
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            # What has not begun is dropped; leaving the pool waits for the one that has.
            for future in waiting:
                future.cancel()


def _calls(
    data: TrainingData, plan: Plan, step: int, key: Array
) -> Iterator[tuple[Int[np.ndarray, "s n"], Int[np.ndarray, "s n"] | None]]:
    """The rows of images and outliers of each call."""
    num_outliers = None if data.outliers is None else len(data.outliers)
    epoch, orders = -1, (np.empty(0), None)
    while taken := plan.steps_from(step):
        if step // plan.steps_per_epoch != epoch:
            epoch = step // plan.steps_per_epoch
            needed = plan.steps_per_epoch * plan.batch_size
            found = _host_orders(key, epoch, num_images=len(data.images), num_outliers=num_outliers, needed=needed)
            orders = jax.tree.map(lambda order: np.asarray(order).reshape(-1, plan.batch_size), found)
        first = step % plan.steps_per_epoch
        yield jax.tree.map(lambda order, first=first, taken=taken: order[first : first + taken], orders)
        step += taken


def _gather(
    data: TrainingData, rows: Int[np.ndarray, "s n"], outlier_rows: Int[np.ndarray, "s n"] | None, mesh: Mesh | None
) -> Chunk:
    outliers = None if outlier_rows is None else _take(data.outliers, outlier_rows, mesh)
    chunk = Chunk(_take(data.images, rows, mesh), _take(data.labels, rows, mesh), outliers)
    # The copy is part of this thread's work, and so are its errors.
    return jax.block_until_ready(chunk)


def _take(array: Any, rows: Int[np.ndarray, "s n"], mesh: Mesh | None) -> Array:
    if mesh is None:
        return jax.device_put(array[rows])

    def share(index: Any) -> np.ndarray:
        return array[rows[index[:2]]]

    spread = NamedSharding(mesh, PartitionSpec(None, sharding.AXIS))
    return jax.make_array_from_callback((*rows.shape, *array.shape[1:]), spread, share)
