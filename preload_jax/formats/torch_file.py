"""State dicts in the files that `torch.save` writes, read without torch and without running anything in them.

Two formats: the zip archive of torch 1.6 and later (a pickle, and one uncompressed member a storage), and the older
sequence of pickles followed by the storages' bytes.  The unpickler knows the opcodes and the handful of names that
tensors need and refuses all others; what stands for torch's functions only notes their arguments, which are checked
against the storages' sizes before an array is made.  It is the unpickler written in Python, which does not trust the
sizes in a file.
"""

import io
import math
import pickle
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from preload_jax.errors import DataError, reason

_ITEM_TYPES = {
    "FloatStorage": np.dtype(np.float32),
    "DoubleStorage": np.dtype(np.float64),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
}
_ZIP_MAGIC = b"PK\x03\x04"
_LEGACY_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
_LEGACY_PROTOCOL = 1001
# A tensor that repeats its storage's numbers (stride 0) may have this many elements; a few bytes cannot claim more.
_MAX_REPEATED = 1 << 20
# Which of several state dicts in a checkpoint is meant.
_USUAL_KEYS = ("state_dict", "model_state_dict", "model", "net")


@dataclass(frozen=True)
class _Storage:
    key: str
    item_type: np.dtype
    size: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    negative: bool = False


class _Dict(dict[Any, Any]):
    """An ordered dictionary; its only attribute in a file is `_metadata`, which is not needed."""

    __slots__ = ()


class _Function:
    """Stands where the pickle names a function or class of torch's."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]):
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


def _rebuild(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> _Tensor:
    """`_rebuild_tensor` and `_rebuild_tensor_v2`; the rest is about gradients, and flags that change the numbers."""
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or not all(type(n) is int and n >= 0 for n in numbers):
        raise pickle.UnpicklingError("a tensor in it is described by something else than sizes")
    if len(shape) != len(strides):
        raise pickle.UnpicklingError("a tensor in it has more or fewer strides than dimensions")
    flags = rest[2] if len(rest) > 2 else None
    known = isinstance(flags, dict | None) and set(flags or ()) <= {"neg", "conj"}
    if not known or (flags and flags.get("conj")):
        raise pickle.UnpicklingError(f"a tensor in it has the flags {flags!r}; save tensor.resolve_conj() instead")
    return _Tensor(storage, offset, tuple(shape), tuple(strides), bool(flags and flags.get("neg")))


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): lambda: _Dict(),
    # Of learning-rate schedulers, beside the state dict.
    ("collections", "Counter"): lambda *counts: dict(*counts),
    ("torch._utils", "_rebuild_tensor"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *rest: tensor,
    ("torch", "Size"): lambda sizes: tuple(sizes),
    ("torch", "device"): lambda *names: names,
}


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


class _Unpickler(pickle._Unpickler):
    """Dictionaries, lists, tuples, numbers, strings, and tensors as descriptions."""

    dispatch = _Opcodes({code[0]: pickle._Unpickler.dispatch[code[0]] for code in _NEEDED})

    def __init__(self, file: io.BytesIO):
        super().__init__(file, encoding="utf-8")
        self.stack: list[Any]
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _KNOWN:
            return _Function(_KNOWN[module, name])
        if module.split(".")[0] == "torch" and name in _ITEM_TYPES:
            return _ITEM_TYPES[name]
        asked = f"{module}.{name}"[:60]
        raise pickle.UnpicklingError(f"it asks for {asked!r}, which a state dict does not need")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, item_type, key, _, size, *view = pid
        if kind != "storage" or not isinstance(item_type, np.dtype) or type(size) is not int or size < 0:
            raise pickle.UnpicklingError("a storage in it is described by something else than type and size")
        if any(view):
            raise pickle.UnpicklingError("it has a view of a storage, as torch before 0.4 wrote them")
        return self.storages.setdefault(str(key), _Storage(str(key), item_type, size))

    def _set_attributes(self) -> None:
        self.stack.pop()
        if not isinstance(self.stack[-1], _Dict):
            raise pickle.UnpicklingError("it sets attributes of something else than a state dict")

    dispatch[pickle.BUILD[0]] = _set_attributes

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][_checked(key)] = value

    def _set_items(self) -> None:
        items = self.pop_mark()  # type: ignore[attr-defined]
        self.stack[-1].update(zip(map(_checked, items[::2]), items[1::2], strict=True))

    dispatch[pickle.SETITEM[0]] = _set_item
    dispatch[pickle.SETITEMS[0]] = _set_items


def _checked(key: Any) -> Any:
    """A dictionary's key, of a plain type: hashing nested tuples takes as long as a file likes."""
    if not isinstance(key, str | int | float | None):
        raise pickle.UnpicklingError(f"a dictionary in it has a {type(key).__name__} as a key")
    return key


def read_state_dict(path: str | Path) -> dict[str, np.ndarray]:
    """The state dict in a file that `torch.save` wrote.

    Args:
        path: of a state dict, or of a dictionary with one in it (such as {"epoch", "state_dict", "optimizer"}).

    Returns:
        name → array, read-only, in the tensor's own type; bfloat16 as `ml_dtypes.bfloat16`.

    Raises:
        DataError: for any other file, a damaged one, one that holds more than tensors and plain values (a whole
            Python object, say), or one without a state dict.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected a state dict that torch.save wrote")
    content = path.read_bytes()
    try:
        if content.startswith(_ZIP_MAGIC):
            return _read_zip(content)
        if content.startswith(_LEGACY_MAGIC):
            return _read_legacy(content)
        raise ValueError(f"it begins with {content[:8]!r}")
    except Exception as error:  # Damaged pickles and archives raise all kinds, OSError for a wrong offset among them.
        raise DataError(
            f"{path}: not a readable state dict ({reason(error)}); expected what torch.save(model.state_dict(), FILE)"
            " writes"
        ) from error


def _read_zip(content: bytes) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("its archive is compressed, which torch's never is")
        if sum(member.file_size for member in members) > len(content):
            raise ValueError("its archive's members are larger than the file")
        names = {member.filename for member in members}
        pickles = [name for name in names if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError("its archive has no data.pkl" if not pickles else "its archive has several data.pkl")
        root = pickles[0].removesuffix("data.pkl")
        byteorder = _member(archive, f"{root}byteorder") if f"{root}byteorder" in names else b"little"
        tensors = _find(_Unpickler(io.BytesIO(_member(archive, pickles[0]))).load())
        contents: dict[str, np.ndarray] = {}
        for storage in {tensor.storage.key: tensor.storage for tensor in tensors.values()}.values():
            items = _member(archive, f"{root}data/{storage.key}")
            contents[storage.key] = _items(storage, items, big_endian=byteorder == b"big")
    return {name: _array(tensor, contents[tensor.storage.key]) for name, tensor in tensors.items()}


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member's bytes; its checksum is compared where there is one (torch can be told to write none)."""
    info = archive.getinfo(name)
    with archive.open(info) as file:
        if info.CRC == 0:
            file._expected_crc = None  # type: ignore[attr-defined]
        return file.read()


def _read_legacy(content: bytes) -> dict[str, np.ndarray]:
    file = io.BytesIO(content)
    _, protocol, system = (_Unpickler(file).load() for _ in range(3))
    if protocol != _LEGACY_PROTOCOL:
        raise ValueError(f"its protocol is {protocol!r}, not {_LEGACY_PROTOCOL}")
    unpickler = _Unpickler(file)
    tensors = _find(unpickler.load())
    contents: dict[str, np.ndarray] = {}
    for key in _Unpickler(file).load():
        storage = unpickler.storages[key]
        (size,) = struct.unpack("<q", file.read(8))
        if size != storage.size:
            raise ValueError(f"a storage of {storage.size} numbers is followed by {size}")
        items = file.read(size * storage.item_type.itemsize)
        contents[key] = _items(storage, items, big_endian=not system["little_endian"])
    return {name: _array(tensor, contents[tensor.storage.key]) for name, tensor in tensors.items()}


def _find(value: Any) -> dict[str, _Tensor]:
    """The tensors of the state dict that a pickle holds, at its top or one level below."""
    if not isinstance(value, dict):
        raise ValueError(f"it holds a {type(value).__name__.strip('_')}, not a dictionary")
    found = {"": _tensors(value)} | {str(key): _tensors(part) for key, part in value.items()}
    found = {key: tensors for key, tensors in found.items() if any(name.endswith(".weight") for name in tensors)}
    if not found:
        raise ValueError("it holds no state dict: no tensor of it is named *.weight")
    chosen = ["", *_USUAL_KEYS] if len(found) > 1 else list(found)
    for key in chosen:
        if key in found:
            return found[key]
    raise ValueError(f"it holds several state dicts, {sorted(found)}; save the one that is meant alone")


def _tensors(value: Any) -> dict[str, _Tensor]:
    items = value.items() if isinstance(value, dict) else ()
    return {key: item for key, item in items if isinstance(key, str) and isinstance(item, _Tensor)}


def _items(storage: _Storage, content: bytes, *, big_endian: bool) -> np.ndarray:
    """A storage's numbers, [size], in this machine's (little-endian) byte order."""
    width = storage.item_type.itemsize
    if len(content) != storage.size * width:
        raise ValueError(f"a storage of {storage.size * width} bytes has {len(content)}")
    if not big_endian:
        return np.frombuffer(content, storage.item_type)
    return np.frombuffer(content, f">u{width}").astype(f"<u{width}").view(storage.item_type)


def _array(tensor: _Tensor, items: np.ndarray) -> np.ndarray:
    """The tensor as a read-only view of its storage."""
    count = math.prod(tensor.shape)
    if count == 0:
        return np.empty(tensor.shape, items.dtype)
    last = tensor.offset + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.strides, strict=True))
    if last >= len(items):
        raise ValueError(f"a tensor reaches to number {last} of a storage of {len(items)}")
    if count > max(len(items), _MAX_REPEATED):
        raise ValueError(f"a tensor of {count} numbers is made of {len(items)}")
    steps = [step * items.itemsize for step in tensor.strides]
    view = np.lib.stride_tricks.as_strided(items[tensor.offset :], tensor.shape, steps, writeable=False)
    return np.negative(view) if tensor.negative else view
