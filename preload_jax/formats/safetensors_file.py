"""Safetensors files: arrays and text by name, always the same bytes for the same content."""

import json
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from preload_jax.errors import DataError, reason, what_instead

_ITEM_TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "U8": np.uint8,
}
# What a file may hold.
TYPES = tuple(np.dtype(each) for each in _ITEM_TYPES.values())
# Bytes; the reader takes no longer one.
_LONGEST_HEADER = 100_000_000


def dumps(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a file."""
    content = safetensors.numpy.save(dict(arrays), metadata=dict(metadata))
    # The library writes the metadata in an order that changes from call to call.
    length = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # the numbers begin at a multiple of 8
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Metadata and arrays of any safetensors file.

    Raises:
        DataError: when it is missing, damaged, no such file, or holds numbers of another type.
    """
    if not path.is_file():
        raise DataError(f"{path}: {what_instead(path)}; expected a .safetensors file, or what torch.save writes")
    content = path.read_bytes()
    if path.suffix.lower() != ".safetensors" and content[8:9] != b"{":
        raise DataError(f"{path}: unknown kind of weights; expected a .safetensors file, or what torch.save writes")
    return loads(content, path)


def loads(content: bytes, where: object) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Metadata and arrays of a file's bytes; `where` is what a DataError calls it."""
    try:
        # The reader checks every offset; the metadata is in the header, whose length comes first.
        tensors = safetensors.deserialize(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        arrays = {
            name: np.frombuffer(item["data"], _ITEM_TYPES[item["dtype"]]).reshape(item["shape"])
            for name, item in tensors
        }
    except KeyError as error:
        raise DataError(f"{where}: holds numbers of type {error}; expected one of {sorted(_ITEM_TYPES)}") from None
    except Exception as error:  # The reader has one exception for all damage; what it lets through may raise others.
        raise DataError(
            f"{where}: not a readable safetensors file ({reason(error)}); copy or export it again"
        ) from None
    return header.get("__metadata__") or {}, arrays


def peek(path: Path) -> dict[str, str]:
    """The metadata alone of a plain file; nothing is read that the file's own size does not bear out.

    Raises:
        DataError: when its header does not describe a file of its size.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(size - 8, _LONGEST_HEADER):
                raise ValueError(f"{size:,} bytes, {length:,} of them of a header")
            header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        claimed = max((item["data_offsets"][1] for item in header.values()), default=0)
        if 8 + length + claimed != size:
            raise ValueError(f"{size:,} bytes where the header tells of {8 + length + claimed:,}")
        return {str(name): str(text) for name, text in metadata.items()}
    except OSError:
        raise
    except Exception as error:  # A header may be any JSON.
        raise DataError(f"{path}: not a readable safetensors file ({reason(error)}); copy or export it again") from None
