"""The digest of the user's own data: other for every change that divides it otherwise, the same where it moved."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from preload_jax.data import own_data, own_digest
from tests import published_files


def digest(path):
    return own_digest.of(own_data.describe(f"folder:{path}" if path.is_dir() else str(path)))


def add(folder):
    shutil.copy(folder / "a" / "00.bmp", folder / "a" / "99.bmp")


def remove(folder):
    (folder / "b" / "03.bmp").unlink()


def rename(folder):
    (folder / "b" / "03.bmp").rename(folder / "b" / "33.bmp")


def move(folder):
    (folder / "b" / "03.bmp").rename(folder / "a" / "33.bmp")


def exchange(folder):
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        (folder / old).rename(folder / new)


def resize(folder):
    for path in folder.rglob("*.bmp"):
        Image.open(path).resize((7, 7)).save(path)


def rename_class(folder):
    (folder / "b").rename(folder / "d")


@pytest.mark.parametrize("change", [add, remove, rename, move, exchange, resize, rename_class])
@pytest.mark.parametrize("below", [".", "train"])
def test_a_changed_folder_has_another(tmp_path, change, below):
    # All files have one size.
    published_files.image_folder(tmp_path / below, suffix="bmp")
    if below != ".":
        published_files.image_folder(tmp_path / "test", suffix="bmp", seed=1)
    before = digest(tmp_path)
    change(tmp_path / below)
    if change is rename_class and below != ".":
        change(tmp_path / "test")
    assert digest(tmp_path) != before


def test_a_folder_that_moved_or_was_copied_has_the_same(tmp_path):
    folder = published_files.image_folder(tmp_path / "photos")
    before = digest(folder)
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    (tmp_path / "link").symlink_to(folder)
    (folder / "a" / "notes.txt").write_text("no image")
    for path in folder.rglob("*.png"):
        os.utime(path, (0, 0))
    assert {digest(tmp_path / name) for name in ("photos", "copy", "link")} == {before}


def test_what_cannot_be_read_counts_too(tmp_path):
    folder = published_files.image_folder(tmp_path / "photos")
    before = digest(folder)
    os.mkfifo(folder / "a" / "-.png")
    with_pipe = digest(folder)
    (folder / "b" / "-.png").symlink_to(tmp_path / "nothing")
    assert len({before, with_pipe, digest(folder)}) == 3


def test_arrays(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "own.npz"
    images, labels = rng.integers(0, 256, (12, 8, 8), np.uint8), np.repeat([0, 1], 6)
    np.savez(path, images=images, labels=labels)
    before = digest(path)
    np.savez_compressed(tmp_path / "packed.npz", labels=labels, images=images, notes=np.zeros(3))
    assert digest(tmp_path / "packed.npz") == before
    found = {before}
    for i, (one, other) in enumerate(((images[::-1], labels), (images, 1 - labels), (images[:11], labels[:11]))):
        np.savez(tmp_path / f"{i}.npz", images=one, labels=other)
        found.add(digest(tmp_path / f"{i}.npz"))
    assert len(found) == 4


def test_files_of_one_size_that_exchanged_their_places_have_another(tmp_path):
    published_files.image_folder(tmp_path, suffix="bmp")
    before, (one, other) = digest(tmp_path), (tmp_path / "a" / "03.bmp", tmp_path / "b" / "03.bmp")
    assert one.stat().st_size == other.stat().st_size
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1]), other.write_bytes(contents[0])
    assert digest(tmp_path) != before


def test_what_is_not_known_may_be_the_same(tmp_path):
    published_files.image_folder(tmp_path)
    now, early = digest(tmp_path), "0" * 64
    assert own_digest.may_be_one(now, now)
    assert own_digest.may_be_one(now, None)
    assert own_digest.may_be_one(now, early)
    assert not own_digest.may_be_one(now, now[:-1] + "x")
