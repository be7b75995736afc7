"""A run's data loaded anew: test images are never images that it was trained on."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from experiments.run import command as run
from experiments.run.command import Args
from experiments.run.start_checks import moved, require_fits
from experiments.runs import folder as runs
from experiments.runs.data import load_splits, with_digest
from experiments.runs.run_dir import RunDir
from preload_jax.errors import DataError, UserError
from tests import published_files


@pytest.fixture
def photos(tmp_path):
    return published_files.image_folder(tmp_path / "photos", each=20)


def made(photos):
    """The configuration that a run keeps."""
    args = Args(dataset=f"folder:{photos}", method="standard", outliers="uniform", image_size=8, batch_size=8)
    return with_digest(run.resolve(args))


def add(photos):
    shutil.copy(photos / "a" / "00.png", photos / "a" / "zz.png")


def remove(photos):
    (photos / "b" / "05.png").unlink()


def exchange(photos):
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        (photos / old).rename(photos / new)


@pytest.mark.parametrize("change", [add, remove, exchange])
def test_other_images_are_refused_everywhere(photos, tmp_path, change):
    config = made(photos)
    before = load_splits(config, data_dir=tmp_path)
    there = RunDir(tmp_path / "run")
    there.path.mkdir()
    there.write_config(config)
    there.results.write_text("{}")
    change(photos)
    with pytest.raises(DataError, match="has other images than the network was trained on: some were added, removed"):
        load_splits(config, data_dir=tmp_path)
    now = made(photos)
    with pytest.raises(
        UserError, match=r"holds a run on other images of folder:.*; put them back, or give --overwrite"
    ):
        runs.check_same_config(there, now)
    wanted = replace(now, method="oe_ft")
    with pytest.raises(UserError, match=r"was trained on other images of folder:.* this run's test images may be"):
        require_fits(config, wanted, of=tmp_path, given=False)
    # What a run of an earlier version kept says nothing; it is evaluated as it was.
    early = replace(config, data_digest=None)
    assert len(load_splits(early, data_dir=tmp_path).train) >= len(before.train) - 1
    require_fits(early, wanted, of=tmp_path, given=False)
    there.write_config(early)
    runs.check_same_config(there, now)


def test_the_same_images_elsewhere_are_the_same(photos, tmp_path):
    config = made(photos)
    before = load_splits(config, data_dir=tmp_path)
    photos.rename(tmp_path / "moved")
    assert with_digest(config).data_digest is None
    photos.symlink_to(tmp_path / "moved")
    np.testing.assert_array_equal(load_splits(config, data_dir=tmp_path).test.images, before.test.images)
    assert made(photos) == config


def test_a_published_set_has_no_digest():
    args = Args(dataset="digits", method="standard", outliers="uniform")
    assert with_digest(run.resolve(args)).data_digest is None


def test_a_start_that_moved_tells_of_other_images():
    assert "the images are not" in moved("folder:/a", "folder:/b", same_images=False)
    assert "the images are not" not in moved("folder:/a", "folder:/b")
