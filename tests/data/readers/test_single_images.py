"""Image files of any kind, size and colour in a network's shape, with what was done to them; and wrong files."""

import numpy as np
import pytest
from PIL import Image

from preload_jax.data.readers import image_files, image_folder, single_images
from preload_jax.errors import DataError

GREY, COLOUR = (8, 8, 1), (8, 8, 3)


def picture(path, size, mode="RGB"):
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), np.uint8)).convert(mode).save(path)
    return path


def test_an_image_that_fits_is_left_alone(tmp_path):
    path = picture(tmp_path / "a.png", (8, 8))
    (found,) = single_images.read([path], COLOUR)
    assert (found.name, found.changes) == (str(path), ())
    np.testing.assert_array_equal(found.image, np.asarray(Image.open(path)))


@pytest.mark.parametrize(
    ("size", "mode", "shape", "changes"),
    [
        ((8, 8), "RGB", GREY, ("turned grey",)),
        ((8, 8), "L", COLOUR, ("given three equal channels",)),
        ((8, 8), "RGBA", COLOUR, ()),
        ((16, 16), "L", GREY, ("resized from 16×16 to 8×8",)),
        ((24, 16), "L", GREY, ("squashed from 24×16 to 8×8",)),
        ((8, 9), "1", GREY, ("squashed from 8×9 to 8×8",)),
        ((5, 200), "P", GREY, ("squashed from 5×200 to 8×8", "turned grey")),
    ],
)
def test_others_are_made_to_fit_and_it_is_said(tmp_path, size, mode, shape, changes):
    (found,) = single_images.read([picture(tmp_path / "a.png", size, mode)], shape)
    assert found.changes == changes
    assert (found.image.shape, found.image.dtype) == (shape, np.uint8)


@pytest.mark.parametrize("shape", [GREY, COLOUR, (6, 10, 3), (32, 32, 3)])
@pytest.mark.parametrize("size", [(8, 8), (16, 16), (200, 100), (100, 200), (8, 9), (5, 200), (3, 3)])
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA"])
def test_the_preparation_is_that_of_training_images_to_the_bit(tmp_path, size, mode, shape):
    path = picture(tmp_path / "a.png", size, mode)
    trained, _ = image_folder.read_squashed([path], shape, where=tmp_path)
    (found,) = single_images.read([path], shape)
    np.testing.assert_array_equal(found.image, trained[0])
    np.save(tmp_path / "a.npy", np.asarray(image_files.read(path).image))
    (found,) = single_images.read([tmp_path / "a.npy"], shape)
    np.testing.assert_array_equal(found.image, trained[0])


def test_arrays(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "a.npy"
    for shape, count in (((8, 8), 1), ((8, 8, 1), 1), ((3, 8, 8, 1), 3)):
        np.save(path, rng.integers(0, 256, shape, np.uint8))
        assert [found.image.shape for found in single_images.read([path], GREY)] == [GREY] * count
    assert [found.name for found in single_images.read([path], GREY)] == [f"{path}[{i}]" for i in range(3)]
    np.save(path, 1e4 * rng.random((2, 8, 8, 3)))
    assert single_images.read([path], COLOUR)[0].image.dtype == np.float32


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 8, 8, 2), np.uint8), r"uint8 \[2, 8, 8, 2\]; expected uint8 or floating point"),
        (np.zeros((8, 8), np.int64), r"int64 \[8, 8\]; expected uint8 or floating point"),
        (np.zeros((0, 8, 8, 1), np.uint8), r"uint8 \[0, 8, 8, 1\]; expected"),
        (np.full((8, 8), np.nan), "holds NaN, infinity or more"),
        (np.zeros((9, 8)), r"floating point \[9, 8, 1\]; expected \[8, 8, 1\], or uint8"),
        (np.array([{}]), "not a readable .npy file"),
    ],
)
def test_wrong_arrays(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataError, match=message):
        single_images.read([tmp_path / "a.npy"], GREY)


def test_wrong_files(tmp_path):
    with pytest.raises(DataError, match="no images; give at least one file"):
        single_images.read([], GREY)
    with pytest.raises(DataError, match="no such file; expected an image"):
        single_images.read([tmp_path / "a.png"], GREY)
    for name in ("x" * 300 + ".png", "a\0b.png"):
        with pytest.raises(DataError, match="no such file; expected an image"):
            single_images.read([tmp_path / name], GREY)
    with pytest.raises(DataError, match=r"is a folder; give the images in it, such as .*/\*\.png"):
        single_images.read([tmp_path], GREY)
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"a\.png: not a readable image"):
        single_images.read([tmp_path / "a.png"], GREY)
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(DataError, match="not an image by its name"):
        single_images.read([tmp_path / "a.txt"], GREY)
