"""State dicts in the files that `torch.save` writes, read without torch and without running anything in them.

Two formats: the zip archive of torch 1.6 and later (a pickle, and one uncompressed member a storage), and the older
sequence of pickles followed by the storages' bytes.  What the pickles say of the tensors (see `torch_pickle`) is
checked against the storages' sizes before an array is made.
"""

import io
import math
import pickle
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from preload_jax.errors import DataError, reason, what_instead
from preload_jax.formats.torch_pickle import Other, Storage, Tensor, Unpickler

_ZIP_MAGIC = b"PK\x03\x04"
_LEGACY_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
_LEGACY_PROTOCOL = 1001
# Names that such files have; what is in a file goes before its name.
_SUFFIXES = (".pt", ".pth", ".ckpt", ".tar", ".bin", ".pkl")
# Bytes of pickles; a network of thousands of layers, with its optimiser's state, has less than a tenth.
_MOST_PICKLED = 1 << 23
# A tensor that repeats its storage's numbers (stride 0) may have this many elements; a few bytes cannot claim more.
_MAX_REPEATED = 1 << 20
# Which of several state dicts in a checkpoint is meant, and how deep they may be.
_USUAL_KEYS = ("state_dict", "model_state_dict", "model", "net")
_DEEPEST = 4


def is_one(path: Path) -> bool:
    """Whether a file is to be read here: by its first bytes, and where they say nothing by its name."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        start = file.read(64)
    if start.startswith((_ZIP_MAGIC, _LEGACY_MAGIC)):
        return True
    return path.suffix.lower() in _SUFFIXES and start[8:9] != b"{"


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
        raise DataError(f"{path}: {what_instead(path)}; expected a state dict that torch.save wrote")
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
        members = {member.filename: member for member in archive.infolist()}
        if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
            raise ValueError("its archive is compressed, which torch's never is")
        if sum(member.file_size for member in archive.infolist()) > len(content):
            raise ValueError("its archive's members are larger than the file")
        if all(member.CRC == 0 for member in members.values()):
            # Written with compute_crc32=False.
            for member in members.values():
                member.CRC = None  # type: ignore[assignment]
        pickles = [name for name in members if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError("its archive has no data.pkl" if not pickles else "its archive has several data.pkl")
        if members[pickles[0]].file_size > _MOST_PICKLED:
            raise ValueError(f"its data.pkl has more than {_MOST_PICKLED:,} bytes")
        root = pickles[0].removesuffix("data.pkl")
        byteorder = archive.read(members[f"{root}byteorder"]) if f"{root}byteorder" in members else b"little"
        tensors = _find(Unpickler(io.BytesIO(archive.read(members[pickles[0]]))).load())
        contents = {
            storage.key: _checked(storage, archive.read(members[f"{root}data/{storage.key}"]))
            for storage in {tensor.storage.key: tensor.storage for tensor in tensors.values()}.values()
        }
    return _arrays(tensors, contents, big_endian=byteorder == b"big")


def _read_legacy(content: bytes) -> dict[str, np.ndarray]:
    file = io.BytesIO(content[:_MOST_PICKLED])
    _, protocol, system = (Unpickler(file).load() for _ in range(3))
    if protocol != _LEGACY_PROTOCOL:
        raise ValueError(f"it is not of protocol {_LEGACY_PROTOCOL}")
    unpickler = Unpickler(file)
    tensors = _find(unpickler.load())
    keys = Unpickler(file).load()
    at, contents = file.tell(), {}
    for key in keys:
        storage = unpickler.storages[key]
        (size,) = struct.unpack("<q", content[at : at + 8])
        if size != storage.size:
            raise ValueError(f"a storage of {storage.size} numbers is followed by {size}")
        at += 8
        contents[key] = _checked(storage, content[at : at + size * storage.item_type.itemsize])
        at += size * storage.item_type.itemsize
    return _arrays(tensors, contents, big_endian=not system["little_endian"])


def _find(value: Any) -> dict[str, Tensor]:
    """The tensors of the state dict that a pickle holds, at its top or somewhere below."""
    if not isinstance(value, dict):
        raise ValueError(f"it holds a {type(value).__name__.strip('_')}, not a dictionary")
    found = dict(_state_dicts(value))
    if not found:
        raise ValueError("it holds no state dict: no tensor of it is named *.weight")
    chosen = ["", *_USUAL_KEYS] if len(found) > 1 else list(found)
    for key in chosen:
        if key in found:
            return _only_tensors(found[key])
    raise ValueError(f"it holds several state dicts, {sorted(found)}; save the one that is meant alone")


def _state_dicts(value: dict[Any, Any]) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Dictionaries with a tensor named *.weight, by their paths; each once, however often it is referred to."""
    todo, seen = [("", value, 0)], {id(value)}
    while todo:
        path, part, depth = todo.pop(0)
        if any(isinstance(key, str) and key.endswith(".weight") and isinstance(part[key], Tensor) for key in part):
            yield path, part
        for key, below in part.items():
            if isinstance(below, dict) and id(below) not in seen and depth < _DEEPEST and type(key) in (str, int):
                seen.add(id(below))
                todo.append((f"{path}.{key}".strip("."), below, depth + 1))


def _only_tensors(state_dict: dict[Any, Any]) -> dict[str, Tensor]:
    for key, item in state_dict.items():
        if isinstance(item, Other) and "tensor" in item.kind:
            raise ValueError(
                f"{str(key)[:60] if type(key) is str else 'a value'} is {item.kind}; expected an ordinary one"
            )
    return {key: item for key, item in state_dict.items() if isinstance(key, str) and isinstance(item, Tensor)}


def _checked(storage: Storage, content: bytes) -> bytes:
    if len(content) != storage.size * storage.item_type.itemsize:
        raise ValueError(f"a storage of {storage.size * storage.item_type.itemsize} bytes has {len(content)}")
    return content


def _arrays(tensors: dict[str, Tensor], contents: dict[str, bytes], *, big_endian: bool) -> dict[str, np.ndarray]:
    """Each tensor's numbers; tensors of one storage and type share its memory."""
    items: dict[tuple[str, np.dtype], np.ndarray] = {}
    for tensor in tensors.values():
        key = tensor.storage.key, tensor.item_type
        if key not in items:
            items[key] = _items(contents[tensor.storage.key], tensor.item_type, big_endian=big_endian)
    return {name: _array(tensor, items[tensor.storage.key, tensor.item_type]) for name, tensor in tensors.items()}


def _items(content: bytes, item_type: np.dtype, *, big_endian: bool) -> np.ndarray:
    """A storage's numbers in this machine's (little-endian) byte order."""
    if not big_endian or item_type.itemsize == 1:
        return np.frombuffer(content, item_type)
    # A complex number is two, each with its own byte order.
    width = item_type.itemsize // (2 if item_type.kind == "c" else 1)
    return np.frombuffer(content, f">u{width}").astype(f"<u{width}").view(item_type)


def _array(tensor: Tensor, items: np.ndarray) -> np.ndarray:
    """The tensor, read-only: a view of its storage, or another array where it is negated or conjugated."""
    count = math.prod(tensor.shape)
    if count == 0:
        return np.empty(tensor.shape, items.dtype)
    last = tensor.offset + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.strides, strict=True))
    if last >= len(items):
        raise ValueError(f"a tensor reaches to number {last} of a storage of {len(items)}")
    if count > max(len(items), _MAX_REPEATED):
        raise ValueError(f"a tensor of {count} numbers is made of {len(items)}")
    steps = [step * items.itemsize for step in tensor.strides]
    array = np.lib.stride_tricks.as_strided(items[tensor.offset :], tensor.shape, steps, writeable=False)
    if tensor.conjugated:
        array = np.conjugate(array)
    if tensor.negated:
        array = np.negative(array)
    array.flags.writeable = False
    return array
