"""Images that do not fit into memory: the same ones as in memory, on disk, and nothing that is left behind."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from preload_jax.data import datasets, own_folder, stored
from preload_jax.data.splits import Arrays
from preload_jax.errors import DataError
from tests import published_files


def load(folder, place, **options):
    return datasets.load(f"folder:{folder}", data_dir=place / "data", **options)


@pytest.fixture
def no_memory(monkeypatch):
    monkeypatch.setattr(own_folder, "free_memory", lambda: 0)


@pytest.mark.parametrize("broken", [False, True])
def test_the_splits_are_those_of_memory(tmp_path, monkeypatch, broken):
    folder = published_files.image_folder(tmp_path / "photos", each=20, size=(10, 8))
    if broken:
        (folder / "a" / "03.png").write_bytes(b"no image")
    said, expected = [], load(folder, tmp_path)
    monkeypatch.setattr(own_folder, "free_memory", lambda: 0)
    for _ in range(2):  # The second time from the cache.
        found = load(folder, tmp_path, report=said.append)
        for name in ("train", "validation", "test"):
            ours, theirs = getattr(found, name), getattr(expected, name)
            assert isinstance(ours.images, np.memmap)
            np.testing.assert_array_equal(ours.images, theirs.images)
            np.testing.assert_array_equal(ours.labels, theirs.labels)
    assert sum("do not fit into memory; they are kept in" in line for line in said) == 2
    assert sum("skipped 1 of 40 images" in line for line in said) == 2 * broken


@pytest.mark.usefixtures("no_memory")
def test_what_is_taken_is_on_disk_and_leaves_nothing(tmp_path):
    folder = published_files.image_folder(tmp_path / "photos", each=10, size=(10, 8))
    train = load(folder, tmp_path, validation="none").train
    rows = np.array([5, 1, 1, 7])
    some = train.take(rows)
    np.testing.assert_array_equal(some.images, np.asarray(train.images)[rows])
    # Again, of what was taken, whose file has no name any more.
    np.testing.assert_array_equal(some.take(np.array([3, 0])).images, np.asarray(train.images)[[7, 5]])
    assert some.take(np.arange(0)).images.shape == (0, *train.images.shape[1:])
    assert {path.suffix for path in (tmp_path / "data").rglob("*") if path.is_file()} == {".npy", ".npz"}


def test_rows_that_follow_each_other_are_no_copy(tmp_path):
    images = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.uint8, shape=(6, 2, 2, 1))
    part = Arrays(images, np.arange(6)).take(np.arange(2, 5))
    assert np.shares_memory(part.images, images)
    assert part.labels.tolist() == [2, 3, 4]


@pytest.mark.usefixtures("no_memory")
def test_a_damaged_file_is_made_anew(tmp_path):
    folder = published_files.image_folder(tmp_path / "photos", each=10, size=(10, 8))
    expected = np.array(load(folder, tmp_path, validation="none").test.images)
    kept = next(path for path in (tmp_path / "data").rglob("stored-*.npy"))
    kept.write_bytes(kept.read_bytes()[:200])
    np.testing.assert_array_equal(load(folder, tmp_path, validation="none").test.images, expected)


@pytest.mark.usefixtures("no_memory")
def test_a_disk_without_room_is_refused_before_anything_is_decoded(tmp_path, monkeypatch):
    folder = published_files.image_folder(tmp_path / "photos", each=10, size=(10, 8))
    monkeypatch.setattr(stored.shutil, "disk_usage", lambda _: type("usage", (), {"free": 10})(), raising=True)
    monkeypatch.setattr(own_folder.image_folder, "read_squashed_into", lambda *_, **__: pytest.fail("decoded"))
    with pytest.raises(DataError, match=r"do not fit into memory, and .* free of the .* that they take on disk"):
        load(folder, tmp_path)
    assert not list(Path(tmp_path / "data").rglob("incomplete*"))


@pytest.mark.parametrize("full_at", [1, 3])
@pytest.mark.usefixtures("no_memory")
def test_a_disk_that_is_full_meanwhile_is_one_line(tmp_path, monkeypatch, full_at):
    """While images are decoded, or while a split is taken of them."""
    folder = published_files.image_folder(tmp_path / "photos", each=10, size=(10, 8))
    calls, reserve = [], os.posix_fallocate

    def fallocate(*args):
        calls.append(args)
        if len(calls) >= full_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        reserve(*args)

    monkeypatch.setattr(stored.os, "posix_fallocate", fallocate)
    with pytest.raises(DataError, match=r"No space left on device; images that do not fit into memory are kept there"):
        load(folder, tmp_path, validation="none")
    assert not list((tmp_path / "data").rglob("incomplete*"))


def test_what_is_there_needs_no_room_to_be_made_again(tmp_path, monkeypatch):
    folder = published_files.image_folder(tmp_path / "photos", each=10, size=(10, 8))
    monkeypatch.setattr(own_folder, "free_memory", lambda: 0)
    expected = np.array(load(folder, tmp_path, validation="none").train.images)
    monkeypatch.setattr(stored.shutil, "disk_usage", lambda _: pytest.fail("asked"))
    np.testing.assert_array_equal(load(folder, tmp_path, validation="none").train.images, expected)


@pytest.mark.usefixtures("no_memory")
def test_other_arrays_that_do_not_fit_are_made_anew(tmp_path):
    folder = published_files.image_folder(tmp_path / "photos", each=10, size=(10, 8))
    expected = load(folder, tmp_path, validation="none").train.labels
    beside = next((tmp_path / "data").rglob("stored-*.npz"))
    arrays = dict(np.load(beside))
    for broken in ({"x": np.arange(3)}, {**arrays, "labels": arrays["labels"][:-5]}):
        np.savez(beside, **broken)
        np.testing.assert_array_equal(load(folder, tmp_path, validation="none").train.labels, expected)


def test_rows_are_taken_as_numpy_takes_them(tmp_path):
    images = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.uint8, shape=(6, 2, 2, 1))
    images[:] = np.arange(24).reshape(images.shape)
    for rows in (np.array([-2, -1]), np.array([-1, 0]), np.arange(6) % 2 == 0):
        np.testing.assert_array_equal(stored.taken(images, rows), np.asarray(images)[rows])
