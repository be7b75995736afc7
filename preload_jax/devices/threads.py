"""Blocks worked on in several threads: BLAS's own threads wait for each other within every small product."""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# Each holds a block and what is computed of it.
_MOST = 8


def in_order(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """function(item) of each item, in their order.  One BLAS thread each; the items are drawn in the calling thread.

    Functions are NumPy's, or make JAX's settings themselves: these, as 64 bits, are of the thread that made them.
    """
    items = iter(items)
    few = list(itertools.islice(items, 2))
    count = min(cores(), _MOST)
    if len(few) < 2 or count < 2:
        yield from map(function, itertools.chain(few, items))
        return
    waiting: deque[Future] = deque()
    with blas_alone(), ThreadPoolExecutor(count) as pool:
        for item in itertools.chain(few, items):
            waiting.append(pool.submit(function, item))
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def in_parts(function: Callable[..., tuple[np.ndarray, ...]], *arrays: np.ndarray, rows: int) -> Any:
    """The arrays that a function of NumPy returns for some rows of arrays at a time, in threads, put together."""
    parts = ([x[i : i + rows] for x in arrays] for i in range(0, len(arrays[0]), rows))
    found = in_order(lambda part: function(*part), parts)
    return tuple(np.concatenate(x) for x in zip(*found, strict=True))


@contextmanager
def blas_alone() -> Iterator[None]:
    """BLAS without threads of its own: after each call they keep a core busy, which `in_order`'s need, for 20 ms."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    # Once: to look for the libraries takes longer than a small block.
    return ThreadpoolController()


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
