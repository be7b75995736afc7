"""The key of a listing is another where files have other content, even of the same sizes and times."""

import os
import time

import numpy as np
import pytest
from PIL import Image

from preload_jax.data.cache import listing_key
from preload_jax.data.outliers import folder_crops
from preload_jax.data.own_folder import list_folder, read

LEVELS = {"cat": 10, "dog": 200}


@pytest.fixture
def photos(tmp_path):
    """Two folders of images of one size and one time, as reproducible archives are unpacked."""
    for name, level in LEVELS.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            path = tmp_path / "photos" / name / f"{number}.bmp"
            Image.fromarray(np.full((8, 8), level, np.uint8)).save(path)
            os.utime(path, (1e9, 1e9))
    return tmp_path / "photos"


def exchange_folders(photos):
    (photos / "cat").rename(photos / "other")
    (photos / "dog").rename(photos / "cat")
    (photos / "other").rename(photos / "dog")


def exchange_files(photos):
    for number in range(2):
        (photos / "cat" / f"{number}.bmp").rename(photos / "other")
        (photos / "dog" / f"{number}.bmp").rename(photos / "cat" / f"{number}.bmp")
        (photos / "other").rename(photos / "dog" / f"{number}.bmp")


def write_over(photos):
    time.sleep(0.05)  # The clock of a file system may be coarse.
    for number in range(2):
        cat, dog = (photos / name / f"{number}.bmp" for name in LEVELS)
        contents = cat.read_bytes(), dog.read_bytes()
        for path, content in zip((dog, cat), contents, strict=True):
            path.write_bytes(content)
            os.utime(path, (1e9, 1e9))


@pytest.mark.parametrize("change", [exchange_folders, exchange_files, write_over])
def test_images_that_changed_places_are_read_again(photos, tmp_path, change):
    def levels():
        listing = list_folder(photos)
        train = read(listing, (8, 8, 1), data_dir=tmp_path)["train"]
        names = [listing.class_names[label] for label in train.labels]
        return list(zip(names, train.images.mean((1, 2, 3)).astype(int).tolist(), strict=True))

    assert levels() == [("cat", 10), ("cat", 10), ("dog", 200), ("dog", 200)]
    change(photos)
    assert levels() == [("cat", 200), ("cat", 200), ("dog", 10), ("dog", 10)]


@pytest.mark.parametrize("change", [exchange_folders, exchange_files, write_over])
def test_crops_of_a_folder_whose_images_changed_are_made_again(photos, tmp_path, change):
    def crops():
        made = folder_crops(photos / "cat", image_shape=(4, 4, 1), num_crops=2, seed=0, data_dir=tmp_path)
        return np.unique(made).tolist()

    assert crops() == [10]
    change(photos)
    assert crops() == [200]


def test_the_key_stays_while_the_files_do(photos):
    paths = sorted(photos.rglob("*.bmp"))
    assert listing_key(paths) == listing_key(paths)
    assert listing_key(paths) != listing_key(paths, "more")
    assert listing_key(paths) != listing_key(paths[1:])
    missing = photos / "none.bmp"
    missing.symlink_to("none.bmp")
    assert listing_key([missing]) == listing_key([missing])
