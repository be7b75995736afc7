"""fDBD and NCI, which compute on the host: their formulas at any size of the numbers, and what is refused."""

import numpy as np
import pytest

from preload_jax import detectors
from preload_jax.errors import UserError

RNG = np.random.default_rng(0)
KERNEL, BIAS = RNG.normal(size=(64, 4)).astype(np.float32), np.zeros(4, np.float32)
LABELS = np.arange(300) % 4
TRAIN = np.maximum(RNG.normal(size=(300, 64)), 0.0).astype(np.float32)
TEST = np.maximum(RNG.normal(size=(70, 64)), 0.0).astype(np.float32)


def outputs(features, logits=None):
    return detectors.Outputs(features, (features @ KERNEL + BIAS) if logits is None else logits)


def fit(name, kernel=KERNEL, features=TRAIN):
    return detectors.fit(name, outputs(features), LABELS, head=(kernel, BIAS))


def fdbd(features, logits, kernel=KERNEL):
    """The equation, in long doubles."""
    g, z, w = (np.asarray(x, np.longdouble) for x in (features, logits, kernel))
    top = z.argmax(axis=1)
    total = np.zeros(len(g), np.longdouble)
    for c in range(4):
        gap = np.sqrt(np.square(w[:, top] - w[:, [c]]).sum(axis=0))
        total += np.where(top == c, 0, (z.max(axis=1) - z[:, c]) / np.where(top == c, 1, gap))
    away = g - np.asarray(TRAIN, np.longdouble).mean(axis=0)
    return total / 3 / np.sqrt(np.square(away).sum(axis=1))


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e10, 1e30])
def test_fdbd_is_its_formula(size):
    features = (TEST * size).astype(np.float32)
    logits = features @ KERNEL
    np.testing.assert_allclose(
        detectors.score(fit("fdbd"), outputs(features, logits)), fdbd(features, logits), rtol=1e-4
    )


def test_distances_and_differences_beyond_float32_do_not_become_0():
    features = np.full((2, 64), 5e37, np.float32)
    logits = np.array([[1e38, 0.0, -1e38, 0.0], [3e38, -3e38, -3e38, -3e38]], np.float32)
    np.testing.assert_allclose(
        detectors.score(fit("fdbd"), outputs(features, logits)), fdbd(features, logits), rtol=1e-4
    )


@pytest.mark.parametrize("factor", [1e-60, 1e50])
def test_weights_beyond_float32_have_their_distances(factor):
    kernel = KERNEL.astype(np.float64) * factor
    logits = (TEST.astype(np.float64) @ KERNEL).astype(np.float32)
    found = detectors.score(fit("fdbd", kernel), outputs(TEST, logits))
    expected = fdbd(TEST, logits, kernel)
    largest = np.finfo(np.float32).max
    np.testing.assert_allclose(found, np.minimum(expected, largest).astype(np.float32), rtol=1e-4)


@pytest.mark.parametrize("name", ["fdbd", "nci"])
def test_what_does_not_fit_is_refused(name):
    detector = fit(name)
    with pytest.raises(UserError, match=r"logits of shape \[70, 3\] for 4 classes; expected as many columns"):
        detectors.score(detector, outputs(TEST, (TEST @ KERNEL)[:, :3]))
    logits = TRAIN @ KERNEL
    logits[7, 1] = np.nan
    with pytest.raises(UserError, match="logits hold NaN or infinity in 1 of"):
        detectors.fit(name, outputs(TRAIN, logits), LABELS, head=(KERNEL, BIAS))
    two = [outputs(TRAIN[:50]), detectors.Outputs(TRAIN[50:, :9], (TRAIN @ KERNEL)[50:])]
    with pytest.raises(UserError, match="features of one batch have 9 columns, of another 64"):
        detectors.fit(name, two, head=(KERNEL, BIAS), num_classes=4)


def test_no_features_are_refused():
    nothing = detectors.Outputs(np.zeros((5, 0), np.float32), np.zeros((5, 4), np.float32))
    with pytest.raises(UserError, match=r"expected .n, d. with d at least 1"):
        detectors.fit("nci", nothing, head=(np.zeros((0, 4)), BIAS))


@pytest.mark.parametrize("name", ["fdbd", "nci"])
@pytest.mark.parametrize("where", ["features", "logits"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_told_of_whatever_block_it_is_in(name, where, value):
    rng = np.random.default_rng(0)
    features, labels = np.abs(rng.normal(size=(60, 4))), np.arange(60) % 3
    kernel, bias = rng.normal(size=(4, 3)), rng.normal(size=3)
    detector = detectors.fit(name, detectors.Outputs(features), labels, head=(kernel, bias))
    given = {"features": features.copy(), "logits": features @ kernel + bias}
    given[where][41, 2] = value
    with pytest.raises(UserError, match=f"{where} hold"):
        detectors.score(detector, detectors.Outputs(**given))
    if where == "features":
        with pytest.raises(UserError, match="features hold"), np.errstate(invalid="ignore"):
            detectors.score(detector, detectors.Outputs(given["features"]))


@pytest.mark.parametrize("name", [name for name, row in detectors.TABLE.items() if row.telling])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_wherever_an_input_is_not_finite_a_telling_score_is_not(name, value):
    rng = np.random.default_rng(0)
    features, labels = np.abs(rng.normal(size=(60, 4))), np.arange(60) % 3
    kernel, bias = rng.normal(size=(4, 3)), rng.normal(size=3)
    detector = detectors.fit(name, detectors.Outputs(features), labels, head=(kernel, bias))
    for where, width in (("features", 4), ("logits", 3)):
        for row in range(6):
            for column in range(width):
                given = {"features": features[:6].copy(), "logits": features[:6] @ kernel + bias}
                given[where][row, column] = value
                with pytest.raises(UserError, match=f"{where} hold NaN or infinity in 1 of 6 examples, .* {row};"):
                    detectors.score(detector, detectors.Outputs(**given))


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1.0, 1e30])
def test_fdbd_at_the_mean_is_the_largest_and_no_size_is_taken_for_it(size):
    features = np.array([[1.0, 2.0], [3.0, 4.0]]) * size
    detector = detectors.fit("fdbd", detectors.Outputs(features), head=(np.eye(2), np.zeros(2)))
    # At [2, 2]·size, where both logits are equal, and at the mean [2, 3]·size.
    equal, at = detectors.score(detector, detectors.Outputs(np.array([[2.0, 2.0], [2.0, 3.0]]) * size))
    assert equal == 0.0
    assert at == np.finfo(np.float32).max
    scores = detectors.score(detector, detectors.Outputs(features))
    np.testing.assert_allclose(scores, np.full(2, 1.0 / 2.0), rtol=1e-6)
