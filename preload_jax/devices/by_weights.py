"""What was found of a network, kept by its very weights: of other weights, and of equal copies, nothing is known."""

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import jax


class ByWeights:
    """Values by a network's variables and a key.

    Args:
        most: how many are kept; the oldest go first.
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._kept: dict[Any, tuple[list[Callable[[], Any]], Any]] = {}

    def put(self, variables: Mapping[str, Any], value: Any, *key: Any) -> None:
        """Keeps a value; the weights themselves are not kept alive."""
        weights = jax.tree.leaves(variables)
        with self._lock:
            self._kept[(*key, *map(id, weights))] = list(map(_held, weights)), value
            for oldest in list(self._kept)[: -self._most]:
                del self._kept[oldest]

    def get(self, variables: Mapping[str, Any], *key: Any) -> Any:
        """What was put for these weights and this key; None for nothing."""
        weights = jax.tree.leaves(variables)
        with self._lock:
            held, value = self._kept.get((*key, *map(id, weights)), ([], None))
        # An id alone may be another array's by now.
        return value if all(a() is b for a, b in zip(held, weights, strict=bool(held))) else None


def _held(weight: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(weight)
    except TypeError:  # a number
        return lambda: weight
