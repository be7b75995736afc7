"""Sums over blocks, whitening and log-sum-exps: as exact as float64's formulas, whatever the numbers' size."""

import numpy as np
import pytest
import scipy.linalg
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from preload_jax import detectors
from preload_jax.detectors import moments
from preload_jax.detectors.largest import log_sum_exp
from preload_jax.errors import UserError

RNG = np.random.default_rng(0)
LABELS = np.arange(400) % 4
HEAD = RNG.normal(size=(70, 4)), np.zeros(4)


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(1, 9), st.integers(1, 80)),
        elements=st.floats(-1e5, 1e5, width=32) | st.sampled_from([-3e38, -104.0, -87.0, 88.0, 89.0, 3e38]),
    )
)
def test_log_sum_exps_are_scipys(logits):
    expected = scipy.special.logsumexp(logits.astype(np.float64), axis=1)
    eps = float(np.finfo(logits.dtype).eps)
    np.testing.assert_allclose(log_sum_exp(logits), expected, rtol=4 * eps, atol=100 * eps)


@pytest.mark.parametrize("width", [1, 64, 65, 200])
@pytest.mark.parametrize("decay", [0.0, -7.0])
def test_whitening_loses_no_more_than_forward_substitution(width, decay):
    """Against substitution in long doubles; with `decay` the covariance is singular but for a jitter."""
    mix = np.diag(np.logspace(0.0, decay, width)) @ RNG.normal(size=(width, width))
    x = np.maximum(RNG.normal(size=(2 * width + 5, width)), 0.0) @ mix
    factors, _ = moments.factor(lambda: iter([np.cov(x.T).reshape(width, width)]), None)
    factor, away = factors[0], x[:5] - x.mean(axis=0)
    exact = np.zeros((width, 5), np.longdouble)
    for i in range(width):
        exact[i] = (away[:, i] - factor[i, :i].astype(np.longdouble) @ exact[:i]) / factor[i, i]
    substituted = scipy.linalg.solve_triangular(factor, away.T, lower=True).T
    found = away.copy()
    moments.whiten(found, factor, moments.inverses(factor))

    def loss(w):
        return float(np.abs(w - exact.T).max() / np.abs(exact).max())

    assert loss(found) <= 4.0 * loss(substituted) + 1e-14


def test_a_mean_of_what_overflows_float32_in_sum():
    features = np.full((400, 70), 3e38, np.float32)
    mean = detectors.fit("fdbd", detectors.Outputs(features, np.zeros((400, 4))), LABELS, head=HEAD).fitted["mean"]
    np.testing.assert_allclose(mean, features[0].astype(np.float64), rtol=1e-12)


def test_scatters_of_classes_are_their_formula(monkeypatch):
    features = RNG.normal(size=(400, 9)) + LABELS[:, None]
    # Blocks of 16 rows, and classes that are not in all of them.
    monkeypatch.setattr("preload_jax.detectors.data.BLOCK", 16 * 9 * 8)
    labels = np.sort(LABELS)
    found = detectors.fit("ddu", detectors.Outputs(features), labels).fitted["cholesky"]
    for c in range(4):
        np.testing.assert_allclose(found[c] @ found[c].T, np.cov(features[labels == c].T), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("order", ["mixed", "sorted"])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_one_pass_within_classes_is_two_passes(order, offset, monkeypatch):
    """Against long doubles; an example that lies far out comes first in its class."""
    monkeypatch.setattr("preload_jax.detectors.data.BLOCK", 16 * 9 * 8)
    labels = np.sort(LABELS) if order == "sorted" else LABELS
    features = RNG.normal(size=(400, 9)) + 3.0 * labels[:, None] + offset
    features[np.argmax(labels == 2), 4] += 1e4
    fitted = detectors.fit("mahalanobis", detectors.Outputs(features), labels, jitter=0.0).fitted
    exact = features.astype(np.longdouble)
    means = np.stack([exact[labels == c].mean(axis=0) for c in range(4)])
    away = exact - means[labels]
    np.testing.assert_allclose(fitted["means"], means.astype(float), rtol=1e-13)
    covariance = (away.T @ away / 400).astype(float)
    found = fitted["cholesky"] @ fitted["cholesky"].T
    # In units of each pair's deviations.
    deviations = np.sqrt(np.diag(covariance))
    error = np.abs(found - covariance) / np.outer(deviations, deviations)
    assert error.max() <= 1e-13


def test_one_iterator_is_enough_for_mahalanobis_and_classes_may_come_late():
    features = RNG.normal(size=(400, 9)) + LABELS[:, None]
    order = np.argsort(LABELS, kind="stable")
    parts = ((detectors.Outputs(features[i]), LABELS[i]) for i in np.array_split(order, 7))
    found = detectors.fit("mahalanobis", parts, num_classes=4)
    whole = detectors.fit("mahalanobis", detectors.Outputs(features), LABELS)
    for name in ("means", "cholesky"):
        np.testing.assert_allclose(found.fitted[name], whole.fitted[name], rtol=1e-11, atol=1e-13)


def test_features_that_do_not_vary_have_a_variance_of_zero_not_less():
    features = np.full((400, 5), 0.1) + 0.3 * LABELS[:, None]
    parts = [(detectors.Outputs(features[i]), LABELS[i]) for i in np.array_split(np.arange(400), 9)]
    detector = detectors.fit("mahalanobis", parts, num_classes=4)
    assert np.isfinite(detectors.score(detector, detectors.Outputs(features + 1.0))).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 255, 399])
@pytest.mark.parametrize("name", ["cosine", "ddu", "dice", "fdbd", "mahalanobis", "mahalanobis_pp", "residual", "vim"])
def test_training_features_that_are_not_finite_are_refused(name, row, bad):
    features = np.maximum(RNG.normal(size=(400, 70)), 0.0).astype(np.float32)
    features[row, 3] = bad
    with pytest.raises(UserError, match="features hold NaN or infinity in 1 of"):
        detectors.fit(name, detectors.Outputs(features), LABELS, head=HEAD)
