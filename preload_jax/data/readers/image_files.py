"""Image files, decoded with Pillow: every mode has an answer, and memory and time are bounded by the file's header."""

import contextlib
import math
import stat
import struct
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from preload_jax.errors import DataError, reason

# All that files of `_FORMATS` have.
_OF_PNM, _OF_JPEG = (".pbm", ".pgm", ".pnm", ".ppm"), (".jfif", ".jpe", ".jpeg", ".jpg", ".mpo")
SUFFIXES = frozenset((".apng", ".bmp", ".dib", ".gif", *_OF_JPEG, *_OF_PNM, ".png", ".tif", ".tiff", ".webp"))
# Images of formats that are not read, and what images may be packed in: a folder of these is not one of other things.
NOT_READ = frozenset(
    (
        *(".avif", ".heic", ".heif", ".jxl", ".jp2", ".j2k", ".svg", ".tga", ".pcx", ".psd", ".xcf", ".exr", ".hdr"),
        *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2", ".dcm", ".nii", ".npy", ".npz"),
        *(".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar"),
    )
)
MAX_PIXELS = 2**26  # 67 million; as colour with transparency a quarter of a gigabyte
TURNED, TRANSPARENT = "turned upright (EXIF)", "laid over white (transparency)"
FIRST_FRAME = "cut to the first of several frames"
# No others, whatever a file's name is: Pillow hands some kinds to other programs, and AVIF is too new for Pillow 10.3.
_FORMATS = ("BMP", "DIB", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MAX_FILE = 2**29
_MAX_SCANNED = 2**31  # pixels times scans of a JPEG, each of which goes over the whole image
_LARGE = 2**24  # pixels
_ONE_LARGE = threading.Lock()
_TIFF_KIND, _TIFF_BITS, _TIFF_WHITE_IS, _EXIF_ORIENTATION = 254, 258, 262, 0x0112
_REDUCED, _MOST_REDUCED = 1, 16  # The bit of a TIFF's kind by which a page is a small copy of another.


class RefusedError(ValueError):
    """An image that is whole, but too large or of a kind that is not read."""


@dataclass(frozen=True)
class Picture:
    """A decoded image file.

    Attributes:
      image: a PIL image in mode RGB, or L if the file is grey.
      changes: what was done to it, in words: `TURNED`, `TRANSPARENT`, `FIRST_FRAME`.
    """

    image: Any
    changes: tuple[str, ...] = ()


def read(path: Path, *, shrink_to: tuple[int, int] | None = None) -> Picture:
    """Decodes one image file.

    Photos are turned upright as their EXIF orientation says, transparent images are laid over white, 16-bit grey is
    divided by 256. Of several frames the first is taken.

    Args:
      path: image file.
      shrink_to: (width, height) that is enough; a JPEG is then decoded at the smallest size that is not below it.

    Raises:
      DataError: if Pillow cannot decode the whole file, if it has more than `MAX_PIXELS` pixels, or if its numbers
        have no range of their own (floating point, 32-bit integers).
    """
    try:
        with _opened(path) as file:
            return decode(file, shrink_to=shrink_to)
    except Exception as error:  # Pillow's decoders raise all kinds for damaged files.
        raise _unreadable(path, error) from error


def decode(file: Any, *, shrink_to: tuple[int, int] | None = None, max_pixels: int = MAX_PIXELS) -> Picture:
    """As `read`, of an open file; raises Pillow's own errors, which are of all kinds."""
    scans, several = _count_scans(file), _has_pages(file, max_pixels)
    with _with_header(file, max_pixels) as image:
        several = several or (image.format in ("PNG", "WEBP") and getattr(image, "is_animated", False))
        if shrink_to is not None:
            image.draft(None, shrink_to)
        if scans * image.width * image.height > _MAX_SCANNED:
            raise RefusedError(f"{scans:,} scans of {image.width:,}×{image.height:,} pixels")
        done = _finished(image)
        return Picture(done.image, (*done.changes, FIRST_FRAME)) if several else done


@contextlib.contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """For threads: of the large images only one at a time is decoded and made small."""
    try:
        large = math.prod(describe(path)[0]) > _LARGE
    except DataError:
        large = False
    with _ONE_LARGE if large else contextlib.nullcontext():
        yield


def describe(path: Path) -> tuple[tuple[int, int], bool]:
    """The (width, height) of an image file and whether it is grey, from its header.

    Raises:
      DataError: if it is not an image.
    """
    try:
        with _opened(path) as file, _with_header(file, MAX_PIXELS) as image:
            size = image.size
            if image.format != "TIFF" and _orientation(image) >= 5:  # Pillow turns TIFF itself.
                size = size[::-1]
            return size, image.mode in ("L", "LA", "La") or image.mode.startswith(("1", "I"))
    except Exception as error:
        raise _unreadable(path, error) from error


def to_array(image: Any, size: tuple[int, int]) -> np.ndarray:
    """A PIL image as uint8 [h, w, c], squashed to `size` = (height, width) with antialiasing."""
    from PIL import Image

    height, width = size
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(height, width, -1)


def _unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, RefusedError):
        return DataError(f"{path}: {error}")
    return DataError(f"{path}: not a readable image ({reason(error)})")


def _opened(path: Path) -> IO[bytes]:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError("not a regular file")  # Reading a pipe or a device might never end.
    if status.st_size > _MAX_FILE:
        raise RefusedError(f"{status.st_size:,} bytes; at most {_MAX_FILE:,}")
    return path.open("rb")


@contextlib.contextmanager
def _with_header(file: Any, max_pixels: int) -> Iterator[Any]:
    """The image with its header read, and its size checked before anything of that size is allocated."""
    from PIL import Image

    file.seek(0)
    # Pillow allocates a WebP's canvas already when it opens the file.
    _check_pixels(_webp_size(file.read(30)), max_pixels)
    file.seek(0)
    with warnings.catch_warnings():
        # Of large images: the check below says it better, and refuses them.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        opened = Image.open(file, formats=_FORMATS)
    with opened as image:
        _check_pixels(image.size, max_pixels)
        yield image


def _check_pixels(size: tuple[int, int], most: int) -> None:
    if math.prod(size) > most:
        raise RefusedError(f"{size[0]:,}×{size[1]:,} pixels; at most {most:,} in all")


def _webp_size(head: bytes) -> tuple[int, int]:
    """(width, height) in a WebP's header; (0, 0) for another file."""
    if len(head) < 30 or head[:4] != b"RIFF" or head[8:12] != b"WEBP":
        return 0, 0
    if head[12:16] == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if head[12:16] == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", head, 26)
    return width & 0x3FFF, height & 0x3FFF


def _count_scans(file: Any) -> int:
    """How often a JPEG's decoder has to go over the image; 0 for another file. A hostile one has thousands of scans."""
    file.seek(0)
    content = file.read() if file.read(2) == b"\xff\xd8" else b""
    return content.count(b"\xff\xda")  # Inside a scan 0xFF is always followed by 0.


def _has_pages(file: Any, max_pixels: int) -> bool:
    """Whether a GIF has more frames, or a TIFF another page that is no small copy; False for formats that say it."""
    file.seek(0)
    if not file.read(4).startswith((b"GIF8", b"II", b"MM")):
        return False
    with _with_header(file, max_pixels) as image:
        try:
            if image.format != "TIFF":
                return getattr(image, "is_animated", False)
            for page in range(1, 1 + _MOST_REDUCED):
                image.seek(page)
                if not image.tag_v2.get(_TIFF_KIND, 0) & _REDUCED:
                    return True
        except EOFError:
            return False
        except Exception:  # Another that cannot be read is one, too.
            return True
    return False


def _orientation(image: Any) -> int:
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # Damaged notes beside a good image.
        return 1


def _finished(image: Any) -> Picture:
    from PIL import Image

    turns = Image.Transpose
    turn = {  # orientation → what makes it upright
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_270,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_90,
    }
    _scale_transparent_level(image)
    # Pillow turns a TIFF when it is loaded, and then it has no orientation any more.
    turned = image.format == "TIFF" and _orientation(image) in turn
    image.load()
    plain, changes = _plain(image)
    method = turn.get(_orientation(image))
    if turned:
        changes = (TURNED, *changes)
    elif method is not None:
        plain, changes = plain.transpose(method), (TURNED, *changes)
    return Picture(plain, changes)


def _scale_transparent_level(image: Any) -> None:
    """Makes a PNG's transparent level what its pixels will be: Pillow scales grey of 2 and 4 bits, but not the level.

    Raises:
      RefusedError: for colours of 16 bits, of which Pillow keeps 8: several would be taken for the transparent one.
    """
    if image.format != "PNG" or "transparency" not in image.info or not image.tile:
        return
    raw_mode = image.tile[0][3]
    if raw_mode == "RGB;16B":
        raise RefusedError("16-bit colour with a transparent colour; convert it to 8 bits")
    if raw_mode in ("L;2", "L;4"):
        largest = 2 ** int(raw_mode[-1]) - 1
        image.info["transparency"] = (image.info["transparency"] & largest) * 255 // largest


def _plain(image: Any) -> tuple[Any, tuple[str, ...]]:
    """The image in mode L or RGB, and what had to be done."""
    mode = image.mode
    if mode == "F":
        raise RefusedError("floating-point numbers (mode F), whose range nothing says; convert it to 8 or 16 bits")
    if mode.startswith("I"):
        return _sixteen_bits(image), ()
    grey = mode in ("1", "L", "LA", "La")
    if image.has_transparency_data:
        return _over_white(image, grey)
    return (image if mode in ("L", "RGB") else image.convert("L" if grey else "RGB")), ()


def _over_white(image: Any, grey: bool) -> tuple[Any, tuple[str, ...]]:
    from PIL import Image

    if image.mode in ("RGBa", "La"):
        image = image.convert(f"{image.mode[:-1]}A")
    elif image.mode not in ("RGBA", "LA"):
        image = image.convert("RGBA")
    alpha = image.getchannel("A")
    if alpha.getextrema() == (255, 255):
        return image.convert("L" if grey else "RGB"), ()
    background = Image.new("L" if grey else "RGB", image.size, "white")
    background.paste(image, mask=alpha)
    return background, (TRANSPARENT,)


def _sixteen_bits(image: Any) -> Any:
    """16-bit grey as 8 bits. Pillow itself would clip it to white, and 32-bit integers to black and white."""
    from PIL import Image

    if image.mode == "I" and image.format not in ("PNG", "PPM"):  # These two have 16 bits in this mode.
        raise RefusedError(
            "integers with a sign or of 32 bits (mode I), whose range nothing says; convert it to 8 or 16 bits"
        )
    if "transparency" in image.info:
        raise RefusedError("16-bit grey with a transparent level; convert it to 8 bits")
    bits = 16
    if image.format == "TIFF":
        bits = int(image.tag_v2.get(_TIFF_BITS, (16,))[0])
        if image.tag_v2.get(_TIFF_WHITE_IS) == 0:
            raise RefusedError("16-bit grey with 0 for white; convert it to 8 bits")
    return Image.fromarray((np.asarray(image).astype(np.int64) >> (bits - 8)).clip(0, 255).astype(np.uint8))
