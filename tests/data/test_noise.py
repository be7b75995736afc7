import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from preload_jax.data import noise
from preload_jax.errors import DataError


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@settings(max_examples=30, deadline=None)
@given(
    size=st.tuples(st.integers(1, 33), st.integers(1, 33), st.sampled_from([1, 3])),
    sigma=st.lists(st.floats(0.3, 6.0), min_size=1, max_size=4),
)
def test_blur_equals_scipy_on_rows_columns_and_channels(size, sigma):
    images = np.random.default_rng(1).random((len(sigma), *size))
    blurred = noise.gaussian_blur(images, np.array(sigma))
    expected = np.stack([gaussian_filter(image, s) for image, s in zip(images, sigma, strict=True)])
    np.testing.assert_allclose(blurred, expected, atol=1e-6)


def test_smooth_without_blur_or_contrast_only_permutes_pixels(rng):
    images = np.random.default_rng(2).integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)
    # A blur this narrow changes nothing, and the logistic function is undone below.
    noisy = noise.smooth(rng, images, sigma=(1e-3, 1e-3), gamma=(4.0, 4.0)).astype(np.float64)
    restored = np.rint(255 * (0.5 + np.log(noisy / (1 - noisy)) / 4)).astype(np.uint8)
    for image, other in zip(images, restored, strict=True):
        # Whole pixels move: the channels stay together.
        assert sorted(map(tuple, image.reshape(-1, 3))) == sorted(map(tuple, other.reshape(-1, 3)))
        assert (image != other).any()


def test_smooth_takes_each_image_alone_and_stays_in_range(rng):
    images = np.full((1_001, 8, 8, 1), 255, np.uint8)
    images[500] = 0
    noisy = noise.smooth(rng, images)
    assert noisy.shape == images.shape
    assert noisy.dtype == np.float32
    assert (noisy[500] < 0.5).all()
    assert (np.delete(noisy, 500, axis=0) > 0.5).all()
    assert ((noisy >= 0) & (noisy <= 1)).all()


def assert_one_of_each_image_over(drawn, low, high, count):
    assert len(np.unique(drawn)) == count
    assert np.quantile(drawn, [0.0, 0.5, 1.0]) == pytest.approx([low, (low + high) / 2, high], rel=0.05)


def test_smooth_draws_an_order_and_a_contrast_for_each_image(rng):
    image, n = np.arange(0, 256, 4, dtype=np.uint8), 1_500
    images = np.tile(image.reshape(8, 8, 1), (n, 1, 1, 1))
    # A blur this narrow changes nothing.
    noisy = noise.smooth(rng, images, sigma=(1e-3, 1e-3)).reshape(n, 64).astype(np.float64)
    black = noisy.min(axis=1, keepdims=True)
    contrast = 2 * np.log((1 - black) / black)
    np.testing.assert_allclose(np.sort(noisy, axis=1), 1 / (1 + np.exp(-contrast * (image / 255 - 0.5))), atol=1e-6)
    assert len({order.tobytes() for order in np.argsort(noisy, axis=1)}) == n
    assert_one_of_each_image_over(contrast, 5.0, 30.0, n)  # Hein et al.'s range


def test_smooth_draws_a_width_for_each_image(rng):
    n, length = 1_500, 101
    images = np.zeros((n, 1, length, 1), np.uint8)
    images[:, 0, 0] = 255
    noisy = noise.smooth(rng, images, gamma=(10.0, 10.0)).reshape(n, length).astype(np.float64)
    blurred = 0.5 + np.log(noisy / (1 - noisy)) / 10
    # The white pixel has become a Gaussian: its neighbour is e^(-1 / 2σ²) of it, where no border is near.
    peak = blurred.argmax(axis=1)
    blurred, peak = (x[(peak > 10) & (peak < length - 11)] for x in (blurred, peak))
    rows = np.arange(len(peak))
    width = np.sqrt(-0.5 / np.log(blurred[rows, peak + 1] / blurred[rows, peak]))
    assert len(peak) > n / 2
    assert_one_of_each_image_over(width, 1.0, 2.5, len(peak))  # Hein et al.'s range


def test_smooth_of_nothing_is_nothing(rng):
    assert noise.smooth(rng, np.zeros((0, 8, 8, 1), np.uint8)).shape == (0, 8, 8, 1)


def test_smooth_refuses_floats(rng):
    with pytest.raises(DataError, match="uint8 images"):
        noise.smooth(rng, np.zeros((2, 8, 8, 1), np.float32))


def test_faraway_is_uniform_noise_scaled(rng):
    far = noise.faraway(np.random.default_rng(3), (4, 5, 6, 3), distance=500.0)
    np.testing.assert_array_equal(far, np.float32(500) * noise.uniform(np.random.default_rng(3), (4, 5, 6, 3)))


@pytest.mark.parametrize("distance", [1.0, 1e4])
def test_faraway_rd_goes_the_distance_in_every_direction(rng, distance):
    shape = (300, 3, 3, 1)
    far = noise.faraway_rd(np.random.default_rng(4), shape, distance=distance)
    step = far - noise.uniform(np.random.default_rng(4), shape)
    np.testing.assert_allclose(np.linalg.norm(step.reshape(300, -1), axis=1), distance, rtol=1e-4)
    # Uniform on the sphere: no direction is preferred (standard error of a component's mean is t/√(9·300)).
    assert abs(step.reshape(300, -1).mean(axis=0)).max() < 5 * distance / np.sqrt(9 * 300)
    # And in d dimensions the mean fourth power of a component is 3/(d(d + 2)).
    assert ((step / distance) ** 4).mean() == pytest.approx(3 / (9 * 11), rel=0.1)


def test_far_is_the_papers_distance_where_none_is_given(rng):
    assert noise.faraway(rng, (9, 20, 20, 3)).max() == pytest.approx(1e4, rel=1e-3)
    assert np.linalg.norm(noise.faraway_rd(rng, (2, 8, 8, 1)).reshape(2, -1), axis=1) == pytest.approx(1e4, rel=1e-2)
