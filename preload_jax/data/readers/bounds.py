"""How much a file may hold: asked before anything is allocated, unpacked or written.

A small file may unpack to any size. What a published file may hold is in the catalogue, and what a file of the user's
own may hold is what its header declares and the machine has room for.
"""

import contextlib
import os
import resource
import zlib
from pathlib import Path
from typing import IO, Any

from preload_jax.errors import DataError, reason, require_plain_file

_BLOCK = 2**20
_GZIP = b"\x1f\x8b"


def free_memory() -> int:
    """Bytes that this process may still allocate, as far as the system tells."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # Not in a container, or in one without a limit.
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        free = min(free, limit - _address_space())
    return free


def _address_space() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # Not Linux.
        return 0


def require_memory(where: object, size: int, *, copies: int = 1) -> None:
    """Raises DataError unless there is room for `copies` times `size` bytes."""
    if size * copies > (free := free_memory()):
        raise DataError(f"{where}: holds {size / 1e6:,.0f} MB; there is room for {max(0, free) / copies / 1e6:,.0f} MB")


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a file, unpacked if it is gzipped (told from its first two bytes, not from its name).

    Args:
      path: a file.
      limit: bytes that it may hold, unpacked.

    Raises:
      DataError: for a damaged gzip file, and for one that holds more.
    """
    require_plain_file(path)
    with path.open("rb") as file:
        head = file.read(2)
        file.seek(0)
        content = _unzipped(file, path, limit) if head == _GZIP else file.read(limit + 1)
    if len(content) > limit:
        raise too_large(path, limit)
    return content


def too_large(where: object, limit: int) -> DataError:
    """The error for a file that holds more than `limit` bytes."""
    return DataError(f"{where}: holds more than {limit:,} bytes, which is more than the published file has")


def _unzipped(file: Any, path: Path, limit: int) -> bytes:
    """The content of a gzip file, which may have several members, up to one byte more than `limit`."""
    content, packed = bytearray(), b""
    try:
        while packed or (packed := file.read(_BLOCK)):
            if content and not packed.strip(b"\0"):
                packed = b""  # Zeros after the last member are padding.
                continue
            unpacker = zlib.decompressobj(wbits=31)
            while not unpacker.eof and len(content) <= limit:
                if not packed and not (packed := file.read(_BLOCK)):
                    raise EOFError("it ends in the middle")
                content += unpacker.decompress(packed, limit + 1 - len(content))
                packed = unpacker.unconsumed_tail
            if len(content) > limit:
                break
            packed = unpacker.unused_data
    except (EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: damaged or truncated gzip file ({reason(error)}); copy or download it again"
        ) from error
    return bytes(content)


def copy(file: Any, target: IO[bytes], limit: int, where: object) -> None:
    """Copies a file's content; a DataError as soon as it is more than `limit` bytes."""
    left = limit
    while block := file.read(min(_BLOCK, left + 1)):
        left -= len(block)
        if left < 0:
            raise too_large(where, limit)
        target.write(block)


class AtMost:
    """A file of which at most `limit` bytes can be read."""

    def __init__(self, file: Any, limit: int, where: object):
        self.file, self.limit, self.where, self.left = file, limit, where, limit

    def read(self, size: int) -> bytes:
        """Reads on; a DataError once it is too much."""
        content = self.file.read(size)
        self.left -= len(content)
        if self.left < 0:
            raise too_large(self.where, self.limit)
        return content
