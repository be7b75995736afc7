"""Arrays by name in one .npz file, always the same bytes for the same arrays, with a digest.

Any reader of .npz files can read it. The digest is the archive's comment: the checksums of its members do not cover the
headers that say shape and type.
"""

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from preload_jax.errors import DataError, reason
from preload_jax.formats import digests, files

_PREFIX = b"sha256:"


def dumps(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of an uncompressed .npz file."""
    plain = {name: np.array(arrays[name], order="C") for name in sorted(arrays)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in plain.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            # A date of its own would make the bytes differ.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())
        archive.comment = _PREFIX + digests.of_tree(plain).encode()
    return buffer.getvalue()


def read(path: Path, *, most: int = 1 << 32) -> dict[str, np.ndarray]:
    """The arrays of a file that `dumps` made; of one without a digest, too.

    Args:
        path: of the file.
        most: its bytes at most.

    Raises:
        DataError: when it is damaged, or compressed.
        OSError: when there is no such file, or it cannot be read.
    """
    content = files.read_bytes(path, most=most)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            comment, members = archive.comment, archive.infolist()
            # So nothing becomes larger than the file.
            if sum(member.file_size for member in members) > len(content):
                raise ValueError("its members are larger than the file")
            arrays = {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}
            if len(arrays) != len(members):
                raise ValueError("a name is there twice")
    except Exception as error:  # zipfile and NumPy raise all kinds for damaged files.
        raise DataError(f"{path} is not a readable .npz file ({reason(error)})") from None
    if comment and comment != _PREFIX + digests.of_tree(arrays).encode():
        raise DataError(f"{path} does not have the digest that was written with it")
    return arrays


def _array(content: bytes) -> np.ndarray:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(file)
    # What the header claims is compared with what is there, before an array of that size is made.
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"an array of {list(shape)} {dtype} is followed by {len(content) - file.tell()} bytes")
    values = np.frombuffer(content, dtype, offset=file.tell())
    return values.reshape(shape, order="F" if fortran else "C")
