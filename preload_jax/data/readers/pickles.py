"""Reads pickled dictionaries of arrays without running any code that a file might bring along.

A pickle names the functions that rebuild its objects. Here none of them is called: arrays are rebuilt by stand-ins,
which is also needed for files that are merely damaged, since NumPy's own functions can crash on a damaged state. For
the same reason the unpickler is the one written in Python, which does not trust the sizes in the file.
"""

import io
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.errors import DataError, reason

# What pickles of plain arrays, lists and strings refer to, by the names of NumPy 1 and of NumPy 2.
_KNOWN = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "bytes",
    ("__builtin__", "bytes"): "no bytes",
} | {
    (f"numpy.{core}.{module}", name): kind
    for core in ("core", "_core")
    for module, name, kind in (
        ("multiarray", "_reconstruct", "array"),
        ("multiarray", "scalar", "scalar"),
        ("numeric", "_frombuffer", "buffer"),  # of protocol 5
    )
}
_ITEM_TYPES = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
_MAX_STEPS = 2_000_000  # instructions of a pickle; CIFAR-100, 50,000 images with names and two labels, takes an eighth


class _StandIn:
    """Called where the pickle would call a function of NumPy's."""

    __slots__ = ("budget", "kind")

    def __init__(self, kind: str, budget: "_Budget"):
        self.kind, self.budget = kind, budget

    def __call__(self, *arguments: Any) -> Any:
        if self.kind == "array":
            return _Array()
        if self.kind == "dtype":
            return _ItemType(_text(arguments[0]))
        if self.kind == "scalar":
            item_type, content = arguments
            return item_type.numbers(content).reshape(()).item()
        if self.kind == "buffer":
            content, item_type, shape, order = arguments[:4]
            array = _Array()
            array.value = item_type.numbers(content).reshape(_shape(shape), order=_text(order))
            return array
        if self.kind == "no bytes" and not arguments:
            return b""
        if self.kind == "bytes" and arguments[1:] in (("latin1",), ("latin-1",)):
            self.budget.spend(len(arguments[0]))
            return arguments[0].encode("latin1")
        raise pickle.UnpicklingError(f"it calls {self.kind} in a way that no array needs")


class _ItemType:
    """A dtype; its state is its byte order and what only structured types have."""

    __slots__ = ("name", "order")

    def __init__(self, name: str):
        if name not in _ITEM_TYPES:
            raise pickle.UnpicklingError(f"it has numbers of type {name[:20]!r}")
        self.name, self.order = name, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = {"|": "=", "=": "=", "<": "<", ">": ">"}[_text(state[1])]

    def numbers(self, content: Any) -> np.ndarray:
        """Bytes as numbers; never a copy, as a pickle may name the same bytes any number of times."""
        return np.frombuffer(content, self.order + self.name)


class _Array:
    """An array, once its state is known: (version, shape, dtype, whether in Fortran order, bytes)."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = np.zeros(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, item_type, fortran, content = state
        self.value = item_type.numbers(content).reshape(_shape(shape), order="F" if fortran else "C")


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple) or not all(type(size) is int and size >= 0 for size in value):
        raise pickle.UnpicklingError("it has an array without a shape")
    return value


class _Budget:
    """A number that is used up."""

    def __init__(self, amount: int):
        self.left = amount

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise pickle.UnpicklingError("it does more than its arrays need")


class _Counted:
    """A table of instructions that can be looked into so many times: an instruction has one byte, and takes long."""

    def __init__(self, table: dict[int, Any], most: int):
        self.table, self.budget = table, _Budget(most)

    def __getitem__(self, instruction: int) -> Any:
        self.budget.spend(1)
        if instruction not in self.table:
            raise pickle.UnpicklingError("it has an instruction that no array needs")
        return self.table[instruction]


class _ArrayUnpickler(pickle._Unpickler):
    dispatch: Any = dict(pickle._Unpickler.dispatch)  # type: ignore[misc]  # noqa: RUF012

    def __init__(self, content: bytes):
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.dispatch = _Counted(self.dispatch, _MAX_STEPS)
        self.copied = _Budget(2 * len(content))

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which an array does not need")
        return _StandIn(_KNOWN[module, name], self.copied)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()  # type: ignore[attr-defined]
        _put(self.stack[-1], key, value)  # type: ignore[attr-defined]

    def load_setitems(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        for key, value in zip(items[::2], items[1::2], strict=True):
            _put(self.stack[-1], key, value)  # type: ignore[attr-defined]

    def load_dict(self) -> None:
        items: dict[Any, Any] = {}
        found = self.pop_mark()  # type: ignore[attr-defined]
        for key, value in zip(found[::2], found[1::2], strict=True):
            _put(items, key, value)
        self.append(items)  # type: ignore[attr-defined]

    def load_bytearray8(self) -> None:
        # The standard library's own allocates what the file says before it looks whether that is there.
        (size,) = struct.unpack("<Q", self.read(8))  # type: ignore[attr-defined]
        self.append(self.read(size))  # type: ignore[attr-defined]

    dispatch |= {
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }
    # Sets hash what is in them, and objects take any state: no array needs either.
    for _instruction in (
        pickle.ADDITEMS,
        pickle.EMPTY_SET,
        pickle.FROZENSET,
        pickle.INST,
        pickle.OBJ,
        pickle.NEWOBJ,
        pickle.NEWOBJ_EX,
    ):
        dispatch.pop(_instruction[0])


def _put(items: Any, key: Any, value: Any) -> None:
    """Hashes keys of known types only: a tuple of tuples that share their parts takes for ever to hash."""
    if not isinstance(items, dict) or not isinstance(key, str | bytes | int):
        raise pickle.UnpicklingError(f"it has a {type(key).__name__} for a key")
    items[key] = value


def load_pickle(content: bytes, path: Path) -> dict[str, Any]:
    """The dictionary pickled in `content`; keys written by Python 2 become strings.

    Args:
      content: a pickle of a dictionary of arrays (of bytes, integers or floats), lists, numbers and strings.
      path: where it is from, for the error.

    Raises:
      DataError: for anything else.
    """
    try:
        value = _ArrayUnpickler(content).load()
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"it holds a {type(value).__name__}; expected a dictionary")
        return {_text(key): item.value if isinstance(item, _Array) else item for key, item in value.items()}
    except Exception as error:  # Damaged pickles raise all kinds, MemoryError for an absurd length among them.
        raise DataError(f"{path}: not a readable pickle of arrays ({reason(error)})") from error


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes | int):
        raise pickle.UnpicklingError(f"it has a {type(value).__name__} for a name")
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
