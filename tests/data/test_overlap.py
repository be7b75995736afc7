"""Images that are both outliers and tested: found by their bytes or their pixels, named, and nothing else is."""

import shutil

import numpy as np
import pytest
from PIL import Image

from preload_jax.data import overlap, repeated

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), np.uint8)


def write(folder, images, start=0):
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images, start=start):
        Image.fromarray(image).save(folder / f"{number:02}.png")
    return folder


def find(outliers, tested, *, ours=None, theirs=None):
    def absent():
        raise AssertionError("not needed")

    digests = absent if ours is None else lambda: list(overlap.digests(ours))
    return overlap.between(
        str(outliers), str(tested), outlier_digests=digests, test_images=absent if theirs is None else lambda: theirs
    )


def test_files_of_the_same_bytes_are_found_whatever_their_names(tmp_path):
    outliers, tested = write(tmp_path / "out", IMAGES[:10]), write(tmp_path / "in", IMAGES[10:])
    assert find(f"folder:{outliers}", f"folder:{tested}").count == 0
    shutil.copy(outliers / "03.png", tested / "z.png")
    shutil.copy(outliers / "04.png", tested / "y.png")
    # Of the same size in bytes, and another image.
    content = bytearray((outliers / "05.png").read_bytes())
    content[-20] ^= 1
    (tested / "x.png").write_bytes(content)
    (outliers / "gone.png").symlink_to(tmp_path / "nowhere")
    found = find(f"folder:{outliers}", f"folder:{tested}")
    assert (found.count, found.total) == (2, 13)
    assert found.examples == (
        f"{tested / 'y.png'} is {outliers / '04.png'}",
        f"{tested / 'z.png'} is {outliers / '03.png'}",
    )
    assert "2 of 13 images of A are among the outliers B, too: " in found.in_words("A", "B")
    assert "kept in both" in found.in_words("A", "B")


@pytest.mark.parametrize("rows", [1, 7, 256])
def test_arrays_of_the_same_pixels(rows, monkeypatch):
    """The oracle compares all pairs."""
    monkeypatch.setattr(repeated, "_ROWS", rows)
    rng = np.random.default_rng(1)
    ours, theirs = IMAGES[rng.integers(0, 20, 30)], IMAGES[rng.integers(5, 20, 12)].copy()
    theirs[3] = 0
    same = (ours[None] == theirs[:, None]).all(axis=(2, 3, 4))
    found = find("ours.npy", "theirs.npz", ours=ours, theirs=theirs)
    assert (found.count, found.total) == (same.any(axis=1).sum(), 12)
    first = np.flatnonzero(same.any(axis=1))[:3]
    assert found.examples == tuple(f"test image {row} is outlier {same[row].argmax()}" for row in first)


def test_files_among_arrays_are_found_by_their_pixels(tmp_path):
    outliers = write(tmp_path / "out", IMAGES[:10])
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(outliers / "larger.png")
    (outliers / "damaged.png").write_bytes(b"no image")
    theirs = IMAGES[[12, 3, 13]]
    found = find(f"folder:{outliers}", "theirs.npz", theirs=theirs)
    assert found.examples == (f"test image 1 is {outliers / '03.png'}",)


@pytest.mark.parametrize(
    ("outliers", "tested"), [("smooth", "theirs.npz"), ("ours.npy", "uniform"), ("photo", "photo")]
)
def test_made_sets_share_nothing(outliers, tested):
    assert find(outliers, tested) is None


def test_test_images_in_floating_point_are_not_compared():
    assert find("ours.npy", "cifar_gr", ours=IMAGES, theirs=IMAGES.astype(np.float32)) is None
