import numpy as np
import pytest
from PIL import Image

from preload_jax.data import images
from preload_jax.errors import DataError


@pytest.mark.parametrize("size", [(28, 28), (8, 8), (40, 17)])
@pytest.mark.parametrize("channels", [1, 3])
def test_resize_is_pillows_antialiased_bilinear(make, size, channels):
    batch = make.random_images(3, (32, 32, channels))
    resized = images.resize(batch, size)
    assert resized.shape == (3, *size, channels)
    for image, result in zip(batch, resized, strict=True):
        mode = image[..., 0] if channels == 1 else image
        expected = Image.fromarray(mode).resize(size[::-1], Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(result.reshape(np.asarray(expected).shape), np.asarray(expected))


def test_shrinking_averages_instead_of_picking_pixels():
    stripes = np.tile(np.array([0, 255], np.uint8), (1, 32, 16))[..., None]
    assert np.ptp(images.resize(stripes, (8, 8))[:, :, 1:-1]) <= 1


def test_grey_is_pillows_luma():
    every = np.random.default_rng(0).integers(0, 256, (1, 200, 200, 3), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(every[0]).convert("L"))
    np.testing.assert_array_equal(images.to_channels(every, 1)[0, ..., 0], expected)


def test_grey_to_colour_repeats_the_channel(make):
    grey = make.random_images(2, (5, 5, 1))
    colour = images.to_channels(grey, 3)
    assert all((colour[..., [i]] == grey).all() for i in range(3))


def test_other_channels_are_refused(make):
    with pytest.raises(DataError, match="4 channels into 3"):
        images.to_channels(make.random_images(2, (5, 5, 4)), 3)


def test_crops_lie_inside_and_see_many_scales():
    # Each pixel tells its column: the spread of a crop's values is its width.
    ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (256, 1)))
    crops = images.random_resized_crops(np.random.default_rng(0), ramp, num_crops=300, size=(8, 8))
    assert crops.shape == (300, 8, 8, 1)
    spread = np.ptp(crops, axis=(1, 2, 3))
    assert spread.min() < 50
    assert spread.max() > 200
    assert (np.diff(crops[:, :, :, 0].astype(int), axis=2) >= 0).all()


def test_crops_repeat_with_the_seed():
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8))
    first, second, other = (
        images.random_resized_crops(np.random.default_rng(seed), photo, num_crops=5, size=(8, 8)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
