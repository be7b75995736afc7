"""Writes files as `torch.save` does, without torch: the zip format of 1.6 and later, and the one before it."""

import io
import itertools
import pickle
import struct
import zipfile
from collections import OrderedDict
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

KINDS = {
    np.dtype(np.float32): "FloatStorage",
    np.dtype(np.float64): "DoubleStorage",
    np.dtype(np.float16): "HalfStorage",
    np.dtype(ml_dtypes.bfloat16): "BFloat16Storage",
    np.dtype(np.int64): "LongStorage",
    np.dtype(np.bool_): "BoolStorage",
    np.dtype(np.complex64): "ComplexFloatStorage",
    np.dtype(np.uint8): "UntypedStorage",
}
_keys = itertools.count()


@dataclass(frozen=True)
class Name:
    """A function or class that the pickle names."""

    module: str
    name: str


@dataclass(frozen=True, eq=False)
class Storage:
    items: np.ndarray
    key: str = field(default_factory=lambda: str(next(_keys)))


@dataclass(frozen=True)
class Tensor:
    """A view of a storage; strides in numbers, not bytes."""

    storage: Storage
    offset: int
    shape: tuple
    strides: tuple
    flags: dict | None = None


@dataclass(frozen=True)
class Call:
    """A call that unpickling would make."""

    function: Name
    arguments: tuple


@dataclass(frozen=True)
class Items:
    """A dictionary as pairs, whose keys are not hashed here."""

    pairs: tuple


def tensor(array):
    """A contiguous tensor with a storage of its own."""
    array = np.array(array, order="C")
    strides = tuple(step // array.itemsize for step in array.strides)
    return Tensor(Storage(array.reshape(-1)), 0, array.shape, strides)


def tensors(state_dict):
    """Arrays as tensors, in an ordered dictionary."""
    return OrderedDict((name, tensor(array)) for name, array in state_dict.items())


class _Pickler(pickle._Pickler):
    def __init__(self, file, legacy):
        super().__init__(file, protocol=2)
        self.legacy, self.storages = legacy, {}

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        self.storages[value.key] = value
        kind = Name("torch", KINDS[value.items.dtype])
        return ("storage", kind, value.key, "cpu", value.items.size, *((None,) if self.legacy else ()))

    def save(self, value, save_persistent_id=True):
        if isinstance(value, Name):
            self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
        elif isinstance(value, Call):
            self.save(value.function)
            self.save(value.arguments)
            self.write(pickle.REDUCE)
        elif isinstance(value, Items):
            self.write(pickle.EMPTY_DICT)
            self._batch_setitems(iter(value.pairs))
        elif isinstance(value, Tensor):
            rest = (False, OrderedDict(), *(() if value.flags is None else (value.flags,)))
            arguments = (value.storage, value.offset, value.shape, value.strides, *rest)
            self.save(Call(Name("torch._utils", "_rebuild_tensor_v2"), arguments))
        elif isinstance(value, OrderedDict):
            self.save(Call(Name("collections", "OrderedDict"), ()))
            self._batch_setitems(iter(value.items()))
        else:
            super().save(value, save_persistent_id)


def content(value, *, legacy=False, byteorder="little", checksums=True):
    """The bytes of a file that holds `value`: nested dicts and lists of tensors, numbers and strings."""
    pickled = io.BytesIO()
    pickler = _Pickler(pickled, legacy)
    pickler.dump(value)
    items = {key: _bytes(storage.items, byteorder) for key, storage in pickler.storages.items()}
    file = io.BytesIO()
    if not legacy:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("archive/data.pkl", pickled.getvalue())
            archive.writestr("archive/byteorder", byteorder)
            for key, part in items.items():
                archive.writestr(f"archive/data/{key}", part)
            archive.writestr("archive/version", "3\n")
            members = archive.infolist()
            for member in members if not checksums else ():
                member.CRC = 0  # in the directory at the end, which readers go by
        return file.getvalue()
    system = {"protocol_version": 1001, "little_endian": byteorder == "little", "type_sizes": {"int": 4}}
    for head in (0x1950A86A20F9469CFC6C, 1001, system):
        file.write(pickle.dumps(head, protocol=2))
    file.write(pickled.getvalue() + pickle.dumps(list(items), protocol=2))
    for key, part in items.items():
        file.write(struct.pack("<q", pickler.storages[key].items.size) + part)
    return file.getvalue()


def _bytes(items, byteorder):
    if byteorder == "little":
        return items.tobytes()
    width = items.itemsize // (2 if items.dtype.kind == "c" else 1)  # a complex number is two
    return items.view(f"<u{width}").astype(f">u{width}").tobytes()


def save(path, value, **options):
    """Writes `content` to a file and returns its path."""
    path.write_bytes(content(value, **options))
    return path


def lenet(num_outputs=10, *, prefix="", square_logit=False, side=8, seed=0):
    """A narrow LeNet's state dict in the released code's names, for images [side, side, 1]; random numbers."""
    rng = np.random.default_rng(seed)
    shapes = {
        "conv1.weight": (8, 1, 5, 5),
        "conv1.bias": (8,),
        "conv2.weight": (64, 8, 5, 5),
        "conv2.bias": (64,),
        "fc1.weight": (16, 64 * (side // 4) ** 2),
        "fc1.bias": (16,),
        "fc2.weight": (num_outputs, 16),
        "fc2.bias": (num_outputs,),
    }
    part = "network_part1." if square_logit else ""
    shapes = {f"{part}{name}": shape for name, shape in shapes.items()}
    if square_logit:
        shapes |= {"network_part2.fc.weight": (1, 16), "network_part2.fc.bias": (1,)}
    return {f"{prefix}{name}": rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
