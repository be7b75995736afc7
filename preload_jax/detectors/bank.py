"""A bank of training features and the products of others with it, a piece at a time."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from preload_jax.detectors.data import Outputs, Training, require_finite_block
from preload_jax.devices import threads
from preload_jax.errors import UserError

# Rows of the bank and queries in one product (16 MB of float32), and how many products are looked at as one.
PIECE = 16384
QUERIES = 256
_GROUP = 16
# The same on the host, for each of its threads (8 MB).
HOST_PIECE = 4096
HOST_QUERIES = 512


def collect(training: Training, of_block: Callable[[Outputs], np.ndarray]) -> np.ndarray:
    """The vectors of all blocks as one array [n, d], made at once where n is known, and growing where it is not."""
    bank, used = np.empty((0, 0), np.float32), 0

    def of_checked(given: tuple[Outputs, Any]) -> np.ndarray:
        require_finite_block(given[0])
        return of_block(given[0])

    for x in threads.in_order(of_checked, training.blocks(checked=False)):
        if used + len(x) > len(bank):
            larger = np.empty((max(training.num_rows or 0, used + len(x), len(bank) * 5 // 4), x.shape[1]), x.dtype)
            larger[:used] = bank[:used] if used else 0.0
            bank = larger
        bank[used : used + len(x)] = x
        used += len(x)
    return bank[:used]


def pieces(bank: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, rows) of the bank, in pieces of one size but for the last."""
    size = piece_size(len(bank))
    for start in range(0, len(bank), size):
        yield start, bank[start : start + size]


def piece_size(rows: int) -> int:
    """As few pieces as possible, whole groups each, and as even as possible: little is padded."""
    return -(-rows // -(-rows // PIECE) // _GROUP) * _GROUP


def nearest(
    queries: np.ndarray, bank: np.ndarray, k: int, offsets: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest of xᵀb_i − offset_i and which they are, each [n, k], descending."""
    if not 1 <= k <= len(bank):
        raise UserError(f"k = {k}; expected 1 to {len(bank)}, the number of training examples")
    if jax.default_backend() == "cpu":
        return threads.in_parts(lambda x: _nearest_on_host(x, bank, k, offsets), queries, rows=HOST_QUERIES)
    values, which = np.full((len(queries), k), -np.inf, bank.dtype), np.zeros((len(queries), k), np.int32)
    for start, piece in pieces(bank):
        missing = piece_size(len(bank)) - len(piece)
        # On the device once for all queries; a call is waited for, so that few products are in memory.
        given = jnp.asarray(np.pad(piece, ((0, missing), (0, 0))) if missing else piece)
        less = np.zeros(len(piece), piece.dtype) if offsets is None else offsets[start : start + len(piece)]
        for i in range(0, len(queries), QUERIES):
            rows = slice(i, i + QUERIES)
            values[rows], which[rows] = _merge(
                queries[rows],
                given,
                np.pad(less, (0, missing), constant_values=np.inf),
                start,
                values[rows],
                which[rows],
                k=k,
            )
    return values, which


def _nearest_on_host(x: np.ndarray, bank: np.ndarray, k: int, offsets: np.ndarray | None) -> Any:
    """The same with NumPy: few products of the later pieces exceed the k-th largest so far."""
    rows = max(HOST_PIECE, k)
    room = np.empty((len(x), min(rows, len(bank))), bank.dtype)
    values, which = room[:, :0], np.empty((len(x), 0), np.int32)
    for start in range(0, len(bank), rows):
        piece = bank[start : start + rows]
        products = np.matmul(x, piece.T, out=room[:, : len(piece)])
        if offsets is not None:
            products -= offsets[start : start + rows]
        if start:
            values, which = _with_larger(values, which, products, start)
        else:
            values, which = products, np.broadcast_to(np.arange(len(piece), dtype=np.int32), products.shape)
        best = np.argpartition(values, values.shape[1] - k, axis=1)[:, -k:]
        values, which = np.take_along_axis(values, best, axis=1), np.take_along_axis(which, best, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(which, order, axis=1)


def _with_larger(values: np.ndarray, which: np.ndarray, products: np.ndarray, start: int) -> tuple[Any, Any]:
    """The values, and beside them the products that exceed the least of their row, as wide as the row of most."""
    k = values.shape[1]
    row, column = np.divmod(np.flatnonzero(products > values.min(axis=1, keepdims=True)), products.shape[1])
    count = np.bincount(row, minlength=len(values))
    place = k + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    width = ((0, 0), (0, int(count.max())))
    values, which = np.pad(values, width, constant_values=-np.inf), np.pad(which, width)
    values[row, place], which[row, place] = products[row, column], start + column
    return values, which


@partial(jax.jit, static_argnames="k")
def _merge(x: Any, piece: Array, offsets: Array, start: Any, best: Any, which: Any, *, k: int) -> tuple[Array, Array]:
    values = jnp.matmul(x, piece.T, precision="highest") - offsets[None]
    columns = jnp.arange(len(piece), dtype=jnp.int32)
    groups = len(piece) // _GROUP
    if k < groups // 2:
        # The k largest lie in the k groups whose largest members are the largest: few need sorting.
        grouped = values.reshape(len(x), groups, _GROUP)
        _, chosen = jax.lax.top_k(jnp.max(grouped, axis=-1), k)
        values = jnp.take_along_axis(grouped, chosen[..., None], axis=1).reshape(len(x), -1)
        indices = (chosen[..., None] * _GROUP + jnp.arange(_GROUP, dtype=jnp.int32)[None, None]).reshape(len(x), -1)
    else:
        indices = jnp.broadcast_to(columns[None], values.shape)
    values = jnp.concatenate([best, values], axis=1)
    indices = jnp.concatenate([which, indices + start], axis=1)
    top, positions = jax.lax.top_k(values, k)
    return top, jnp.take_along_axis(indices, positions, axis=1)


def unit(x: np.ndarray) -> np.ndarray:
    """Each row over its norm, in its own type; 0 stays 0."""
    scaled, _, norm = _scaled(x)
    return scaled / np.where(norm > 0.0, norm, 1.0)[:, None]


def norms(x: np.ndarray) -> np.ndarray:
    """‖x‖ of each row, in its own type, without a square that overflows."""
    _, largest, norm = _scaled(x)
    return np.asarray(largest * norm)


def _scaled(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(each row over its largest magnitude, that magnitude [n], the norms of what is left [n])."""
    largest = np.abs(x).max(axis=1, keepdims=True)
    scaled = x / np.where(largest > 0.0, largest, 1.0)
    return scaled, largest[:, 0], np.sqrt(np.einsum("nd,nd->n", scaled, scaled))
