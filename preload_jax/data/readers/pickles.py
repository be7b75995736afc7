"""Reads pickled dictionaries of arrays without running any code that a file might bring along.

A pickle names the functions that rebuild its objects. Here none of them is called: arrays are rebuilt by stand-ins,
which is also needed for files that are merely damaged, since NumPy's own functions can crash on a damaged state. For
the same reason the unpickler is the one written in Python, which does not trust the sizes in the file.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.errors import DataError, reason

# What pickles of plain arrays, lists and strings refer to, by the names of NumPy 1 and of NumPy 2.
_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "bytes",
}
_ITEM_TYPES = {"u1": "u1", "i4": "<i4", "i8": "<i8", "f4": "<f4", "f8": "<f8"}


class _StandIn:
    """Called where the pickle would call a function of NumPy's."""

    __slots__ = ("kind",)

    def __init__(self, kind: str):
        self.kind = kind

    def __call__(self, *arguments: Any) -> Any:
        if self.kind == "array":
            return _Array()
        if self.kind == "dtype":
            return _ItemType(_text(arguments[0]))
        if self.kind == "bytes" and arguments[1:] in (("latin1",), ("latin-1",)):
            return arguments[0].encode("latin1")
        raise pickle.UnpicklingError(f"it calls {self.kind} in a way that no array needs")


class _ItemType:
    """A dtype; its state is its byte order and what only structured types have."""

    __slots__ = ("name", "order")

    def __init__(self, name: str):
        self.name, self.order = name, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])


class _Array:
    """An array, once its state is known: (version, shape, dtype, whether in Fortran order, bytes)."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = np.zeros(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, item_type, fortran, content = state
        if item_type.name not in _ITEM_TYPES or item_type.order == ">":
            raise pickle.UnpicklingError(f"it has an array of {item_type.order}{item_type.name}")
        values = np.frombuffer(content, _ITEM_TYPES[item_type.name])
        self.value = values.reshape(shape, order="F") if fortran else values.reshape(shape)


class _ArrayUnpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which an array does not need")
        return _StandIn(_KNOWN[module, name])


def load_pickle(content: bytes, path: Path) -> dict[str, Any]:
    """The dictionary pickled in `content`; keys written by Python 2 become strings.

    Args:
      content: a pickle of a dictionary of arrays (of bytes, integers or floats), lists, numbers and strings.
      path: where it is from, for the error.

    Raises:
      DataError: for anything else.
    """
    try:
        value = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"it holds a {type(value).__name__}; expected a dictionary")
        return {_text(key): item.value if isinstance(item, _Array) else item for key, item in value.items()}
    except Exception as error:  # Damaged pickles raise all kinds, MemoryError for an absurd length among them.
        raise DataError(f"{path}: not a readable pickle of arrays ({reason(error)})") from error


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
