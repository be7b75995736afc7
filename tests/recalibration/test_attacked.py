"""Logits and records that broke recalibration once: large equal ones, other types, records of other things."""

import jax
import numpy as np
import pytest

from preload_jax import decisions, recalibration
from preload_jax.errors import UserError

RNG = np.random.default_rng(0)
LOGITS, LABELS = 2.0 * RNG.normal(size=(200, 4)), np.arange(200) % 3
MAPS = list(recalibration.TABLE)


def fitted(method):
    return recalibration.fit(method, LOGITS, LABELS, has_ood_class=True)


@pytest.mark.parametrize("method", [name for name in MAPS if name != "temperature"])
@pytest.mark.parametrize("size", [1e8, 1e30, -3.4e38])
def test_large_equal_logits_keep_the_probability_of_the_ood_class(method, size):
    logits = np.full((1, 4), size, np.float32)
    assert fitted(method).probabilities(logits)[0, -1] == pytest.approx(0.25, abs=1e-6)


@pytest.mark.parametrize("method", MAPS)
def test_logits_of_any_float_type(method):
    found = fitted(method)
    expected = np.asarray(found.probabilities(LOGITS[:5].astype(np.float32)))
    for dtype in (">f4", np.longdouble, np.float64):
        np.testing.assert_allclose(found.probabilities(LOGITS[:5].astype(dtype)), expected, atol=1e-6)


@pytest.mark.parametrize("method", MAPS)
@pytest.mark.parametrize("size", [1e38, 1e300])
def test_logits_beyond_what_has_digits_are_refused_where_a_map_is_fitted(method, size):
    with pytest.raises(UserError, match=r"logits run up to .*; expected at most 1e\+30"):
        recalibration.fit(method, np.sign(LOGITS) * size, LABELS, has_ood_class=True)


def test_logits_that_overflow_are_refused():
    if not jax.config.jax_enable_x64:
        with pytest.raises(UserError, match="logits, as float32, hold NaN or infinity in 1 of 1 examples"):
            fitted("spline").probabilities(np.array([[1e300, 0.0, 0.0, 0.0]]))


@pytest.mark.usefixtures("unannotated")
def test_records_and_parameters_of_other_things():
    rule = decisions.calibrate(np.arange(100.0))
    for record in (rule.record(), decisions.Monitor(rule).state()):
        with pytest.raises(UserError, match="not what Recalibration"):
            recalibration.Recalibration.from_record(record)
    for method, parameters in (
        ("temperature", {"temperature": np.array(-1.0)}),
        ("temperature", {"temperature": np.array(np.nan)}),
        ("vector", {"scale": np.ones(1), "offset": np.zeros(3)}),
        ("vector", {"scale": np.ones(3)}),
        ("dirichlet", {}),
    ):
        with pytest.raises(UserError, match=f"are not those of {method} for 3 classes"):
            recalibration.Recalibration(method, 3, True, 10, parameters)
    with pytest.raises(UserError, match="unknown recalibration 'foo'"):
        recalibration.Recalibration("foo", 3, True, 10, {})
