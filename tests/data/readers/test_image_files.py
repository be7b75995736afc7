"""Every mode, orientation and transparency has an answer, and nothing large is decoded."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from preload_jax.data.readers import image_files
from preload_jax.data.readers.image_files import FIRST_FRAME, SUFFIXES, TRANSPARENT, TURNED
from preload_jax.errors import DataError

COLOURS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


def read(path):
    picture = image_files.read(path)
    return np.asarray(picture.image), picture.changes


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "LA", "PA"])
def test_modes_of_eight_bits_are_what_pillow_makes_of_them(tmp_path, mode):
    image = Image.fromarray(COLOURS)
    image = image.convert("RGBA").convert("PA") if mode == "PA" else image.convert(mode)
    image.save(tmp_path / "x.tif")
    found, changes = read(tmp_path / "x.tif")
    expected = Image.open(tmp_path / "x.tif").convert("L" if mode in ("1", "L", "LA") else "RGB")
    np.testing.assert_array_equal(found, np.asarray(expected))
    assert changes == ()


@pytest.mark.parametrize("name", ["x.png", "x.tif", "x.ppm"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_sixteen_bits_are_divided_by_256(tmp_path, name, order):
    values = np.array([[0, 255, 256, 257], [32_768, 65_279, 65_280, 65_535]], f"{order}u2")
    if name == "x.ppm" and order == ">":
        values = values.astype("<u2")  # Pillow writes no other.
    Image.fromarray(values).save(tmp_path / name)
    assert read(tmp_path / name)[0].tolist() == [[0, 0, 1, 1], [128, 254, 255, 255]]


def twelve_bit_tiff(path, values):
    """Grey of 12 bits, which no library here writes: two numbers in three bytes."""
    height, width = values.shape
    bits = "".join(f"{value:012b}" for value in values.ravel())
    data = int(bits, 2).to_bytes(len(bits) // 8, "big")
    tags = [
        (256, width),
        (257, height),
        (258, 12),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, height),
        (279, len(data)),
    ]
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8 + len(data)) + data + directory + bytes(4))


def test_twelve_bits_are_divided_by_16(tmp_path):
    twelve_bit_tiff(tmp_path / "x.tif", np.array([[0, 16], [2_048, 4_095]]))
    assert read(tmp_path / "x.tif")[0].tolist() == [[0, 1], [128, 255]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.arange(64, dtype=np.int32).reshape(8, 8), r"x.tif: integers with a sign or of 32 bits \(mode I\)"),
        (np.full((8, 8), 70_000, np.int32), r"\(mode I\), whose range nothing says; convert it to 8 or 16 bits"),
        (np.ones((8, 8), np.float32), r"x.tif: floating-point numbers \(mode F\), whose range nothing says"),
    ],
)
def test_numbers_without_a_range_are_refused_by_name(tmp_path, values, message):
    Image.fromarray(values).save(tmp_path / "x.tif")
    with pytest.raises(DataError, match=message):
        image_files.read(tmp_path / "x.tif")


def test_white_is_zero_is_refused_with_sixteen_bits_and_read_with_eight(tmp_path):
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    Image.fromarray(255 - grey).save(tmp_path / "x.tif", tiffinfo={262: 0})
    np.testing.assert_array_equal(read(tmp_path / "x.tif")[0], 255 - grey)
    Image.fromarray(256 * grey.astype(np.uint16)).save(tmp_path / "x.tif", tiffinfo={262: 0})
    with pytest.raises(DataError, match="16-bit grey with 0 for white"):
        image_files.read(tmp_path / "x.tif")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["x.png", "x.tif", "x.webp"])
def test_photos_are_turned_upright(tmp_path, orientation, name):
    upright = Image.fromarray(COLOURS)
    # What a camera that was held so stores: the inverse of the turn that the orientation asks for.
    turns = Image.Transpose
    back = [
        None,
        turns.FLIP_LEFT_RIGHT,
        turns.ROTATE_180,
        turns.FLIP_TOP_BOTTOM,
        turns.TRANSPOSE,
        turns.ROTATE_90,
        turns.TRANSVERSE,
        turns.ROTATE_270,
    ][orientation - 1]
    stored, exif = upright if back is None else upright.transpose(back), Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / name, exif=exif, **({"lossless": True} if name == "x.webp" else {}))
    found, changes = read(tmp_path / name)
    np.testing.assert_array_equal(found, COLOURS)
    assert changes == (() if orientation == 1 else (TURNED,))
    assert image_files.describe(tmp_path / name) == ((8, 6), False)


@pytest.mark.parametrize("value", [0, 9, 65_535])
def test_orientations_that_do_not_exist_are_left(tmp_path, value):
    exif = Image.Exif()
    exif[0x0112] = value
    Image.fromarray(COLOURS).save(tmp_path / "x.png", exif=exif)
    assert read(tmp_path / "x.png")[1] == ()


def test_damaged_notes_do_not_cost_the_image(tmp_path):
    Image.fromarray(COLOURS).save(tmp_path / "x.png", exif=b"Exif\0\0" + b"II*\0\xff\xff\xff\xff" + bytes(9))
    np.testing.assert_array_equal(read(tmp_path / "x.png")[0], COLOURS)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_images_are_laid_over_white_and_it_is_said(tmp_path, mode):
    image = Image.fromarray(COLOURS).convert(mode)
    alpha = np.zeros(COLOURS.shape[:2], np.uint8)
    alpha[:, :4], alpha[:, 4:6] = 255, 128
    image.putalpha(Image.fromarray(alpha))
    image.save(tmp_path / "x.png")
    found, changes = read(tmp_path / "x.png")
    colours = np.asarray(Image.fromarray(COLOURS).convert("RGB" if mode == "RGBA" else "L")).astype(float)
    weight = (alpha / 255).reshape(6, 8, 1) if mode == "RGBA" else alpha / 255
    np.testing.assert_allclose(found, weight * colours + (1 - weight) * 255, atol=1)
    assert changes == (TRANSPARENT,)


@pytest.mark.parametrize("mode", ["P", "L", "RGB"])
def test_a_transparent_level_is_laid_over_white(tmp_path, mode):
    image = Image.new(mode, (4, 4), 0)
    image.putpixel((0, 0), 9 if mode != "RGB" else (9, 9, 9))
    image.save(tmp_path / "x.png", transparency=(0, 0, 0) if mode == "RGB" else 0)
    found, changes = read(tmp_path / "x.png")
    assert (found.reshape(16, -1)[1:] == 255).all()
    assert (found[0, 0] != 255).all()
    assert changes == (TRANSPARENT,)


def png(width, *, bits, colour_type, row, transparent, palette=b""):
    """A PNG of one row, in a depth that Pillow does not write."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, bits, colour_type, 0, 0, 0))
    colours = chunk(b"PLTE", palette) if palette else b""
    rest = chunk(b"tRNS", transparent) + chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + colours + rest


@pytest.mark.parametrize(("bits", "level"), [(b, n) for b in (1, 2, 4, 8) for n in range(0, 2**b, max(1, 2**b // 16))])
@pytest.mark.parametrize("above", [0, 512])
def test_a_transparent_level_of_any_depth(tmp_path, bits, level, above):
    """Every level beside each other; bits of the transparent one beyond the depth do not count."""
    if bits == 1 and above:
        pytest.skip("Pillow has forgotten which bits they were")
    levels = range(2**bits)
    text = "".join(f"{value:0{bits}b}" for value in levels).ljust(8, "0")
    row = int(text, 2).to_bytes(len(text) // 8, "big")
    transparent = struct.pack(">H", level + above)
    (tmp_path / "x.png").write_bytes(png(2**bits, bits=bits, colour_type=0, row=row, transparent=transparent))
    found, changes = read(tmp_path / "x.png")
    assert found.tolist() == [[255 if value == level else value * 255 // (2**bits - 1) for value in levels]]
    assert changes == (TRANSPARENT,)


def test_a_transparent_level_that_no_pixel_has_changes_nothing(tmp_path):
    (tmp_path / "x.png").write_bytes(png(2, bits=2, colour_type=0, row=b"\x20", transparent=b"\0\1"))
    found, changes = read(tmp_path / "x.png")
    assert (found.tolist(), changes) == ([[0, 170]], ())


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_transparent_colour_of_a_palette(tmp_path, bits):
    row = (1 << (8 - 2 * bits) if bits < 8 else 1).to_bytes(1 if bits < 8 else 2, "big")
    palette = bytes((10, 20, 30, 40, 50, 60))
    content = png(2, bits=bits, colour_type=3, row=row, transparent=b"\xff\0", palette=palette)
    (tmp_path / "x.png").write_bytes(content)
    found, changes = read(tmp_path / "x.png")
    assert (found.tolist(), changes) == ([[[10, 20, 30], [255, 255, 255]]], (TRANSPARENT,))


@pytest.mark.parametrize("colour", [(0, 0, 0), (1_000, 2_000, 3_000), (65_535, 65_535, 65_535)])
def test_a_transparent_colour_of_sixteen_bits_is_refused(tmp_path, colour):
    """Of two colours that are one in 8 bits only one is transparent."""
    row = struct.pack(">6H", *colour, *(value ^ 1 for value in colour))
    content = png(2, bits=16, colour_type=2, row=row, transparent=struct.pack(">3H", *colour))
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(DataError, match=r"x.png: 16-bit colour with a transparent colour; convert it to 8 bits"):
        image_files.read(tmp_path / "x.png")


KINDS = {
    "PNG": (".png", ".apng"),
    "JPEG": (".jfif", ".jpe", ".jpeg", ".jpg"),
    "MPO": (".mpo",),
    "PPM": (".pnm", ".ppm"),
    "BMP": (".bmp",),
    "DIB": (".dib",),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}


@pytest.mark.parametrize(("kind", "suffix"), [(kind, suffix) for kind, names in KINDS.items() for suffix in names])
def test_every_ending_that_is_listed_is_read(tmp_path, kind, suffix):
    colours = np.zeros((16, 24, 3), np.uint8)
    colours[:, 8:16], colours[:, 16:] = (250, 10, 20), (90, 200, 160)
    Image.fromarray(colours).save(tmp_path / f"x{suffix}", kind, **({"lossless": True} if kind == "WEBP" else {}))
    found, changes = read(tmp_path / f"x{suffix}")
    np.testing.assert_allclose(found[:, 4::8].astype(int), colours[:, 4::8].astype(int), atol=12)
    assert (found.shape, changes) == (colours.shape, ())
    assert image_files.describe(tmp_path / f"x{suffix}") == ((24, 16), False)


@pytest.mark.parametrize(
    ("suffix", "content", "grey"),
    [
        (".pbm", b"P1\n4 1\n0 1 1 0\n", [255, 0, 0, 255]),
        (".pbm", b"P4\n4 1\n\x60", [255, 0, 0, 255]),
        (".pnm", b"P4\n4 1\n\x60", [255, 0, 0, 255]),
        (".pgm", b"P5\n4 1\n255\n\x00\x07\x80\xff", [0, 7, 128, 255]),
        (".pnm", b"P2\n4 1\n255\n0 7 128 255\n", [0, 7, 128, 255]),
    ],
)
def test_portable_maps_are_read(tmp_path, suffix, content, grey):
    (tmp_path / f"x{suffix}").write_bytes(content)
    assert read(tmp_path / f"x{suffix}")[0].tolist() == [grey]
    assert image_files.describe(tmp_path / f"x{suffix}") == ((4, 1), True)


def test_every_ending_is_tested():
    assert {suffix for names in KINDS.values() for suffix in names} | {".pbm", ".pgm"} == SUFFIXES


def test_of_several_frames_the_first_is_taken(tmp_path):
    frames = [Image.new("L", (8, 8), value) for value in (40, 90, 200)]
    for name in ("x.gif", "x.tif", "x.webp"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        np.testing.assert_allclose(read(tmp_path / name)[0], 40, atol=3)


def png_of_size(width, height):
    """A PNG whose header says so, without the pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100)))


def webp_of_size(width, height):
    body = (
        b"WEBPVP8X" + struct.pack("<II", 10, 0) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body + bytes(50)


def bmp_of_size(width, height):
    return b"BM" + struct.pack("<IHHI", 200, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, *[0] * 6)


@pytest.mark.parametrize(
    "content", [png_of_size(13_300, 13_300), webp_of_size(16_000, 9_000), bmp_of_size(15_000, 9_000)]
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_large_images_are_refused_by_their_header(tmp_path, content):
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(DataError, match=r"x.png: [\d,]+×[\d,]+ pixels; at most 67,108,864 in all"):
        image_files.read(tmp_path / "x.png")


def test_a_jpeg_of_thousands_of_scans_is_refused(tmp_path):
    buffer = io.BytesIO()
    Image.new("L", (4_000, 4_000)).save(buffer, "JPEG", progressive=True)
    content = buffer.getvalue()
    scan = content.rindex(b"\xff\xda")
    (tmp_path / "x.jpg").write_bytes(content[:-2] + content[scan:-2] * 3_000 + content[-2:])
    with pytest.raises(DataError, match=r"3,0\d\d scans of 4,000×4,000 pixels"):
        image_files.read(tmp_path / "x.jpg")


def test_files_that_are_no_images_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "self.png").symlink_to("self.png")
    (tmp_path / "gone.png").symlink_to("nowhere.png")
    for name in ("pipe.png", "zero.png"):
        with pytest.raises(DataError, match=f"{name}: not a regular file"):
            image_files.read(tmp_path / name)
    for name in ("self.png", "gone.png"):
        with pytest.raises(DataError, match=f"{name}: not a readable image"):
            image_files.read(tmp_path / name)


@pytest.mark.parametrize("kind", ["EPS", "ICO", "TGA", "PDF", "ICNS"])
def test_other_kinds_of_file_are_not_tried(tmp_path, kind):
    """Pillow tells a file by its content, and hands EPS to another program."""
    Image.new("RGB", (16, 16)).save(tmp_path / "x", kind)
    (tmp_path / "x").rename(tmp_path / "x.png")
    with pytest.raises(DataError, match="not a readable image"):
        image_files.read(tmp_path / "x.png")


@pytest.mark.parametrize("name", ["x.gif", "x.png", "x.tif", "x.webp"])
def test_of_several_frames_it_is_said_that_the_first_is_taken(tmp_path, name):
    frames = [Image.fromarray(np.full((4, 6, 3), level, np.uint8)) for level in (0, 100, 200)]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
    found, changes = read(tmp_path / name)
    assert found.max() == 0
    assert changes == (FIRST_FRAME,)
    frames[0].save(tmp_path / name)
    assert read(tmp_path / name)[1] == ()


def test_a_small_copy_beside_a_tiff_is_no_other_frame(tmp_path):
    image = Image.fromarray(np.zeros((40, 60, 3), np.uint8))
    kind = TiffImagePlugin.ImageFileDirectory_v2()
    kind[254] = 1
    small = image.resize((6, 4))
    small.encoderinfo = {"tiffinfo": kind}
    image.save(tmp_path / "x.tif", save_all=True, append_images=[small])
    found, changes = read(tmp_path / "x.tif")
    assert (found.shape, changes) == ((40, 60, 3), ())
