"""The penalised regressions reach the minimum that SciPy and scikit-learn find in other ways."""

import numpy as np
import pytest
import scipy.optimize
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from preload_jax import recalibration
from preload_jax.errors import UserError
from tests.recalibration.examples import cross_entropy, some


def test_vector_scaling_is_the_minimum_of_what_is_written():
    z, y = some()

    def objective(theta):
        a, b = theta[:4], theta[4:]
        penalty = 0.3 * np.mean((a - 1.0) ** 2) + 0.05 * np.mean(b**2)
        return cross_entropy(z * a + b, y) + penalty

    best = scipy.optimize.minimize(objective, np.r_[np.ones(4), np.zeros(4)], method="BFGS", options={"gtol": 1e-7})
    found = recalibration.fit("vector", z, y, scale=0.3, intercept=0.05).parameters
    np.testing.assert_allclose(np.r_[found["scale"], found["offset"]], best.x, atol=2e-6)


def test_the_dirichlet_map_is_the_minimum_of_what_is_written():
    z, y = some(k=3)
    log_q = log_softmax(z, axis=1)

    def objective(theta):
        w, b = theta[:9].reshape(3, 3), theta[9:]
        diagonal = np.diag(w)
        off = (np.sum(w**2) - np.sum(diagonal**2)) / 6
        return (
            cross_entropy(log_q @ w.T + b, y) + 0.2 * off + 0.01 * np.mean((diagonal - 1.0) ** 2) + 0.7 * np.mean(b**2)
        )

    best = scipy.optimize.minimize(objective, np.r_[np.eye(3).ravel(), np.zeros(3)], method="BFGS")
    found = recalibration.fit("dirichlet", z, y, off_diagonal=0.2, diagonal=0.01, intercept=0.7).parameters
    np.testing.assert_allclose(np.r_[found["matrix"].ravel(), found["offset"]], best.x, atol=1e-5)


def test_without_a_penalty_the_dirichlet_map_is_a_multinomial_regression():
    z, y = some(1)
    log_q = log_softmax(z, axis=1)
    expected = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(log_q, y).predict_proba(log_q)
    weak = {"off_diagonal": 1e-10, "diagonal": 1e-10, "intercept": 1e-10}
    found = recalibration.fit("dirichlet", z, y, **weak).probabilities(z)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_strong_penalty_changes_nothing():
    z, y = some(2)
    for method, names in (("vector", ("scale", "intercept")), ("dirichlet", ("off_diagonal", "diagonal", "intercept"))):
        found = recalibration.fit(method, z, y, **dict.fromkeys(names, 1e9))
        np.testing.assert_allclose(found.probabilities(z), softmax(z, axis=1), atol=1e-5)


def test_strengths_that_are_not_given_are_chosen_and_repeat_themselves():
    z, y = some(3, n=100)
    held_out, labels = some(4, n=4000)
    for method in ("vector", "dirichlet"):
        found = recalibration.fit(method, z, y)
        again = recalibration.fit(method, z, y)
        assert found.record() == again.record()
        after = cross_entropy(np.asarray(found.logits(held_out - held_out[0] + z[0])), labels)
        assert np.isfinite(after)
        fitted = cross_entropy(np.asarray(found.logits(z)), y)
        assert fitted < cross_entropy(z, y)
        # A strength is kept where it is given.
        assert recalibration.fit(method, z, y, intercept=1e9).parameters["offset"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.usefixtures("unannotated")
def test_separable_examples_have_a_minimum_and_wrong_strengths_none():
    z, y = np.eye(3).repeat(4, axis=0) * 5.0, np.arange(3).repeat(4)
    for method in ("vector", "dirichlet"):
        assert np.isfinite(np.asarray(recalibration.fit(method, z, y).logits(z))).all()
    with pytest.raises(UserError, match="intercept must be finite and above 0, got 0"):
        recalibration.fit("vector", z, y, intercept=0)
    with pytest.raises(UserError, match="off_diagonal must be a number, got '1'"):
        recalibration.fit("dirichlet", z, y, off_diagonal="1")


def test_netcal_says_the_same():
    scaling = pytest.importorskip("netcal.scaling", reason="netcal is not installed: pip install '.[parity]'")
    # Of probabilities: netcal takes their logarithm for the logits.
    z, y = some(5)
    z = log_softmax(z, axis=1)
    theirs = scaling.TemperatureScaling()
    expected = theirs.fit_transform(np.exp(z), y)
    found = recalibration.fit("temperature", z, y)
    np.testing.assert_allclose(found.probabilities(z), expected, atol=2e-4)
    np.testing.assert_allclose(1.0 / found.parameters["temperature"], theirs.temperature, rtol=1e-3)
    expected = scaling.LogisticCalibration().fit_transform(np.exp(z), y)
    found = recalibration.fit("vector", z, y, scale=1e-9, intercept=1e-9)
    np.testing.assert_allclose(found.probabilities(z), expected, atol=2e-3)
