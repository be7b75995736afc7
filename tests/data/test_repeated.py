"""Images that one's own data set has more than once: in two splits, as two classes; said, and nothing is dropped."""

import shutil

import numpy as np

from preload_jax.data import datasets, repeated
from preload_jax.data.splits import Arrays
from tests import published_files

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), np.uint8)
LABELS = np.arange(20, dtype=np.int32) % 2


def load(folder, tmp_path):
    said = []
    datasets.load(f"folder:{folder}", data_dir=tmp_path / "data", validation="none", report=said.append)
    return [line for line in said if "resized" not in line]


def test_files_in_two_splits_are_counted_and_named_each_time(tmp_path):
    root = tmp_path / "x"
    published_files.image_folder(root / "train", each=18)
    published_files.image_folder(root / "test", each=5, seed=1)
    assert load(root, tmp_path) == []
    shutil.copytree(root / "train", root / "test", dirs_exist_ok=True)
    for _ in range(2):  # Read, and from the cache.
        (line,) = load(root, tmp_path)
        assert line.startswith(
            f"{root}: 36 of 36 test images are training images, too: {root}/test/a/00.png is {root}/train/a/00.png; "
        )
        assert line.endswith("; …. They are kept in both, and numbers on them say nothing about unseen images: take "
                             "them out of one")  # fmt: skip


def test_an_image_under_two_classes_is_named(tmp_path):
    root = published_files.image_folder(tmp_path / "x", each=10)
    shutil.copy(root / "a" / "03.png", root / "b" / "z.png")
    (root / "a" / "empty.png").touch()
    (root / "b" / "gone.png").symlink_to(tmp_path / "nowhere")
    two, again = load(root, tmp_path)[-2:]
    found = f"{root}/b/z.png (class 'b') is {root}/a/03.png (class 'a')"
    assert two == (
        f"{root}: 1 of 23 images are in two classes: {found}. They are kept in both: take them out of the wrong one"
    )
    assert again.startswith(f"{root}: 1 of 23 images repeat another: {root}/b/z.png is {root}/a/03.png. The split that")


def test_arrays_are_compared_by_their_pixels(tmp_path):
    parts = {"train": Arrays(IMAGES[:10], LABELS[:10]), "test": Arrays(IMAGES[8:15], LABELS[8:15])}
    parts["validation"] = Arrays(IMAGES[14:], LABELS[14:])
    lines = repeated.in_arrays(parts, class_names=("a", "b"))
    assert [line.split(":")[0] for line in lines] == [
        "2 of 7 test images are training images, too",
        "1 of 6 validation images are test images, too",
    ]
    assert "test image 0 is training image 8; test image 1 is training image 9." in lines[0]
    np.savez(tmp_path / "own.npz", images=np.concatenate([IMAGES, IMAGES[:1]]), labels=np.arange(21) % 2)
    said = []
    datasets.load(tmp_path / "own.npz", data_dir=tmp_path, validation="none", report=said.append)
    (line,) = said
    assert line == (
        f"{tmp_path}/own.npz: 1 of 21 images repeat another: training image 20 is training image 0. The split that is"
        " made may train on one and test the other: take the copies out"
    )


def test_a_class_without_images_in_a_split_that_is_made_is_said(tmp_path):
    labels = np.zeros(20, np.int32)
    labels[0] = 1
    np.savez(tmp_path / "own.npz", images=IMAGES, labels=labels)
    said = []
    datasets.load(tmp_path / "own.npz", data_dir=tmp_path, validation="none", report=said.append)
    assert said == [
        f"{tmp_path}/own.npz: no test images of 1 of 2 classes ('1'); results on that split are about the others"
    ]
