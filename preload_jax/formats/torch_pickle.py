"""The pickles in torch's files: tensors as descriptions, nothing of theirs carried out.

The unpickler knows the opcodes and the names that torch's own `weights_only` reading allows, and refuses all others.
What stands for torch's functions only notes their arguments.  It is the unpickler written in Python, which does not
trust the sizes in a file.
"""

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

DTYPES: dict[str, np.dtype] = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
    **{name: np.dtype(name) for name in ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")},
    "bool": np.dtype(np.bool_),
}
_STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    # Bytes; the tensor says of what.
    "UntypedStorage": "uint8",
    # Of quantised tensors, which may be beside a state dict, not in it.
    "QInt8Storage": "int8",
    "QUInt8Storage": "uint8",
    "QInt32Storage": "int32",
}
# Hashing a tuple goes through all that is in it, however often it is in it.
_MOST_IN_A_KEY = 1_000


@dataclass(frozen=True)
class Storage:
    """A run of `size` numbers of one type, whose bytes are elsewhere in the file, under `key`."""

    key: str
    item_type: np.dtype
    size: int


@dataclass(frozen=True)
class Tensor:
    """A view of a storage: an offset and strides in numbers; negated or conjugated when it is read."""

    storage: Storage
    item_type: np.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    negated: bool = False
    conjugated: bool = False


@dataclass(frozen=True)
class Other:
    """Something that torch would make of the file and that no state dict of ours needs; `kind` in words."""

    kind: str


class _Dict(dict[Any, Any]):
    """A dictionary of a class of its own; its attributes in a file (`_metadata`) are not needed."""

    __slots__ = ()


class _Function:
    """Stands where the pickle names a function or class of torch's."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]):
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any, dtype: Any = None) -> Tensor:
    """`_rebuild_tensor` and `_rebuild_tensor_v2`: the rest is about gradients, and last its flags."""
    if not isinstance(storage, Storage) or not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise pickle.UnpicklingError("a tensor in it is described by something else than sizes")
    if not all(type(n) is int and n >= 0 for n in (offset, *shape, *strides)):
        raise pickle.UnpicklingError("a tensor in it is described by something else than sizes")
    if len(shape) != len(strides):
        raise pickle.UnpicklingError("a tensor in it has more or fewer strides than dimensions")
    tensor = Tensor(storage, dtype or storage.item_type, offset, shape, strides)
    return _with_flags(tensor, rest[2] if len(rest) > 2 else None)


def _tensor_of_type(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Tensor:
    """`_rebuild_tensor_v3`: its type is among the rest, before the flags."""
    gradient, dtype, flags = rest[:2], rest[2], rest[3:]
    if not isinstance(dtype, np.dtype):
        raise pickle.UnpicklingError("a tensor in it has numbers of a type that is not known here")
    return _tensor(storage, offset, shape, strides, *gradient, *flags, dtype=dtype)


def _with_flags(tensor: Tensor, flags: Any) -> Tensor:
    """What torch notes of a tensor that is the negative, or the conjugate, of what is stored."""
    if flags is None:
        return tensor
    if type(flags) is not dict or any(type(value) is not bool for value in flags.values()):
        raise pickle.UnpicklingError("a tensor in it has flags of another kind")
    unknown = [name for name, value in flags.items() if value and name not in ("neg", "conj")]
    if unknown:
        raise pickle.UnpicklingError(f"a tensor in it has the flag {str(unknown[0])[:40]!r}, which is not known here")
    return replace(tensor, negated=flags.get("neg", False), conjugated=flags.get("conj", False))


def _first(value: Any, *rest: Any) -> Any:
    return value


def _called(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """`_rebuild_from_type_v2`: a tensor with attributes, or of a class of its own."""
    if not isinstance(function, _Function) or not isinstance(arguments, tuple):
        raise pickle.UnpicklingError("a tensor in it is made in another way")
    return function(*arguments)


def _counted(*counts: Any) -> _Dict:
    if len(counts) > 1 or not all(isinstance(each, dict) for each in counts):
        raise pickle.UnpicklingError("a Counter in it holds no counts")
    return _Dict(*counts)


def _other(kind: str) -> Callable[..., Other]:
    return lambda *arguments: Other(kind)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": lambda: _Dict(),
    "collections.Counter": _counted,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_type,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _called,
    "torch._utils._rebuild_sparse_tensor": _other("a sparse tensor"),
    "torch._utils._rebuild_qtensor": _other("a quantised tensor"),
    "torch._utils._rebuild_meta_tensor_no_storage": _other("a tensor without numbers"),
    "torch._utils._rebuild_nested_tensor": _other("a nested tensor"),
    "torch._utils._rebuild_wrapper_subclass": _other("a tensor of another class"),
    "torch.serialization._get_layout": _other("a layout"),
    "torch.Size": lambda sizes=(): tuple(sizes),
    "torch.device": _other("a device"),
    "_codecs.encode": _other("bytes"),
    "builtins.bytearray": _other("bytes"),
    "builtins.set": _other("a set"),
    "builtins.complex": _other("a complex number"),
}
# Classes and constants that are named and never called.
_NAMES = (
    *("torch.Tensor", "torch.nn.parameter.Parameter"),
    *(f"torch.per_{each}" for each in ("tensor_affine", "tensor_symmetric", "channel_affine", "channel_symmetric")),
    "torch.per_channel_affine_float_qparams",
)


class _Opcodes(dict[int, Any]):
    def __missing__(self, code: int) -> Any:
        raise pickle.UnpicklingError(f"it holds the pickle instruction {code}, which no state dict needs")


# What pickle protocol 2 needs for dictionaries, lists, tuples, numbers, strings, named functions and storages.
_NEEDED = (
    *(pickle.PROTO, pickle.STOP, pickle.MARK, pickle.GLOBAL, pickle.REDUCE, pickle.BINPERSID),
    *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET),
    *(pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BINFLOAT),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1),
    *(pickle.BINUNICODE, pickle.BINSTRING, pickle.SHORT_BINSTRING),
)


class Unpickler(pickle._Unpickler):
    """Dictionaries, lists, tuples, numbers, strings, and tensors as descriptions; `storages` has all of theirs."""

    dispatch = _Opcodes({code[0]: pickle._Unpickler.dispatch[code[0]] for code in _NEEDED})

    def __init__(self, file: io.BytesIO):
        super().__init__(file, encoding="utf-8")
        self.stack: list[Any]
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        full = f"{'builtins' if module == '__builtin__' else module}.{name}"
        if full in _FUNCTIONS:
            return _Function(_FUNCTIONS[full])
        if full in _NAMES:
            return Other(full)
        if module.split(".")[0] == "torch" and name in _STORAGES:
            return DTYPES[_STORAGES[name]]
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        raise pickle.UnpicklingError(f"it asks for {f'{module}.{name}'[:60]!r}, which a state dict does not need")

    def persistent_load(self, pid: Any) -> Storage:
        kind, item_type, key, _, size, *view = pid
        if kind != "storage" or not isinstance(item_type, np.dtype) or type(size) is not int or size < 0:
            raise pickle.UnpicklingError("a storage in it is described by something else than type and size")
        if type(key) not in (str, int):
            raise pickle.UnpicklingError("a storage in it has no name")
        if any(part is not None for part in view):
            raise pickle.UnpicklingError("it has a view of a storage, as torch before 0.4 wrote them")
        return self.storages.setdefault(str(key), Storage(str(key), item_type, size))

    def _set_attributes(self) -> None:
        self.stack.pop()
        if not isinstance(self.stack[-1], _Dict):
            raise pickle.UnpicklingError("it sets attributes of something else than a state dict")

    def _call(self) -> None:
        arguments = self.stack.pop()
        if not isinstance(self.stack[-1], _Function) or not isinstance(arguments, tuple):
            raise pickle.UnpicklingError("it calls something that is no function")
        self.stack[-1] = self.stack[-1](*arguments)

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put([(key, value)])

    def _set_items(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        self._put(list(zip(items[::2], items[1::2], strict=True)))

    def _put(self, items: list[tuple[Any, Any]]) -> None:
        into = self.stack[-1]
        if not isinstance(into, dict):
            raise pickle.UnpicklingError("it puts items into something that is no dictionary")
        for key, value in items:
            _check_key(key)
            into[key] = value

    dispatch[pickle.BUILD[0]] = _set_attributes
    dispatch[pickle.REDUCE[0]] = _call
    dispatch[pickle.SETITEM[0]] = _set_item
    dispatch[pickle.SETITEMS[0]] = _set_items


def _check_key(key: Any) -> None:
    """Refuses a key whose hash would take long: a tuple of one tuple twice, and so on 40 times, has 2⁴⁰ parts."""
    todo, seen = [key], 0
    while todo:
        item = todo.pop()
        seen += 1
        if isinstance(item, tuple):
            todo += item[: _MOST_IN_A_KEY + 1]
        if seen + len(todo) > _MOST_IN_A_KEY:
            raise pickle.UnpicklingError("a dictionary in it has a key of very many parts")
