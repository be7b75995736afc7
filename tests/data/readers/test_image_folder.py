"""Which images a folder has: through links, without end, and with those that are gone."""

import os

import pytest
from PIL import Image

from preload_jax.data.readers import image_folder
from preload_jax.errors import DataError


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 8)).save(path)
    return path


def test_links_to_folders_and_files_are_followed(tmp_path):
    image(tmp_path / "else" / "deep" / "1.png")
    image(tmp_path / "root" / "a" / "1.png")
    (tmp_path / "root" / "b").symlink_to(tmp_path / "else")
    (tmp_path / "root" / "a" / "2.png").symlink_to(tmp_path / "root" / "a" / "1.png")
    found = image_folder.find_images(tmp_path / "root")
    assert [str(path.relative_to(tmp_path / "root")) for path in found] == ["a/1.png", "a/2.png", "b/deep/1.png"]


def test_the_folder_itself_may_be_a_link(tmp_path):
    image(tmp_path / "real" / "a.png")
    (tmp_path / "link").symlink_to("real")
    assert image_folder.find_images(tmp_path / "link") == [tmp_path / "link" / "a.png"]


@pytest.mark.parametrize("target", [".", "..", "../..", "{root}/a"])
def test_a_loop_is_one_line(tmp_path, target):
    root = tmp_path / "root"
    image(root / "a" / "b" / "1.png")
    (root / "a" / "b" / "loop").symlink_to(target.format(root=root))
    with pytest.raises(
        DataError, match=r"loop: a link to .*, the folder that it is in, so that it never ends"
    ) as error:
        image_folder.find_images(root)
    assert "\n" not in str(error.value)


def test_two_links_to_each_other(tmp_path):
    for name, other in ("ab", "ba"):
        image(tmp_path / name / "1.png")
        (tmp_path / name / "other").symlink_to(tmp_path / other)
    with pytest.raises(DataError, match="never ends"):
        image_folder.find_images(tmp_path)


def test_a_folder_that_is_there_twice(tmp_path):
    """The same images with two labels, or trained on and tested; thirty links of this kind are a billion paths."""
    image(tmp_path / "cat" / "1.png")
    (tmp_path / "dog").symlink_to("cat")
    with pytest.raises(DataError, match=r"dog: the same folder as .*/cat; remove one of the links"):
        image_folder.find_images(tmp_path)


def test_links_that_lead_nowhere_are_images_that_cannot_be_read(tmp_path):
    image(tmp_path / "1.png")
    for name, target in (("2.png", "nowhere"), ("3.png", "3.png"), ("4", "nowhere")):
        (tmp_path / name).symlink_to(target)
    os.mkfifo(tmp_path / "5.png")
    found = image_folder.find_images(tmp_path)
    assert [path.name for path in found] == ["1.png", "2.png", "3.png", "5.png"]
    said = []
    kept, rows = image_folder.read_images(found, lambda row, _: row, report=said.append)
    assert (kept, rows) == ([0], [0])
    assert said[0].startswith(f"skipped 3 of 4 images; the first: {tmp_path}/2.png: not a readable image (FileNotFound")
    with pytest.raises(DataError, match=r"2\.png"):
        image_folder.read_images(found, lambda row, _: row, strict=True)


def test_what_was_done_to_the_images_is_counted(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in "ab":
        Image.new("L", (8, 6)).save(tmp_path / f"{name}.png", exif=exif)
    Image.new("RGBA", (8, 6)).save(tmp_path / "c.png")
    said = []
    image_folder.read_images(image_folder.find_images(tmp_path), lambda row, _: row, report=said.append)
    assert said == ["2 of 3 images: turned upright (EXIF)", "1 of 3 images: laid over white (transparency)"]


def test_a_folder_with_the_name_of_an_image(tmp_path):
    image(tmp_path / "x.png" / "1.png")
    assert image_folder.find_images(tmp_path) == [tmp_path / "x.png" / "1.png"]


@pytest.mark.parametrize("name", ["n" * 300, "x" * 5_000, "a\0b", "~nobody-of-this-name/x"])
def test_names_that_no_folder_can_have(tmp_path, name):
    with pytest.raises(DataError, match="no such folder"):
        image_folder.find_images(tmp_path / name)


def test_files_that_are_no_images_by_their_names_are_said(tmp_path):
    said = []
    image(tmp_path / "1.png")
    image_folder.find_images(tmp_path, report=said.append)
    for number, ending in enumerate((".a", ".b", ".c", ".d", ".e", ".f", ".f")):
        (tmp_path / f"{number}{ending}").write_bytes(b"")
    assert image_folder.find_images(tmp_path, report=said.append) == [tmp_path / "1.png"]
    counted = "2 of .f, 1 of .a, 1 of .b, 1 of .c, 1 of .d"
    expected = f"left out 7 of 8 files, which are no images by their names ({counted}); the first: "
    assert said == [f"{expected}{tmp_path}/0.a"]
