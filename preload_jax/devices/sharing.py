"""Passes over many inputs that several processes share: each computes its part of the batches, all have all outputs.

A process computes whole batches, with its own devices, so that each output has the bits that one process with these
devices makes.  Every process goes through the same batches; a mesh that spans several processes says that they do.
"""

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from preload_jax.devices import processes
from preload_jax.errors import UserError, reason

T = TypeVar("T")
Tree = TypeVar("Tree")

# Of an array, those that are compared between processes.
_COMPARED = 64


def is_shared(mesh: Mesh | None) -> bool:
    """Whether devices of several processes are in a mesh."""
    return mesh is not None and mesh.is_multi_process


def owner(number: int, mesh: Mesh | None) -> int:
    """The process that does the piece of work of a number: they take turns."""
    return number % jax.process_count() if is_shared(mesh) else jax.process_index()


def from_process(tree: Tree, process: int, mesh: Mesh | None) -> Tree:
    """A process's values of a pytree of arrays, the same in structure, shapes and types in all."""
    if not is_shared(mesh):
        return tree
    return multihost_utils.broadcast_one_to_all(tree, is_source=jax.process_index() == process)


def num_processes(mesh: Mesh | None) -> int:
    """How many processes share a pass."""
    return jax.process_count() if is_shared(mesh) else 1


def outputs(
    batches: Iterable[np.ndarray], compute: Callable[[np.ndarray], Sequence[Any]], mesh: Mesh | None
) -> Iterator[list[np.ndarray]]:
    """What `compute` makes of each batch, in order, as NumPy arrays.

    Args:
        batches: all of one shape, and the same ones in each process.
        compute: a batch → arrays, with this process's devices.
        mesh: if it spans several processes, of n batches in a row each process computes one.

    Raises:
        UserError: in each process, where computing failed in another one.
    """
    if not is_shared(mesh):
        for batch in batches:
            yield [np.asarray(x) for x in compute(batch)]
        return
    iterator = iter(batches)
    while group := list(itertools.islice(iterator, jax.process_count())):
        yield from _of_group(group, compute)


def _of_group(group: list[np.ndarray], compute: Callable[[np.ndarray], Sequence[Any]]) -> Iterator[list[np.ndarray]]:
    # At the end a process may have none left; the gathering needs arrays of it all the same.
    batch, failed, found = group[min(jax.process_index(), len(group) - 1)], None, []
    try:
        found = [np.asarray(x) for x in compute(batch)]
    except Exception as error:  # The others would wait for it.
        failed = error
    said = processes.exchanged("" if failed is None else reason(failed))
    if failed is not None:
        raise failed
    for process, message in enumerate(said):
        if message:
            raise UserError(f"process {process}: {message}")
    gathered = multihost_utils.process_allgather(found)
    for number in range(len(group)):
        yield [x[number] for x in gathered]


def agreed(make: Callable[[], T], mesh: Mesh | None, *, array: Callable[[T], np.ndarray]) -> T:
    """What `make` returns, whose array has to be the same in all processes that share a pass.

    Raises:
        UserError: in all of them, when it raises one in any, or the arrays differ.
    """
    if not is_shared(mesh):
        return make()
    return processes.together(make, alike=lambda value: fingerprint(array(value)))


def require_same(tree: Tree, mesh: Mesh | None, *, what: str = "variables") -> Tree:
    """A pytree of arrays that is the same in all processes that share a pass.

    Raises:
        UserError: in all of them, when it is not.
    """
    if not is_shared(mesh):
        return tree
    total = [fingerprint(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)]
    processes.together(lambda: total, alike=lambda x: zlib.crc32(repr(x).encode()), what=what)
    return tree


def read(batches: Iterable[T], mesh: Mesh | None) -> Iterator[T]:
    """The same batches, of which all processes that share a pass have as many.

    Raises:
        UserError: in all of them, when reading raises one in any, or some have fewer.
    """
    if not is_shared(mesh):
        yield from batches
        return
    iterator, end = iter(batches), object()

    def ahead() -> Any:
        return next(iterator, end)

    while (batch := processes.together(ahead, alike=lambda x: x is not end, what="numbers of batches")) is not end:
        yield batch


def fingerprint(array: Any) -> list[int]:
    """The shape, and a checksum of some rows all over an array: it may be larger than memory."""
    rows = np.atleast_1d(array)
    some = np.ascontiguousarray(rows[:: max(1, len(rows) // _COMPARED)])
    return [*array.shape, zlib.crc32(some.tobytes())]
