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


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 255, 399])
@pytest.mark.parametrize("name", ["cosine", "ddu", "dice", "fdbd", "mahalanobis", "mahalanobis_pp", "residual", "vim"])
def test_training_features_that_are_not_finite_are_refused(name, row, bad):
    features = np.maximum(RNG.normal(size=(400, 70)), 0.0).astype(np.float32)
    features[row, 3] = bad
    with pytest.raises(UserError, match="features hold NaN or infinity in 1 of"):
        detectors.fit(name, detectors.Outputs(features), LABELS, head=HEAD)
