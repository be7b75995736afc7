"""Detectors that no other package has, against their definitions in float64; exact percentiles; what options change."""

import decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from preload_jax import detectors, scores
from preload_jax.detectors import ash, bank, mahalanobis, moments
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


@pytest.fixture(params=["host", "device"])
def in_pieces(request, monkeypatch):
    """Banks are read in many pieces, as on the CPU or as on an accelerator."""
    for name, size in {"PIECE": 128, "HOST_PIECE": 128, "HOST_QUERIES": 7}.items():
        monkeypatch.setattr(f"preload_jax.detectors.bank.{name}", size)
    if request.param == "device":
        monkeypatch.setattr("jax.default_backend", lambda: "gpu")


@pytest.mark.parametrize("power", [1.0, 4.0])
def test_relation(power, in_pieces):
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


# Equal ones, certain ones, and such as are as far apart as Decimal's exponents reach.
_ROWS_OF_LOGITS = [
    [0.0, 0.0, 0.0, 0.0],
    [2.0, 2.0, -1.0, -1.0],
    [5.0, 5.0, 5.0, -1e4],
    [30.0, 0.0, 0.0, -30.0],
    [1e4, 0.0, -1e4, -1e4],
    [1e6, 1e6, 0.0, -1e6],
    [1e6, 1e6 - 1.0, 0.0, 3.0],
    [-7.0, -7.5, -900.0, -7.25],
]


def _of_decimals(row, function):
    """−log Σ_c function(p_c, 1 − p_c, log p_c) in 60 digits."""
    with decimal.localcontext(prec=60, Emin=-(10**9), Emax=10**9):
        powers = [(decimal.Decimal(z) - decimal.Decimal(max(row))).exp() for z in row]
        rest = [sum((x for j, x in enumerate(powers) if j != i), decimal.Decimal(0)) for i in range(len(row))]
        total = sum(powers)
        # log p = −log(1 + rest/power), without what cancels.
        terms = [function(x / total, r / total, -(r / x + 1).ln()) for x, r in zip(powers, rest, strict=True)]
        return float(-sum(terms).ln())


@pytest.mark.parametrize("row", _ROWS_OF_LOGITS)
def test_entropy_and_gen_of_equal_and_of_certain_logits(row):
    outputs = detectors.Outputs(logits=np.array([row, row[::-1]], np.float32))
    expected = {
        "entropy": _of_decimals(row, lambda p, _, log_p: -p * log_p),
        "gen": _of_decimals(row, lambda p, q, _: ((p.ln() + q.ln()) * decimal.Decimal("0.1")).exp()),
    }
    for name, value in expected.items():
        found = detectors.score(detectors.fit(name, outputs), outputs)
        np.testing.assert_allclose(found, [value] * 2, rtol=3e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["entropy", "gen"])
def test_what_is_certain_beyond_floats_has_the_largest_score(name):
    logits = np.array([[3e38, -3e38, 0.0], [1.0, 0.0, 0.0]], np.float32)
    certain, other = detectors.score(
        detectors.fit(name, detectors.Outputs(logits=logits)), detectors.Outputs(logits=logits)
    )
    assert np.isfinite(certain)
    assert certain > other


def test_raw_nearest_neighbours():
    distances = np.sort(np.linalg.norm(A["test"][:, None] - A["train"][None], axis=-1), axis=1)
    np.testing.assert_allclose(in_float64("knn", k=7, normalize=False), -distances[:, 6], rtol=1e-9)


@pytest.mark.parametrize("k", [1, 50, 640])
def test_nearest_neighbours_of_many_pieces(k, in_pieces):
    distances = np.sort(np.linalg.norm(unit(A["test"])[:, None] - unit(A["train"])[None], axis=-1), axis=1)
    np.testing.assert_allclose(in_float64("knn", k=k), -distances[:, k - 1], rtol=1e-9)


@pytest.mark.parametrize("k", [1, 9, 300])
def test_the_largest_products_less_offsets_with_ties(k, in_pieces):
    rng = np.random.default_rng(0)
    # Small integers: exact products, many of them equal.
    queries, stored = rng.integers(-2, 3, (20, 4)).astype(np.float32), rng.integers(-2, 3, (600, 4)).astype(np.float32)
    offsets = rng.integers(0, 3, 600).astype(np.float32)
    values, which = bank.nearest(queries, stored, k, offsets)
    all_values = queries @ stored.T - offsets
    np.testing.assert_array_equal(values, -np.sort(-all_values, axis=1)[:, :k])
    np.testing.assert_array_equal(np.take_along_axis(all_values, which, axis=1), values)
    assert all(len(set(row)) == k for row in which)


# One shape and few k: each is a compilation.
@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float32, (5, 12), elements=st.sampled_from([-3e38, -1, 0, 2, 3e38])),
    st.sampled_from([1, 4, 12]),
)
def test_the_largest_entries_are_top_ks_with_the_first_of_equal_ones(values, k):
    _, chosen = jax.lax.top_k(values, k)
    expected = np.zeros(values.shape, bool)
    np.put_along_axis(expected, np.asarray(chosen), True, axis=1)
    for dtype in (np.float32, np.float64):
        np.testing.assert_array_equal(ash._largest(values.astype(dtype), k), expected)


def test_small_mahalanobis_distances_keep_their_digits_beside_means_that_are_far_apart():
    """A feature that is the same within a class and another in each class: its whitened means are 10⁷ apart."""
    labels = np.arange(300) % 3
    features = np.random.default_rng(0).normal(size=(300, 4))
    features[:, 3] = 0.1 * labels
    fitted = detectors.fit("mahalanobis", detectors.Outputs(features), labels, jitter=1e-16).fitted
    factor = fitted["cholesky"]
    expected = [
        min(np.sum(scipy.linalg.solve_triangular(factor, x - m, lower=True) ** 2) for m in fitted["means"])
        for x in features
    ]
    np.testing.assert_allclose(mahalanobis.nearest(fitted, features), expected, rtol=1e-6)


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
    def blocks(checked=True):
        return ((detectors.Outputs(values[i : i + 7]), None) for i in range(0, len(values), 7))

    found = moments.percentiles(Training(blocks, 2, None), [percent, 50.0])
    np.testing.assert_allclose(found, np.percentile(values.astype(np.float64), [percent, 50.0]), rtol=1e-6, atol=1e-6)


def _nearest(stored, queries, k, normalize):
    """−‖q − b_(k)‖ in float64, by differences."""
    stored, queries = stored.astype(np.float64), queries.astype(np.float64)
    if normalize:
        stored, queries = (
            x / np.where((n := np.linalg.norm(x, axis=1, keepdims=True)) > 0, n, 1) for x in (stored, queries)
        )
    return -np.sort(np.linalg.norm(queries[:, None] - stored[None], axis=2), axis=1)[:, k - 1]


_RNG = np.random.default_rng(0)
_BASE, _ASKED = _RNG.normal(size=(300, 8)), _RNG.normal(size=(20, 8))
_DAMAGED = np.concatenate([np.full((1, 8), 1e25), _BASE[1:]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("stored", "queries", "k", "normalize", "tolerance"),
    [
        (np.maximum(_BASE - 1.0, 0.0), np.maximum(_ASKED, 0.0), 50, True, 1e-5),  # rows of zeros among them
        (_DAMAGED, _ASKED, 5, False, 1e-5),
        (1e30 * _BASE, 1e30 * _ASKED, 5, False, 1e-5),
        (1e-30 * _BASE, 1e-30 * _ASKED, 5, False, 1e-5),
        (_BASE, 1e30 * _ASKED, 5, False, 1e-5),
        (100.0 + 0.01 * _BASE, 100.0 + 0.01 * _ASKED, 5, False, 1e-5),
        (np.repeat(_BASE[:10], 30, axis=0), _BASE[:5], 5, True, 1e-6),
        # On the sphere float32 itself tells directions so close apart to a few digits.
        (100.0 + 0.01 * _BASE, 100.0 + 0.01 * _ASKED, 5, True, 2e-3),
    ],
)
def test_the_kth_neighbour_is_the_kth(dtype, stored, queries, k, normalize, tolerance):
    """Where products of features lose what tells neighbours apart, distances are computed another way."""
    stored, queries = stored.astype(dtype), queries.astype(dtype)
    detector = detectors.fit("knn", detectors.Outputs(stored), k=k, normalize=normalize)
    found = detectors.score(detector, detectors.Outputs(queries))
    np.testing.assert_allclose(found, _nearest(stored, queries, k, normalize), rtol=tolerance, atol=1e-37)


@pytest.mark.parametrize("order", [(np.float32, np.float64), (np.float64, np.float32)])
def test_percentiles_of_batches_of_two_precisions(order):
    x = _RNG.gamma(1.0, 1.0, (600, 6)).astype(np.float32)
    head = _RNG.normal(size=(6, 3)), np.zeros(3)
    batches = [detectors.Outputs(part.astype(dtype)) for part, dtype in zip(np.split(x, 2), order, strict=True)]
    found = detectors.fit("react", lambda: batches, head=head).fitted["most"]
    assert found == pytest.approx(np.percentile(x.astype(np.float64), 90), rel=1e-6)
