"""Which sub-folders of a user's folder are classes, and which are rather something else."""

import numpy as np
import pytest
from PIL import Image

from preload_jax.data.own_folder import list_folder
from preload_jax.errors import DataError


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        # Unpacked archives whose folder is there twice, as they are distributed.
        (
            ["seg_train/seg_train/sea/1.png", "seg_train/seg_train/ice/1.png", "seg_test/seg_test/sea/2.png"],
            r"seg_train/seg_train: has sub-folders \(ice, sea\) where images of the class 'seg_train' are expected",
        ),
        (
            ["abc_train/abc_train/A/1.png", "abc_train/abc_train/B/1.png", "abc_test/abc_test/A.png"],
            r"abc_train/abc_train: has sub-folders \(A, B\) where images",
        ),
        (
            ["Plants/Plants/train/a/1.png", "Plants/Plants/valid/a/2.png", "test/test/1.png"],
            r"Plants/Plants: has sub-folders \(train, valid\) where images",
        ),
        # A copy of the classes beside them.
        (
            ["yes/1.png", "no/1.png", "brain/yes/1.png", "brain/no/1.png"],
            "brain: its sub-folders have the names",
        ),
        (["cat/1.png", "dog/1.png", "old/cat/2.png", "old/dog/2.png"], "old: its sub-folders have the names"),
    ],
)
def test_wrappers_and_copies_of_classes_are_refused(tmp_path, files, message):
    for file in files:
        image(tmp_path / file)
    with pytest.raises(DataError, match=message):
        list_folder(tmp_path)


def test_classes_in_parts_are_said(tmp_path):
    for file in ("dogs/poodle/1.png", "dogs/beagle/1.png", "cats/1.png"):
        image(tmp_path / file)
    listing = list_folder(tmp_path)
    assert listing.class_names == ("cats", "dogs")
    assert any("images in sub-folders belong to the class above them" in line for line in listing.left_out)
