"""What scikit-learn bundles, against scikit-learn's own functions and Pillow's."""

import numpy as np
import pytest
import sklearn.datasets
from PIL import Image

from preload_jax.data import builtin
from preload_jax.data.images import crop_boxes
from preload_jax.errors import DataError


def test_the_digits_are_scikit_learns():
    found = builtin.digits()
    raw = sklearn.datasets.load_digits()
    assert [len(part) for part in found] == [1297, 500]
    # Which are drawn is `stratified_split`'s; here that all are there, each with its label.
    images = np.concatenate([part.images for part in found])
    labels = np.concatenate([part.labels for part in found])
    rows = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    published = np.rint(raw.images * (255 / 16)).astype(np.uint8)
    assert [rows[image.tobytes()] for image in published] == raw.target.tolist()
    assert images.shape == (1797, 8, 8, 1)


@pytest.mark.parametrize("which", ["train", "test"])
def test_crops_are_those_of_scikit_learns_photo_one_by_one(which):
    found = builtin.photo_crops(np.random.default_rng(3), which, num_images=7, image_shape=(5, 6, 3))
    photo = Image.fromarray(sklearn.datasets.load_sample_image(builtin.PHOTOS[which]))
    boxes = crop_boxes(np.random.default_rng(3), photo, num_crops=7)
    expected = [np.asarray(photo.resize((6, 5), Image.Resampling.BILINEAR, box=tuple(box))) for box in boxes]
    np.testing.assert_array_equal(found, expected)


def test_without_scikit_learn_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(builtin, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="install scikit-learn"):
        builtin.digits()
