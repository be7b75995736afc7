"""Adaptive and classwise calibration errors against loops and netcal; the ECE's interval holds the truth."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preload_jax import metrics


def some(seed, *, n=200, k=4, ties=False):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(k, 0.5), n)
    if ties:  # In quarters, so that many confidences are equal.
        probabilities = np.round(4 * probabilities) / 4
    return probabilities, rng.integers(0, k, n)


def by_loop(confidence, right, bins, num_bins):
    """Σ_b |B_b|/n |accuracy − confidence|, a bin at a time."""
    total = 0.0
    for b in range(num_bins):
        rows = bins == b
        if rows.any():
            total += rows.sum() * abs(right[rows].mean() - confidence[rows].mean())
    return total / len(confidence)


@pytest.mark.parametrize("num_bins", [1, 7, 15, 300])
def test_bins_of_equally_many(num_bins):
    probabilities, labels = some(0)
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    bins = np.empty(len(labels), int)
    ends = [-(-i * len(labels) // num_bins) for i in range(num_bins + 1)]
    for b, (first, last) in enumerate(itertools.pairwise(ends)):
        bins[np.argsort(confidence)[first:last]] = b
    found = metrics.adaptive_calibration_error(probabilities, labels, num_bins=num_bins)
    np.testing.assert_allclose(found, by_loop(confidence, right, bins, num_bins), rtol=1e-12)
    if num_bins == 1:
        np.testing.assert_allclose(found, abs(right.mean() - confidence.mean()), rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20))
def test_the_order_of_examples_changes_nothing(seed, num_bins):
    probabilities, labels = some(seed, n=60, ties=True)
    order = np.random.default_rng(seed).permutation(60)
    for metric in (metrics.adaptive_calibration_error, metrics.classwise_calibration_error):
        value = metric(probabilities, labels, num_bins=num_bins)
        np.testing.assert_allclose(metric(probabilities[order], labels[order], num_bins=num_bins), value, atol=1e-12)
        assert 0.0 <= value <= 1.0


@pytest.mark.parametrize("num_bins", [1, 5, 15])
def test_each_class_by_itself(num_bins):
    probabilities, labels = some(1)
    expected = [
        by_loop(p, labels == c, np.clip(np.ceil(p * num_bins) - 1, 0, num_bins - 1), num_bins)
        for c, p in enumerate(probabilities.T)
    ]
    found = metrics.classwise_calibration_error(probabilities, labels, num_bins=num_bins)
    np.testing.assert_allclose(found, np.mean(expected), rtol=1e-12)
    # Of two classes both errors are the same, up to which side of a bin an edge belongs to.
    two, of_two = some(2, k=2)
    one = by_loop(two[:, 0], of_two == 0, np.clip(np.ceil(two[:, 0] * 15) - 1, 0, 14), 15)
    np.testing.assert_allclose(metrics.classwise_calibration_error(two, of_two), one, rtol=1e-9)


def test_arrays_of_jax_and_half_precision():
    probabilities, labels = some(3)
    for metric in (metrics.adaptive_calibration_error, metrics.classwise_calibration_error):
        expected = metric(probabilities, labels)
        in_jax = metric(jnp.asarray(probabilities, jnp.float32), jnp.asarray(labels, jnp.int32))
        np.testing.assert_allclose(in_jax, expected, rtol=1e-4)
        np.testing.assert_allclose(metric(probabilities.astype(np.float16), labels), expected, atol=0.02)


def test_the_estimate_is_the_ece_and_a_seed_repeats_itself():
    probabilities, labels = some(4)
    found = metrics.calibration_error_interval(probabilities, labels, seed=3)
    ece = metrics.expected_calibration_error(probabilities, labels)
    np.testing.assert_allclose(found.estimate, ece, rtol=1e-12)
    assert found.low <= found.estimate <= found.high
    assert found == metrics.calibration_error_interval(probabilities, labels, seed=3)
    assert found != metrics.calibration_error_interval(probabilities, labels, seed=4)
    wider = metrics.calibration_error_interval(probabilities, labels, confidence=0.999)
    assert wider.low < found.low
    assert found.high < wider.high


@pytest.mark.parametrize("power", [1.0, 1.3, 2.0])
def test_the_interval_holds_the_error_of_all_inputs(power):
    """Of a confidence s a share s^power is right; the percentile bootstrap would miss 0 each time."""
    rng, sizes, missed = np.random.default_rng(0), (10**6, 400), []

    def draw(n):
        stated = 1.0 - 0.5 * rng.random(n) ** 3
        return np.stack([stated, 1.0 - stated], axis=1), (rng.random(n) >= stated**power).astype(int)

    truth = 0.0
    if power != 1.0:
        truth = float(metrics.expected_calibration_error(*draw(sizes[0])))
    for _ in range(100):
        found = metrics.calibration_error_interval(*draw(sizes[1]), resamples=200)
        missed.append(not found.low <= truth <= found.high)
    # With 5 % expected at most, P(more than 12 of 100) is 0.0004.
    assert np.sum(missed) <= 12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, y: metrics.adaptive_calibration_error(p[:0], y[:0]), "no probabilities"),
        (lambda p, y: metrics.classwise_calibration_error(np.nan * p, y), "800 of 800 probabilities are NaN"),
        (lambda p, y: metrics.adaptive_calibration_error(p, y + 4), "labels run from 4 to 7; expected 0 to 3"),
        (lambda p, y: metrics.classwise_calibration_error(p, y, num_bins=0), "num_bins must be at least 1, got 0"),
        (lambda p, y: metrics.calibration_error_interval(p, y, confidence=95.0), "confidence must lie between 0 and 1"),
        (lambda p, y: metrics.calibration_error_interval(p, y, resamples=10), "resamples must be at least 100"),
        (lambda p, y: metrics.calibration_error_interval(p, y, seed=-1), "seed must be at least 0"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call(*some(0))


def test_netcal_says_the_same():
    # Without netcal's own reading of ties: all confidences differ, and the bins divide their number.
    netcal = pytest.importorskip("netcal.metrics", reason="netcal is not installed: pip install '.[parity]'")
    probabilities, labels = some(5, n=300, k=5)
    equal = netcal.ECE(bins=15).measure(probabilities, labels)
    np.testing.assert_allclose(metrics.expected_calibration_error(probabilities, labels), equal, rtol=1e-6)
    adaptive = netcal.ECE(bins=15, equal_intervals=False).measure(probabilities, labels)
    np.testing.assert_allclose(metrics.adaptive_calibration_error(probabilities, labels), adaptive, rtol=1e-6)
    of_class = [netcal.ECE(bins=15).measure(p, (labels == c).astype(int)) for c, p in enumerate(probabilities.T)]
    np.testing.assert_allclose(metrics.classwise_calibration_error(probabilities, labels), np.mean(of_class), rtol=1e-6)
