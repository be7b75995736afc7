"""What each map does to probabilities, to the predicted class and to the OOD class, and what is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from scipy.special import expit, log_softmax, logit, softmax

from preload_jax import recalibration, scores
from preload_jax.errors import UserError
from tests.recalibration.examples import cross_entropy, some, with_ood

METHODS = list(recalibration.TABLE)


def in_float64(found, z):
    """The recalibrated q of the K classes, by each map's equation."""
    p = found.parameters
    if found.method == "temperature":
        return softmax(z / p["temperature"], axis=1)
    if found.method == "vector":
        return softmax(z * p["scale"] + p["offset"], axis=1)
    if found.method == "dirichlet":
        return softmax(log_softmax(z, axis=1) @ p["matrix"].T + p["offset"], axis=1)
    q = softmax(z, axis=1)
    rows, first = np.arange(len(z)), q.argmax(axis=1)
    s = q[rows, first]
    others = q / (1.0 - s)[:, None]
    others[rows, first] = 0.0
    r = np.interp(logit(s), p["log_odds"], p["probability"])
    # Where the second would overtake the first, both are level.
    r = np.maximum(r, others.max(axis=1) / (1.0 + others.max(axis=1)))
    found = (1.0 - r)[:, None] * others
    found[rows, first] = r
    return found


@pytest.mark.parametrize("method", METHODS)
def test_the_equations(method):
    z, y = some()
    found = recalibration.fit(method, z, y)
    new = some(1)[0]
    np.testing.assert_allclose(found.probabilities(new), in_float64(found, new), atol=5e-6)
    np.testing.assert_allclose(jax.jit(found.probabilities)(jnp.asarray(new, jnp.float32)), found.probabilities(new))
    # Rows do not depend on each other.
    np.testing.assert_allclose(found.probabilities(new[:1]), found.probabilities(new)[:1], atol=1e-6)
    before, after = cross_entropy(z, y), cross_entropy(np.asarray(found.logits(z)), y)
    assert after < before


def test_the_temperature_is_the_best():
    z, y = with_ood()
    found = recalibration.fit("temperature", z, y, has_ood_class=True)
    t = float(found.parameters["temperature"])
    costs = [cross_entropy(z / (t * factor), y) for factor in (0.999, 1.0, 1.001)]
    assert min(costs) == costs[1]
    np.testing.assert_allclose(found.probabilities(z), softmax(z / t, axis=1), atol=1e-6)


@pytest.mark.parametrize("method", [name for name, row in recalibration.TABLE.items() if not row.scales_all])
def test_the_ood_class_keeps_its_probability_and_its_score(method):
    z, y = with_ood()
    found = recalibration.fit(method, z, y, has_ood_class=True)
    p, before = np.asarray(found.probabilities(z)), softmax(z, axis=1)
    np.testing.assert_allclose(p[:, -1], before[:, -1], rtol=1e-4, atol=1e-7)
    q = in_float64(found, z[:, :-1])
    np.testing.assert_allclose(p[:, :-1], (1.0 - before[:, -1:]) * q, atol=1e-5)
    was = scores.in_domain_probability(jnp.asarray(z, jnp.float32))
    np.testing.assert_allclose(scores.in_domain_probability(found.logits(z)), was, rtol=1e-4, atol=1e-4)
    # The OOD class's logit plays no part in the fit.
    moved = z + np.eye(1, z.shape[1], z.shape[1] - 1)
    other = recalibration.fit(method, moved, y, has_ood_class=True)
    for name, value in found.parameters.items():
        np.testing.assert_array_equal(other.parameters[name], value)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([n for n, row in recalibration.TABLE.items() if row.keeps_order]))
def test_the_largest_stays_the_largest(seed, method):
    for z, y in (some(0, n=80), some(0, n=80, sharper=0.3)):
        found = recalibration.fit(method, z, y)
        new = np.random.default_rng(seed).normal(0.0, 3.0, (50, 4)).astype(np.float32)
        np.testing.assert_array_equal(np.argmax(found.logits(new), axis=1), new.argmax(axis=1))


@pytest.mark.parametrize("method", METHODS)
def test_logits_as_large_as_floats_go(method):
    largest = float(np.finfo(np.float32).max)
    z, y = with_ood()
    found = recalibration.fit(method, z, y, has_ood_class=True)
    extreme = np.array([[1e33, -1e33, 0, 1, largest], [1e30, 0, 0, 0, -largest], [0, 0, 0, 0, largest]], np.float32)
    p = np.asarray(found.probabilities(extreme))
    assert np.isfinite(p).all()
    assert np.isfinite(np.asarray(found.logits(extreme))).all()
    np.testing.assert_allclose(p[:, -1], [1.0, 0.0, 1.0])
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-5)


def test_the_spline_is_the_derivative_of_the_fitted_difference():
    z, y = some(6, n=60)
    found = recalibration.fit("spline", z, y, knots=5)
    q = softmax(z, axis=1)
    order = np.argsort(q.max(axis=1))
    s, right = q.max(axis=1)[order], (q.argmax(axis=1) == y)[order]
    t, knots = np.linspace(0.0, 1.0, 60), np.linspace(0.0, 1.0, 5)
    difference = np.cumsum(right - s) / 60

    # The least squares over the spline's heights, one unit spline after the other, and slopes by finite differences.
    columns = [CubicSpline(knots, unit, bc_type="natural") for unit in np.eye(5)]
    design = np.stack([column(t) for column in columns], axis=1)
    heights = np.linalg.solve(design.T @ design, design.T @ difference)
    spline = CubicSpline(knots, heights, bc_type="natural")
    slope = (spline(t + 1e-6) - spline(t - 1e-6)) / 2e-6
    np.testing.assert_allclose(expit(found.parameters["log_odds"]), s, rtol=1e-9)
    expected = np.clip(s + slope, 0.5 / 61, 60.5 / 61)
    np.testing.assert_allclose(found.parameters["probability"], expected, atol=1e-6)


def test_the_splines_order_of_equal_confidences_changes_nothing():
    z = np.repeat(np.array([[1.0, 0.0], [3.0, 0.0]]), 20, axis=0)
    y = np.arange(40) % 4 // 3
    first = recalibration.fit("spline", z, y)
    order = np.random.default_rng(0).permutation(40)
    second = recalibration.fit("spline", z[order], y[order])
    np.testing.assert_allclose(second.parameters["probability"], first.parameters["probability"], rtol=1e-9)
    assert len(first.parameters["log_odds"]) == 2


def test_a_recalibration_is_written_and_read():
    z, y = with_ood()
    for method in METHODS:
        found = recalibration.fit(method, z, y, has_ood_class=True)
        again = recalibration.Recalibration.from_record(json.loads(json.dumps(found.record(), allow_nan=False)))
        assert again.record() == found.record()
        np.testing.assert_array_equal(again.logits(z), found.logits(z))
    record = found.record()
    for broken in ({**record, "num_classes": 3}, {**record, "parameters": {}}, {}):
        with pytest.raises(UserError, match="the recalibration is damaged"):
            recalibration.Recalibration.from_record(broken)
    with pytest.raises(UserError, match="of format 99, this version reads 1"):
        recalibration.Recalibration.from_record({**record, "format": 99})


@pytest.mark.usefixtures("unannotated")
def test_a_record_of_another_type():
    with pytest.raises(UserError, match="the recalibration is a list; expected what Recalibration"):
        recalibration.Recalibration.from_record([])


Z, Y = some(n=20)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: recalibration.fit("platt", Z, Y), "unknown recalibration 'platt'; expected one of"),
        (
            lambda: recalibration.fit("spline", Z, Y, bins=3),
            r"spline has no option 'bins'; expected one of \['knots'\]",
        ),
        (lambda: recalibration.fit("spline", Z, Y, knots=2), "knots must be at least 3, got 2"),
        (lambda: recalibration.fit("spline", Z[:4], Y[:4]), "4 examples; a spline with 6 knots takes at least 6"),
        (lambda: recalibration.fit("vector", Z[:0], Y[:0]), "no examples; give logits and labels of held-out"),
        (lambda: recalibration.fit("vector", Z, Y[:-1]), "20 logits but 19 labels"),
        (lambda: recalibration.fit("vector", np.nan * Z, Y), "logits hold NaN or infinity in 20 of 20 examples"),
        (lambda: recalibration.fit("vector", Z, Y + 4), "labels run from 4 to 7; expected 0 to 3"),
        (lambda: recalibration.fit("vector", Z, Y - 1), "labels run from -1 to 2"),
        (lambda: recalibration.fit("vector", Z, Y * 1.0), r"labels are float64 \[\d+\]; expected integers"),
        (lambda: recalibration.fit("dirichlet", Z[Y != 2], Y[Y != 2]), "class 2 of 4 has no example, and dirichlet"),
        (lambda: recalibration.fit("temperature", Z[:, :1], 0 * Y), r"\[20, 1\]; expected .* two classes at least"),
        (
            lambda: recalibration.fit("temperature", Z[:, :2], 0 * Y, has_ood_class=True),
            "of two classes and the OOD class at least",
        ),
        (lambda: recalibration.fit("temperature", Z, Z.argmax(axis=1)), "no temperature in .* gets some wrong"),
        (lambda: recalibration.fit("temperature", np.ma.masked_array(Z), Y), "a masked array was given"),
        (
            lambda: recalibration.fit("temperature", Z, Y).logits(Z[:, :3]),
            r"logits are float64 \[20, 3\]; the recalibration was fitted to 4 columns, 4 classes",
        ),
        (lambda: recalibration.fit("temperature", Z, Y).logits(np.inf * Z), "logits hold NaN or infinity in 20 of 20"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(UserError, match=message):
        call()
