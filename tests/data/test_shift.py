"""Rotations and corruptions."""

import sys

import numpy as np
import pytest
from PIL import Image

from preload_jax.data import shift
from preload_jax.data.catalogue import CORRUPTIONS
from preload_jax.data.preparing.prepare import prepare
from preload_jax.data.splits import Arrays
from preload_jax.errors import DataError, NotPreparedError, UserError


@pytest.fixture
def labelled(make):
    return Arrays(images=make.random_images(6, (32, 32, 3)), labels=np.arange(6, dtype=np.int32))


def test_rotations(make):
    test = Arrays(images=make.random_images(3, (28, 28, 1)), labels=np.arange(3, dtype=np.int32))
    shifted = list(shift.load("rotation", test=test))
    assert [item.level for item in shifted] == [0, 15, 30, 45, 60, 75, 90, 105, 120, 135, 150, 165, 180]
    np.testing.assert_array_equal(shifted[0].data.images, test.images)
    np.testing.assert_array_equal(shifted[6].data.images, np.rot90(test.images, axes=(1, 2)))
    np.testing.assert_array_equal(shifted[12].data.images, test.images[:, ::-1, ::-1])
    for count in (2, 99):
        taken = next(shift.load("rotation", test=test, num_images=count))
        np.testing.assert_array_equal(taken.data.images, test.images[:count])
    for item in shifted:
        assert item.kind == "rotation"
        np.testing.assert_array_equal(item.data.labels, test.labels)
        for image, rotated in zip(test.images, item.data.images, strict=True):
            expected = Image.fromarray(image[..., 0]).rotate(item.level, Image.Resampling.NEAREST)
            np.testing.assert_array_equal(rotated[..., 0], np.asarray(expected))


def test_nearest_neighbour_and_zero_fill():
    white = np.full((1, 28, 28, 3), 255, np.uint8)
    rotated = shift.rotate(white, 45.0)
    assert set(np.unique(rotated)) == {0, 255}
    assert (rotated[0, 0, 0] == 0).all()


def test_cifar10_c(make, tmp_path, data_dir):
    content = make.cifar10_c(tmp_path / "CIFAR-10-C", n=2)
    prepare("cifar10_c", data_dir=data_dir, source=tmp_path, check_sizes=False)
    shifted = list(shift.load("cifar10_c", test=None, data_dir=data_dir))
    assert [(item.kind, item.level) for item in shifted] == [(n, s) for n in CORRUPTIONS for s in (1, 2, 3, 4, 5)]
    for item in shifted:
        rows = slice(2 * item.level - 2, 2 * item.level)
        np.testing.assert_array_equal(item.data.images, content[item.kind][rows])
        assert item.data.labels.tolist() == [0, 1]
    for item in shift.cifar10_c(data_dir=data_dir, num_images=1):  # the first of each severity
        np.testing.assert_array_equal(item.data.images, content[item.kind][[2 * item.level - 2]])
    assert all(len(item.data) == 2 for item in shift.cifar10_c(data_dir=data_dir, num_images=99))


def test_cifar10_c_not_prepared(data_dir):
    with pytest.raises(NotPreparedError, match="--dataset=cifar10_c"):
        shift.load("cifar10_c", test=None, data_dir=data_dir)


def test_corruptions_repeat_and_leave_numpys_generator_alone(labelled):
    pytest.importorskip("imagecorruptions", reason="the extra `corruptions` is not installed")
    state = np.random.get_state()[1].copy()
    first, second = (list(shift.load("corruptions", test=labelled, num_images=2)) for _ in range(2))
    np.testing.assert_array_equal(np.random.get_state()[1], state)
    assert [(item.kind, item.level) for item in first] == [(n, s) for n in CORRUPTIONS for s in (1, 2, 3, 4, 5)]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.data.images, other.data.images)
        assert one.data.images.shape == (2, 32, 32, 3)
        assert (one.data.images != labelled.images[:2]).any()
    noisy = next(iter(shift.corruptions(labelled, seed=1, names=["gaussian_noise"], severities=[1])))
    assert (noisy.data.images[:2] != first[0].data.images).any()


@pytest.mark.parametrize("name", ["impulse_noise", "glass_blur", "gaussian_noise"])
def test_equal_images_get_noise_of_their_own(name):
    pytest.importorskip("imagecorruptions", reason="the extra `corruptions` is not installed")
    one = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), np.uint8)
    test = Arrays(np.repeat(one, 3, axis=0), np.zeros(3, np.int32))
    (found,) = shift.corruptions(test, names=(name,), severities=(3,))
    assert len({image.tobytes() for image in found.data.images}) == 3


def test_corruptions_say_what_to_install(labelled, monkeypatch):
    monkeypatch.setitem(sys.modules, "imagecorruptions", None)
    with pytest.raises(UserError, match=r"pip install preload-jax\[corruptions\]"):
        shift.load("corruptions", test=labelled)


def test_corruptions_need_colour_images(make):
    pytest.importorskip("imagecorruptions", reason="the extra `corruptions` is not installed")
    grey = Arrays(images=make.random_images(2, (28, 28, 1)), labels=np.zeros(2, np.int32))
    with pytest.raises(DataError, match="RGB images of at least 32x32 pixels, got 28x28x1"):
        shift.load("corruptions", test=grey)


def test_wrong_names(labelled):
    with pytest.raises(DataError, match=r"unknown shift 'rotations' \(did you mean 'rotation'\?\)"):
        shift.load("rotations", test=labelled)
    pytest.importorskip("imagecorruptions", reason="the extra `corruptions` is not installed")
    with pytest.raises(DataError, match="unknown corruption 'rain'"):
        shift.corruptions(labelled, names=["rain"])
