"""Lists of images in OpenOOD's form: where the images are found, and what is wrong with a line."""

import numpy as np
import pytest
from PIL import Image

from preload_jax.data import datasets
from preload_jax.data.readers.image_list import find_images
from preload_jax.errors import DataError


@pytest.fixture
def benchmark(tmp_path):
    """OpenOOD's folders, with two images of known grey."""
    images = tmp_path / "data" / "images_classic" / "mnist" / "test"
    images.mkdir(parents=True)
    for name, grey in (("a b.png", 10), ("c.png", 200)):
        Image.fromarray(np.full((6, 6), grey, np.uint8)).save(images / name)
    lists = tmp_path / "data" / "benchmark_imglist" / "mnist"
    lists.mkdir(parents=True)
    path = lists / "test_mnist.txt"
    path.write_text("mnist/test/c.png 7\nmnist/test/a b.png -1\n\n")
    return path


def test_images_are_beside_the_lists_as_openood_has_them(benchmark):
    found = datasets.read_image_list(benchmark, (8, 8, 1))
    assert (found.images.shape, found.images.dtype) == ((2, 8, 8, 1), np.uint8)
    assert found.images[:, 0, 0, 0].tolist() == [200, 10]
    assert (found.labels.tolist(), found.labels.dtype) == ([7, -1], np.int32)


def test_a_root_that_is_given_is_the_only_one(benchmark, tmp_path):
    root = tmp_path / "data" / "images_classic"
    assert find_images(benchmark, root)[0] == [root / "mnist/test/c.png", root / "mnist/test/a b.png"]
    with pytest.raises(DataError, match=r"its first image, mnist/test/c\.png, is not in .*; put the images there"):
        find_images(benchmark, tmp_path)


def test_the_nearest_folder_that_has_the_first_image_wins(benchmark):
    beside = benchmark.parent / "mnist" / "test"
    beside.mkdir(parents=True)
    (beside / "c.png").touch()
    assert find_images(benchmark)[0][0] == beside / "c.png"


def test_an_image_that_is_gone_is_skipped_and_said(benchmark):
    with benchmark.open("a") as file:
        file.write("mnist/test/gone.png 3\n")
    said = []
    found = datasets.read_image_list(benchmark, (8, 8, 1), report=said.append)
    assert found.labels.tolist() == [7, -1]
    assert "skipped 1 of 3 images" in said[0]
    with pytest.raises(DataError, match=r"gone\.png"):
        datasets.read_image_list(benchmark, (8, 8, 1), strict=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty list"),
        (b"\n \n", "an empty list"),
        (b"mnist/test/c.png 7\nmnist/test/c.png\n", "line 2: 'mnist/test/c.png'; expected PATH LABEL"),
        (b"mnist/test/c.png seven\n", "line 1: .*; expected PATH LABEL"),
        (b"mnist/test/c.png 99999999999\n", "line 1: .*; expected PATH LABEL"),
        (b" 3\n", "line 1: '3'; expected PATH LABEL"),
        (b"a\0b.png 3\n", "line 1: .*; expected PATH LABEL"),
        (b"\xff\xfe 3\n", "not a list of images"),
        (b"elsewhere/c.png 3\n", "its first image, elsewhere/c.png, is not in"),
    ],
)
def test_what_is_no_list(benchmark, content, message):
    benchmark.write_bytes(content)
    with pytest.raises(DataError, match=message):
        find_images(benchmark)


def test_no_file(tmp_path):
    with pytest.raises(DataError, match="no such file; expected a list of images"):
        find_images(tmp_path / "list.txt")
    with pytest.raises(DataError, match="a folder, not a file"):
        find_images(tmp_path)


def test_a_list_is_an_ood_set(benchmark):
    digits = datasets.load("digits")
    name = f"list:{benchmark}"
    datasets.check_ood(name)
    images = datasets.load_ood(name, in_domain=datasets.get("digits"), test_images=digits.test.images)
    assert images.shape == (2, 8, 8, 1)
    assert datasets.canonical(f"list:{benchmark.parent}/./{benchmark.name}") == datasets.canonical(name)
    assert datasets.split_list(f"{name},uniform") == (name, "uniform")
    with pytest.raises(DataError, match="no such file"):
        datasets.check_ood("list:none.txt")
