"""Detectors that no other package has, against their definitions in float64; exact percentiles; what options change."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from preload_jax import detectors, scores
from preload_jax.detectors import moments
from preload_jax.detectors.data import Training
from tests import toy
from tests.detectors import problem

A = problem.arrays()
LABELS, K = problem.LABELS, problem.K


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def class_means(x):
    return np.stack([x[c == LABELS].mean(axis=0) for c in range(K)])


def in_float64(name, **options):
    with toy.enable_x64(True):
        return problem.scores(name, **options)


def test_mahalanobis_plus_plus():
    train, test = unit(A["train"]), unit(A["test"])
    means = class_means(train)
    precision = np.linalg.inv((train - means[LABELS]).T @ (train - means[LABELS]) / problem.N)
    expected = [-min((x - m) @ precision @ (x - m) for m in means) for x in test]
    np.testing.assert_allclose(in_float64("mahalanobis_pp"), expected, rtol=1e-8)


def test_euclidean_she():
    right = A["train_logits"].argmax(axis=1) == LABELS
    patterns = np.stack([A["train"][right & (c == LABELS)].mean(axis=0) for c in range(K)])
    expected = -np.linalg.norm(A["test"] - patterns[A["test_logits"].argmax(axis=1)], axis=1)
    np.testing.assert_allclose(in_float64("she_euclidean"), expected, rtol=1e-9)


def test_cosine():
    expected = (unit(A["test"]) @ unit(class_means(unit(A["train"]))).T).max(axis=1)
    np.testing.assert_allclose(in_float64("cosine"), expected, rtol=1e-9)


@pytest.mark.parametrize("power", [1.0, 4.0])
def test_relation(power):
    p, q = (scipy.special.softmax(A[f"{part}_logits"], axis=1) for part in ("train", "test"))
    relation = np.maximum(unit(A["test"]) @ unit(A["train"]).T, 0.0) * (q @ p.T)
    expected = np.where(relation > 0.03, relation**power, 0.0).sum(axis=1)
    np.testing.assert_allclose(in_float64("relation", power=power), expected, rtol=1e-9)


def test_residual():
    origin = -np.linalg.pinv(A["kernel"].T) @ A["bias"]
    _, _, right = np.linalg.svd(A["train"] - origin, full_matrices=False)
    expected = -np.linalg.norm((A["test"] - origin) @ right[10:].T, axis=1)
    np.testing.assert_allclose(in_float64("residual"), expected, rtol=1e-8)


def test_temperature():
    def loss(t):
        log_p = scipy.special.log_softmax(A["train_logits"] / t, axis=1)
        return -log_p[np.arange(problem.N), LABELS].mean()

    best = scipy.optimize.minimize_scalar(loss, bounds=(0.01, 10.0), method="bounded", options={"xatol": 1e-10}).x
    np.testing.assert_allclose(problem.fitted("temperature").fitted["temperature"], best, rtol=1e-5)
    p = scipy.special.softmax(A["test_logits"] / best, axis=1).max(axis=1)
    np.testing.assert_allclose(scipy.special.expit(in_float64("temperature")), p, rtol=1e-5)


def test_temperature_refuses_labels_that_are_always_right():
    outputs = detectors.Outputs(logits=5.0 * np.eye(3))
    with pytest.raises(ValueError, match="no temperature in"):
        detectors.fit("temperature", outputs, np.arange(3))


@pytest.mark.parametrize("below", ["zero", "low"])
def test_vra(below):
    low, high = np.percentile(A["train"], [10, 90])
    lowest = low if below == "low" else 0.0
    shaped = np.where(A["test"] < low, lowest, np.minimum(A["test"], high))
    expected = scipy.special.logsumexp(shaped @ A["kernel"] + A["bias"], axis=1)
    np.testing.assert_allclose(in_float64("vra", below=below), expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["preload", "nc"])
def test_the_ood_class(name):
    logits = A["test_logits"].astype(np.float32)
    detector = detectors.fit(name, detectors.Outputs(logits=logits))
    found = detectors.score(detector, detectors.Outputs(logits=logits))
    np.testing.assert_allclose(found, scores.in_domain_probability(jnp.asarray(logits)), rtol=1e-6)


def test_raw_nearest_neighbours():
    distances = np.sort(np.linalg.norm(A["test"][:, None] - A["train"][None], axis=-1), axis=1)
    np.testing.assert_allclose(in_float64("knn", k=7, normalize=False), -distances[:, 6], rtol=1e-9)


@pytest.mark.parametrize("k", [1, 50, 640])
def test_nearest_neighbours_of_many_pieces(k, monkeypatch):
    monkeypatch.setattr("preload_jax.detectors.bank.PIECE", 128)
    distances = np.sort(np.linalg.norm(unit(A["test"])[:, None] - unit(A["train"])[None], axis=-1), axis=1)
    np.testing.assert_allclose(in_float64("knn", k=k), -distances[:, k - 1], rtol=1e-9)


def test_a_training_example_is_its_own_nearest_neighbour_in_float32():
    detector = problem.fitted("knn", np.float32, k=1)
    assert detectors.score(detector, problem.outputs("train", np.float32)).min() == 0.0


def test_gram_deviations_are_over_what_held_out_examples_deviate():
    found, raw = (in_float64("gram", held_out=h) for h in (10, 0))
    assert problem.fitted("gram").fitted["usual"].min() > 0.0
    assert np.corrcoef(found, raw)[0, 1] > 0.9


@settings(max_examples=80, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(1, 40), st.integers(1, 5)),
        elements=st.floats(-1e6, 1e6, width=32),
    ),
    st.floats(0.0, 100.0),
)
def test_percentiles_are_numpys(values, percent):
    def blocks():
        return ((detectors.Outputs(values[i : i + 7]), None) for i in range(0, len(values), 7))

    found = moments.percentiles(Training(blocks, 2, None), [percent, 50.0])
    np.testing.assert_allclose(found, np.percentile(values.astype(np.float64), [percent, 50.0]), rtol=1e-6, atol=1e-6)
