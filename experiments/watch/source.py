"""Where the watched images come from: files, folders, or standard input."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from preload_jax.data.readers import array_files, image_folder, single_images
from preload_jax.data.readers.single_images import SingleImage
from preload_jax.errors import DataError

Shape = tuple[int, int, int]
# A name, and what reads the images of that name, or raises a DataError.
Source = Iterator[tuple[str, Callable[[], list[SingleImage]]]]

_STDIN = Path("-")
_NPY = b"\x93NUMPY"


def images(paths: Sequence[Path], shape: Shape) -> Source:
    """The images of files and folders in the order given; of standard input where there are none, or for "-".

    Raises:
        DataError: for a folder without images.
    """
    for path in paths or (_STDIN,):
        if path == _STDIN:
            yield from _of_stdin(shape)
        elif path.is_dir():
            yield from _of_files(image_folder.find_images(path), shape)
        else:
            yield from _of_files([path], shape)


def _of_files(paths: Sequence[Path], shape: Shape) -> Source:
    for path in paths:
        yield str(path), partial(single_images.read, [path], shape)


def _of_stdin(shape: Shape) -> Source:
    """Of names of files, one a line, or of .npy arrays, one after another: its first bytes tell."""
    stream: Any = sys.stdin.buffer
    start = stream.peek(len(_NPY))[: len(_NPY)]
    if start == _NPY:
        yield from _of_arrays(shape)
        return
    for line in stream:
        if name := line.rstrip(b"\r\n"):
            yield from _of_files([Path(_decoded(name))], shape)


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise DataError(
            f"standard input begins a line with {name[:16]!r}; expected names of images, one a line, or .npy arrays"
        ) from None


def _of_arrays(shape: Shape) -> Source:
    stream: Any = sys.stdin.buffer
    for number in count():
        if not stream.peek(1):
            return
        name = f"stdin[{number}]"
        # An array that cannot be read leaves nobody knowing where the next begins.
        array = array_files.read_next(stream, name)
        yield name, partial(single_images.of_array, name, array, shape)
