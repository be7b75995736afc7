"""DDU's Gaussians against SciPy and scikit-learn; singular covariances; far-away features."""

import numpy as np
import pytest
import scipy.stats
from sklearn.mixture import GaussianMixture

from preload_jax import detectors
from preload_jax.detectors import ddu

RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(3), 200)
FEATURES = RNG.normal(size=(600, 6)) @ RNG.normal(size=(6, 6)) + 3.0 * LABELS[:, None]


def fit(features, labels, **options):
    return detectors.fit("ddu", detectors.Outputs(features), labels, **options)


def score(fitted, features):
    return detectors.score(fitted, detectors.Outputs(features))


def log_density(fitted, features):
    return ddu.log_density(fitted.fitted, features)


def test_log_densities_are_scipys():
    fitted = fit(FEATURES, LABELS, num_classes=3)
    assert fitted.fitted["jitter"] == 0.0
    points = RNG.normal(size=(50, 6)) * 5
    for c in range(3):
        x = FEATURES[c == LABELS]
        expected = scipy.stats.multivariate_normal(x.mean(axis=0), np.cov(x.T)).logpdf(points)
        np.testing.assert_allclose(log_density(fitted, points)[:, c], expected, rtol=1e-9)
    expected = scipy.special.logsumexp(log_density(fitted, points), axis=1)
    np.testing.assert_allclose(score(fitted, points), expected, rtol=1e-5)


def test_log_densities_are_scikit_learns():
    fitted = fit(FEATURES, LABELS, num_classes=3)
    mixture = GaussianMixture(3)
    mixture.means_ = fitted.fitted["means"]
    covariances = fitted.fitted["cholesky"] @ fitted.fitted["cholesky"].transpose(0, 2, 1)
    mixture.precisions_cholesky_ = np.linalg.inv(fitted.fitted["cholesky"]).transpose(0, 2, 1)
    mixture.covariances_, mixture.weights_ = covariances, np.full(3, 1 / 3)
    # scikit-learn weights the classes, the score does not: a difference of log 3.
    np.testing.assert_allclose(score(fitted, FEATURES), mixture.score_samples(FEATURES) + np.log(3), rtol=1e-4)


def test_a_dead_feature_takes_the_smallest_jitter_that_works():
    dead = np.column_stack([FEATURES, np.zeros(len(FEATURES))])
    fitted = fit(dead, LABELS, num_classes=3)
    mean_variance = np.mean([dead[c == LABELS].var(axis=0, ddof=1) for c in range(3)])
    np.testing.assert_allclose(fitted.fitted["jitter"], 2.0**-52 * mean_variance, rtol=1e-9)
    assert np.isfinite(score(fitted, dead)).all()
    # Among inputs that leave the dead feature at rest, the order is that of the others alone.
    without = fit(FEATURES, LABELS, num_classes=3)
    points = RNG.normal(size=(40, 6)) * 5
    ordered = np.argsort(score(fitted, np.column_stack([points, np.zeros(40)])))
    np.testing.assert_array_equal(ordered, np.argsort(score(without, points)))
    # One that wakes it is far out of the domain, and is still a number.
    awake = score(fitted, np.column_stack([points, np.full(40, 0.5)]))
    assert np.isfinite(awake).all()
    assert awake.max() < score(fitted, dead).min()


@pytest.mark.parametrize(("num_images", "width"), [(3, 50), (5, 200)])
def test_fewer_images_than_features_take_the_smallest_jitter_that_works(num_images, width):
    features = np.maximum(np.random.default_rng(0).normal(size=(2 * num_images, width)), 0.0)
    labels = np.repeat([0, 1], num_images)
    fitted = fit(features, labels, num_classes=2)
    assert 0.0 < fitted.fitted["jitter"] < 1e-12
    with pytest.raises(ValueError, match="give a larger one"):
        fit(features, labels, num_classes=2, jitter=fitted.fitted["jitter"] / 10)


def test_float32_features_are_computed_in_float64():
    features = FEATURES.astype(np.float32)
    fitted, expected = (fit(x, LABELS, num_classes=3) for x in (features, features.astype(np.float64)))
    np.testing.assert_array_equal(fitted.fitted["cholesky"], expected.fitted["cholesky"])
    np.testing.assert_array_equal(log_density(fitted, features), log_density(fitted, features.astype(np.float64)))


def test_constant_features():
    fitted = fit(np.ones((6, 4)), np.repeat([0, 1], 3), num_classes=2)
    assert np.isfinite(score(fitted, np.ones((1, 4)))).all()


@pytest.mark.parametrize("distance", [1e4, 1e15, 1e30, 3e38, 1e308])
def test_far_away_features_have_a_finite_and_tiny_score(distance):
    # What wakes a dead feature may be infinite in units of its deviation, and the others' differences to it no numbers.
    dead = np.column_stack([np.zeros(len(FEATURES)), FEATURES])
    for data in (FEATURES, dead):
        fitted = fit(data, LABELS, num_classes=3)
        far = score(fitted, np.full((2, data.shape[1]), distance))
        assert np.isfinite(far).all()
        assert far.max() < score(fitted, data).min()


def test_released_code_adds_a_constant():
    fitted = fit(FEATURES, LABELS, num_classes=3, jitter=0.1)
    x = FEATURES[LABELS == 1]
    expected = scipy.stats.multivariate_normal(x.mean(axis=0), np.cov(x.T) + 0.1 * np.eye(6)).logpdf(FEATURES)
    np.testing.assert_allclose(log_density(fitted, FEATURES)[:, 1], expected, rtol=1e-9)


def test_wrong_input():
    with pytest.raises(ValueError, match="class 3 has 0 examples"):
        fit(FEATURES, LABELS, num_classes=4)
    with pytest.raises(ValueError, match="class 2 has 1 examples; a covariance needs at least 2"):
        fit(FEATURES[:401], LABELS[:401], num_classes=3)
    bad = FEATURES.copy()
    bad[0, 0] = np.nan
    with pytest.raises(ValueError, match="features hold NaN or infinity in 1 of 600 examples"):
        fit(bad, LABELS, num_classes=3)
    with pytest.raises(ValueError, match="features hold NaN or infinity in 1 of 1"):
        score(fit(FEATURES, LABELS, num_classes=3), np.full((1, 6), np.inf))
    with pytest.raises(ValueError, match="give a larger one"):
        fit(np.ones((6, 4)), np.repeat([0, 1], 3), num_classes=2, jitter=0.0)
