"""One pass over training data that something yields, and the place in it, by which a stopped training goes on."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Rows = tuple[np.ndarray, np.ndarray | None]
# Rows of an array that are gathered at once.
_ROWS = 256


class Pass:
    """One pass over a source: an iterator of `Rows` that knows its position where what it reads does, as grain's do.

    Args:
        iterator: of anything; with `get_state` and `set_state` it says and takes a position.
        read: (its number, what it yielded) → inputs [m, …] and labels [m], or None.
        whole: called with how many inputs there were, at the end of a pass from the beginning.
    """

    def __init__(
        self, iterator: Iterator[Any], read: Callable[[int, Any], Rows], whole: Callable[[int], None] | None = None
    ):
        self._iterator, self._read, self._whole = iterator, read, whole
        self._number = self._inputs = 0

    def __iter__(self) -> Iterator[Rows]:
        return self

    def __next__(self) -> Rows:
        try:
            given = next(self._iterator)
        except StopIteration:
            if self._whole is not None:
                self._whole(self._inputs)
            raise
        self._number += 1
        rows = self._read(self._number - 1, given)
        self._inputs += len(rows[0])
        return rows

    def position(self) -> Any:
        """Before what comes next, in values that JSON has; None where that is not known."""
        if not (hasattr(self._iterator, "get_state") and hasattr(self._iterator, "set_state")):
            return None
        state = self._iterator.get_state()
        if isinstance(state, bytes):
            return {"bytes": base64.b64encode(state).decode()}
        try:
            return {"state": json.loads(json.dumps(state))}
        except (TypeError, ValueError):
            return None

    def go_to(self, position: dict[str, Any]) -> None:
        """What `position` gave, of an iterator over the same."""
        state = base64.b64decode(position["bytes"]) if "bytes" in position else position["state"]
        self._whole = None
        self._iterator.set_state(state)  # type: ignore[attr-defined]


class Parts:
    """An order in parts of `_ROWS`, whose position can be kept."""

    def __init__(self, order: np.ndarray):
        self._order, self._start = order, 0

    def __iter__(self) -> "Parts":
        return self

    def __next__(self) -> np.ndarray:
        if self._start >= len(self._order):
            raise StopIteration
        part = self._order[self._start : self._start + _ROWS]
        self._start += _ROWS
        return part

    def get_state(self) -> int:
        return self._start

    def set_state(self, state: int) -> None:
        self._start = state
