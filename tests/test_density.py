"""DDU's Gaussians against SciPy and scikit-learn; singular covariances; far-away features."""

import numpy as np
import pytest
import scipy.stats
from sklearn.mixture import GaussianMixture

from preload_jax import density

RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(3), 200)
FEATURES = RNG.normal(size=(600, 6)) @ RNG.normal(size=(6, 6)) + 3.0 * LABELS[:, None]


def test_log_densities_are_scipys():
    fitted = density.fit(FEATURES, LABELS, num_classes=3)
    assert fitted.jitter == 0.0
    points = RNG.normal(size=(50, 6)) * 5
    for c in range(3):
        x = FEATURES[c == LABELS]
        expected = scipy.stats.multivariate_normal(x.mean(axis=0), np.cov(x.T)).logpdf(points)
        np.testing.assert_allclose(fitted.log_density(points)[:, c], expected, rtol=1e-9)
    score = scipy.special.logsumexp(fitted.log_density(points), axis=1)
    np.testing.assert_allclose(fitted.score(points), score, rtol=1e-5)


def test_log_densities_are_scikit_learns():
    fitted = density.fit(FEATURES, LABELS, num_classes=3)
    mixture = GaussianMixture(3)
    mixture.means_ = fitted.means
    covariances = fitted.cholesky @ fitted.cholesky.transpose(0, 2, 1)
    mixture.precisions_cholesky_ = np.linalg.inv(fitted.cholesky).transpose(0, 2, 1)
    mixture.covariances_, mixture.weights_ = covariances, np.full(3, 1 / 3)
    # scikit-learn weights the classes, the score does not: a difference of log 3.
    np.testing.assert_allclose(fitted.score(FEATURES), mixture.score_samples(FEATURES) + np.log(3), rtol=1e-4)


def test_a_dead_feature_takes_the_smallest_jitter_that_works():
    dead = np.column_stack([FEATURES, np.zeros(len(FEATURES))])
    fitted = density.fit(dead, LABELS, num_classes=3)
    mean_variance = np.mean([dead[c == LABELS].var(axis=0, ddof=1) for c in range(3)])
    np.testing.assert_allclose(fitted.jitter, 2.0**-52 * mean_variance, rtol=1e-9)
    assert np.isfinite(fitted.score(dead)).all()
    # Among inputs that leave the dead feature at rest, the order is that of the others alone.
    without = density.fit(FEATURES, LABELS, num_classes=3)
    points = RNG.normal(size=(40, 6)) * 5
    ordered = np.argsort(fitted.score(np.column_stack([points, np.zeros(40)])))
    np.testing.assert_array_equal(ordered, np.argsort(without.score(points)))
    # One that wakes it is far out of the domain, and is still a number.
    awake = fitted.score(np.column_stack([points, np.full(40, 0.5)]))
    assert np.isfinite(awake).all()
    assert awake.max() < fitted.score(dead).min()


@pytest.mark.parametrize(("num_images", "width"), [(3, 50), (5, 200)])
def test_fewer_images_than_features_take_the_smallest_jitter_that_works(num_images, width):
    features = np.maximum(np.random.default_rng(0).normal(size=(2 * num_images, width)), 0.0)
    labels = np.repeat([0, 1], num_images)
    fitted = density.fit(features, labels, num_classes=2)
    assert 0.0 < fitted.jitter < 1e-12
    with pytest.raises(ValueError, match="give a larger one"):
        density.fit(features, labels, num_classes=2, jitter=fitted.jitter / 10)


def test_float32_features_are_computed_in_float64():
    features = FEATURES.astype(np.float32)
    fitted, expected = (density.fit(x, LABELS, num_classes=3) for x in (features, features.astype(np.float64)))
    np.testing.assert_array_equal(fitted.cholesky, expected.cholesky)
    np.testing.assert_array_equal(fitted.log_density(features), fitted.log_density(features.astype(np.float64)))


def test_constant_features():
    fitted = density.fit(np.ones((6, 4)), np.repeat([0, 1], 3), num_classes=2)
    assert np.isfinite(fitted.score(np.ones((1, 4)))).all()


@pytest.mark.parametrize("distance", [1e4, 1e15, 1e30, 3e38, 1e308])
def test_far_away_features_have_a_finite_and_tiny_score(distance):
    # What wakes a dead feature may be infinite in units of its deviation, and the others' differences to it no numbers.
    dead = np.column_stack([np.zeros(len(FEATURES)), FEATURES])
    for data in (FEATURES, dead):
        fitted = density.fit(data, LABELS, num_classes=3)
        far = fitted.score(np.full((2, data.shape[1]), distance))
        assert np.isfinite(far).all()
        assert far.max() < fitted.score(data).min()


def test_released_code_adds_a_constant():
    fitted = density.fit(FEATURES, LABELS, num_classes=3, jitter=0.1)
    x = FEATURES[LABELS == 1]
    expected = scipy.stats.multivariate_normal(x.mean(axis=0), np.cov(x.T) + 0.1 * np.eye(6)).logpdf(FEATURES)
    np.testing.assert_allclose(fitted.log_density(FEATURES)[:, 1], expected, rtol=1e-9)


def test_wrong_input():
    with pytest.raises(ValueError, match="class 3 has 0 images"):
        density.fit(FEATURES, LABELS, num_classes=4)
    with pytest.raises(ValueError, match="class 2 has 1 images; a covariance needs at least 2"):
        density.fit(FEATURES[:401], LABELS[:401], num_classes=3)
    bad = FEATURES.copy()
    bad[0, 0] = np.nan
    with pytest.raises(ValueError, match="1 of 3600 features are not finite"):
        density.fit(bad, LABELS, num_classes=3)
    with pytest.raises(ValueError, match="6 of 6 features are not finite"):
        density.fit(FEATURES, LABELS, num_classes=3).score(np.full((1, 6), np.inf))
    with pytest.raises(ValueError, match="give a larger one"):
        density.fit(np.ones((6, 4)), np.repeat([0, 1], 3), num_classes=2, jitter=0.0)
