"""The largest confidence of each class: hand-computed cases, random embeddings, and SciPy as a second solver."""

import decimal
import math
import time
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from preload_jax import guarantees
from preload_jax.errors import UserError
from preload_jax.models import LinearHead, SquareLogitHead, head_options
from tests.random_networks import random_head
from tests.toy import enable_x64


def confidence_bound(parameters, *, nonnegative=True, **options):
    """Over embeddings ≥ 0 where a test does not say otherwise."""
    return guarantees.confidence_bound(parameters, nonnegative=nonnegative, **options)


def head(weights, bias, square_weights, ood_bias=0.0):
    raw_weights = np.log(np.asarray(square_weights, np.float64))
    return {
        "linear": {"kernel": np.asarray(weights, np.float64).T, "bias": np.asarray(bias, np.float64)},
        "ood": {"raw_weights": raw_weights, "bias": ood_bias},
    }


def logits(parameters, embeddings, exponent):
    linear = embeddings @ parameters["linear"]["kernel"] + parameters["linear"]["bias"]
    ood = embeddings**exponent @ np.exp(parameters["ood"]["raw_weights"]) + parameters["ood"]["bias"]
    return np.concatenate([linear, ood[:, None]], axis=1)


@pytest.mark.parametrize(
    ("exponent", "square_weight", "bias", "expected"),
    [
        # The optimum is g = 1: there p_2 / p_o = e v − 1 = 1 and y_2 − y_o = b_2 − v = 0.
        (2, 1.0, 1.0, 1 / 3),
        (4, 1 / 2, 1 / 2, 1 / (1 + 2 * math.exp(-1 / 2))),
        (6, 1 / 3, 1 / 3, 1 / (1 + 2 * math.exp(-2 / 3))),
    ],
)
def test_two_classes_by_hand(exponent, square_weight, bias, expected):
    parameters = head([[1.0], [0.0]], [0.0, bias], [square_weight])
    bound = confidence_bound(parameters, exponent=exponent)
    # Class 2 does best at g = 0.
    second = math.exp(bias) / (2 + math.exp(bias))
    np.testing.assert_allclose(bound.confidence, [expected, second], rtol=1e-9)
    np.testing.assert_allclose(bound.embeddings, [[1.0], [0.0]], atol=1e-4)
    assert (bound.kkt_residual < 1e-4).all()
    # The mirror image, where embeddings may be negative.
    mirrored = confidence_bound(
        head([[-1.0], [0.0]], [0.0, bias], [square_weight]), exponent=exponent, nonnegative=False
    )
    np.testing.assert_allclose(mirrored.confidence[0], expected, rtol=1e-9)
    np.testing.assert_allclose(mirrored.embeddings[0], [-1.0], atol=1e-4)


def test_the_closed_form_by_hand():
    # Class 2 is out of the race: sigmoid(2² / (4·1) + 3² / (4·9) + 0.25 − 0.5) = sigmoid(1); its other weight is < 0.
    bound = confidence_bound(head([[2.0, 3.0, -5.0], [0.0, 0.0, 0.0]], [0.25, -1e3], [1.0, 9.0, 0.1], 0.5))
    np.testing.assert_allclose(bound.closed_form[0], 0.7310585786300049, rtol=1e-12)
    np.testing.assert_allclose(bound.confidence[0], 0.7310585786300049, rtol=1e-12)
    np.testing.assert_allclose(bound.embeddings[0], [1.0, 1 / 6, 0.0], rtol=1e-9)
    # Exponent 4, w = 4 v: g = 1, (1 − 1/4)·4·1 = 3.
    fourth = confidence_bound(head([[4.0], [0.0]], [0.0, -1e3], [1.0]), exponent=4)
    np.testing.assert_allclose(fourth.closed_form_log_odds[0], 3.0, rtol=1e-12)


def test_equal_classes_share_what_the_closed_form_gives_to_each():
    bound = confidence_bound(head([[50.0], [50.0]], [0.0, 0.0], [1.0]))
    np.testing.assert_allclose(bound.confidence, 0.5, rtol=1e-9)
    np.testing.assert_allclose(bound.closed_form_log_odds, 625.0, rtol=1e-9)
    assert (bound.confidence >= 0.5).all()


@pytest.mark.parametrize("raw_weight", [-30.0, -80.0, -1e6])
def test_vanishing_square_weights_give_a_bound_that_says_so(raw_weight):
    parameters = head([[2.0], [1.0]], [math.log(3), 0.0], [1.0])
    parameters["ood"]["raw_weights"] = np.array([raw_weight])
    bound = confidence_bound(parameters)
    v = math.exp(max(raw_weight, -80.0))
    # w² / (4v), or, where class 2 keeps up, half as far: both are 1e12 and more.
    np.testing.assert_allclose(bound.closed_form_log_odds[0], 1 / v, rtol=1e-9)
    assert 0.1 / v < bound.log_odds[0] <= (1 + 1e-9) / v
    assert bound.confidence[0] == 1
    assert (bound.attained_log_odds <= bound.log_odds).all()
    # Class 2 never overtakes class 1 for g ≥ 0: it does best at g = 0, where the odds are 1 : 3 : 1.
    np.testing.assert_allclose(bound.confidence[1], 1 / 5, rtol=1e-6)


def test_square_weights_are_limited_as_the_head_limits_them():
    limited, beyond = (head([[2.0], [1.0]], [0.0, 0.0], [math.exp(80)]) for _ in range(2))
    beyond["ood"]["raw_weights"] = np.array([1e6])
    np.testing.assert_allclose(confidence_bound(beyond).log_odds, confidence_bound(limited).log_odds, rtol=1e-9)


@given(
    seed=st.integers(0, 10**6),
    num_classes=st.integers(2, 12),
    width=st.integers(1, 24),
    weight_scale=st.sampled_from([0.05, 0.5, 3.0]),
    log_scale=st.sampled_from([-1.0, -6.0, -12.0]),
    exponent=st.sampled_from([2, 2, 4, 6]),
    nonnegative=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_properties_of_random_heads(seed, num_classes, width, weight_scale, log_scale, exponent, nonnegative):
    rng = np.random.default_rng(seed)
    parameters = random_head(rng, num_classes=num_classes, width=width, weight_scale=weight_scale, log_scale=log_scale)
    bound = confidence_bound(parameters, exponent=exponent, nonnegative=nonnegative)
    # Between what is attained and the closed form, and the gap is closed.
    assert (bound.attained_log_odds <= bound.log_odds).all()
    assert (bound.log_odds <= bound.closed_form_log_odds).all()
    gap = (bound.log_odds - bound.attained_log_odds) / np.maximum(1, np.abs(bound.log_odds))
    assert gap.max() < 1e-6
    # The residual goes with the square root of the gap, which float64 closes to some 1e-12 of the log-odds.
    assert (bound.kkt_residual < 1e-3 * np.sqrt(np.maximum(1, np.abs(bound.log_odds)))).all()
    if nonnegative:
        assert (bound.embeddings >= 0).all()
    # The network's own logits at the maximiser.
    z = logits(parameters, bound.embeddings, exponent)
    classes = np.arange(num_classes)
    others = z.copy()
    others[classes, classes] = -np.inf
    np.testing.assert_allclose(
        z[classes, classes] - logsumexp(others, axis=1), bound.attained_log_odds, atol=1e-9, rtol=1e-9
    )
    # Nothing sampled exceeds it, near the maximiser or anywhere.
    anywhere = np.abs(rng.standard_cauchy((500, width))) * rng.choice([0.1, 1.0, 10.0], (500, 1))
    near = bound.embeddings[rng.integers(num_classes, size=500)] * rng.uniform(0.5, 1.5, (500, width))
    samples = np.concatenate([anywhere, near])
    confidence = softmax(logits(parameters, samples, exponent), axis=1)[:, :-1].max(axis=0)
    assert (confidence <= bound.confidence + 1e-12).all()


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("exponent", [2, 4])
def test_the_residual_is_the_slope_along_what_may_move(nonnegative, exponent):
    def log_odds(g, kernel, c):
        z = g @ kernel + bias
        ood = g**exponent @ square_weights + ood_bias
        return z[c] - jax.nn.logsumexp(jnp.append(jnp.delete(z, c, assume_unique_indices=True), ood))

    largest = 0.0
    for seed in range(3):
        parameters = random_head(np.random.default_rng(seed), num_classes=5, width=3)
        bound = confidence_bound(parameters, exponent=exponent, nonnegative=nonnegative)
        kernel, bias = parameters["linear"]["kernel"], parameters["linear"]["bias"]
        square_weights, ood_bias = np.exp(parameters["ood"]["raw_weights"]), parameters["ood"]["bias"]
        for c, g in enumerate(bound.embeddings):
            with enable_x64(True):
                slopes = np.asarray(jax.grad(log_odds)(jnp.asarray(g), jnp.asarray(kernel), c))
            if nonnegative:
                slopes = np.where(g == 0, np.maximum(slopes, 0), slopes)
            expected = np.abs(slopes).max() / np.abs(kernel).max()
            # The slopes are differences of numbers next to 1.
            np.testing.assert_allclose(bound.kkt_residual[c], expected, rtol=1e-4, atol=2e-15)
            largest = max(largest, expected)
    assert largest > 1e-10


@pytest.mark.parametrize("exponent", [2, 4])
def test_no_embedding_of_a_hundred_thousand_exceeds_the_bound(exponent):
    rng = np.random.default_rng(0)
    parameters = random_head(rng, num_classes=10, width=16, weight_scale=0.6)
    bound = confidence_bound(parameters, exponent=exponent)
    samples = rng.exponential(rng.choice([0.3, 1.0, 3.0], (100_000, 1)), (100_000, 16))
    samples[:50_000] = bound.embeddings[rng.integers(10, size=50_000)] * rng.uniform(0.8, 1.2, (50_000, 16))
    confidence = softmax(logits(parameters, samples, exponent), axis=1)[:, :-1].max(axis=0)
    assert (confidence <= bound.confidence).all()
    # And the samples come close, so that the bound isn't idle.
    assert (confidence > 0.95 * bound.confidence).all()


@pytest.mark.parametrize("exponent", [2, 4, 6])
def test_scipy_finds_the_same_maximum(exponent):
    rng = np.random.default_rng(1)
    parameters = random_head(rng, num_classes=6, width=20, weight_scale=0.8)
    bound = confidence_bound(parameters, exponent=exponent)
    weights, v = parameters["linear"]["kernel"].T, np.exp(parameters["ood"]["raw_weights"])
    for c in range(6):

        def negative_log_odds(g, c=c):
            z = logits(parameters, g[None], exponent)[0]
            others = np.delete(z, c)
            gradients = np.vstack([np.delete(weights, c, axis=0), exponent * v * g ** (exponent - 1)])
            return logsumexp(others) - z[c], softmax(others) @ gradients - weights[c]

        found = minimize(
            negative_log_odds,
            np.full(20, 0.1),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * 20,
            options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9},
        )
        np.testing.assert_allclose(-found.fun, bound.log_odds[c], rtol=1e-5, atol=1e-5)
        assert -found.fun <= bound.log_odds[c] + 1e-12


def test_bounds_hold_for_the_heads_as_they_compute():
    rng = np.random.default_rng(2)
    module = SquareLogitHead(5)
    variables = module.init(jax.random.key(0), jnp.ones((1, 12)))
    bound = confidence_bound(variables)
    features = jnp.asarray(rng.exponential(size=(2000, 12)), jnp.float32)
    confidence = jax.nn.softmax(module.apply(variables, features))[:, :5].max(axis=0)
    assert (np.asarray(confidence) <= bound.confidence + 1e-5).all()
    at_maximum = jax.nn.softmax(module.apply(variables, jnp.asarray(bound.embeddings, jnp.float32)))
    np.testing.assert_allclose(np.diag(np.asarray(at_maximum)), bound.confidence, atol=1e-6)


@pytest.mark.parametrize("seed", [3, 44, 1651])
@pytest.mark.parametrize("exponent", [2, 4])
def test_classes_among_others_that_keep_them_down(seed, exponent):
    # Many classes in few dimensions: some lie between the others, whose linear logits bound them, and the extra class
    # has almost no share in that; the dual alone is singular there.
    parameters = random_head(np.random.default_rng(seed), num_classes=10, width=2, weight_scale=3.0, log_scale=-12.0)
    bound = confidence_bound(parameters, exponent=exponent)
    assert (bound.log_odds - bound.attained_log_odds < 1e-6 * np.maximum(1, np.abs(bound.log_odds))).all()
    assert bound.confidence.min() < 0.7
    assert (bound.closed_form > 0.99).any()


@pytest.mark.parametrize("log_scale", [-1.0, -8.0, -14.0])
def test_a_class_that_is_the_mean_of_two_others_stays_below_a_half(log_scale):
    # z_2 ≤ max(z_0, z_1) always; its closed form, which looks at the extra class alone, is 1 but for 1e-500 and less.
    parameters = random_head(np.random.default_rng(0), num_classes=6, width=64, log_scale=log_scale)
    parameters["linear"]["bias"][:] = 0
    kernel = parameters["linear"]["kernel"]
    kernel[:, 2] = (kernel[:, 0] + kernel[:, 1]) / 2
    bound = confidence_bound(parameters)
    assert bound.confidence[2] < 0.5
    assert bound.log_odds[2] - bound.attained_log_odds[2] < 1e-5
    if log_scale < -1:
        assert bound.closed_form_log_odds[2] > 1000


@pytest.mark.parametrize(("num_classes", "width"), [(100, 256), (300, 512)])
def test_many_classes_take_seconds(num_classes, width):
    parameters = random_head(np.random.default_rng(3), num_classes=num_classes, width=width, weight_scale=0.2)
    start = time.perf_counter()
    bound = confidence_bound(parameters)
    assert time.perf_counter() - start < 60
    assert (bound.log_odds - bound.attained_log_odds).max() < 1e-8
    assert bound.kkt_residual.max() < 1e-4


def test_linear_heads_reach_1_along_a_ray():
    module = LinearHead(4)
    variables = module.init(jax.random.key(0), jnp.ones((1, 8)))
    bound = confidence_bound(variables)
    np.testing.assert_array_equal(bound.confidence, 1.0)
    assert np.isinf(bound.log_odds).all()
    assert "4 of 4" in bound.reason
    np.testing.assert_allclose(np.linalg.norm(bound.embeddings, axis=1), 1)
    assert (bound.embeddings >= 0).all()
    far = jax.nn.softmax(module.apply(variables, jnp.asarray(1e6 * bound.embeddings, jnp.float32)))
    np.testing.assert_allclose(far, np.eye(4), atol=1e-6)


def test_a_dominated_class_of_a_linear_head_is_told_apart():
    # w_1 = (1, 1) is the mean of the others, w_2 and w_3 win along the axes.
    kernel = np.array([[1.0, 2.0, 0.0], [1.0, 0.0, 2.0]])
    bound = confidence_bound({"linear": {"kernel": kernel, "bias": np.zeros(3)}})
    assert bound.embeddings.any(axis=1).tolist() == [False, True, True]
    assert np.isnan(bound.attained_log_odds[0])
    assert "2 of 3" in bound.reason
    np.testing.assert_array_equal(bound.confidence, 1.0)


def test_linear_heads_reach_1_among_negative_embeddings():
    linear = {"linear": {"kernel": np.array([[-1.0, 1.0]]), "bias": np.zeros(2)}}
    np.testing.assert_array_equal(confidence_bound(linear).embeddings, [[0.0], [1.0]])
    bound = confidence_bound(linear, nonnegative=False)
    np.testing.assert_array_equal(bound.embeddings, [[-1.0], [1.0]])
    np.testing.assert_array_equal(bound.attained_log_odds, np.inf)


def test_wrong_parameters_are_refused():
    good = head([[1.0], [0.0]], [0.0, 0.0], [1.0])
    for exponent in (3, 0, -2):
        with pytest.raises(UserError, match=f"exponent must be an even integer >= 2, got {exponent}"):
            confidence_bound(good, exponent=exponent)
    with pytest.raises(UserError, match=r"got entries \['backbone', 'head'\]; pass variables\['params'\]\['head'\]"):
        confidence_bound({"backbone": {}, "head": good})
    linear = good["linear"]
    # As Equinox keeps it: [K, d].
    transposed = {"kernel": np.ones((3, 2)), "bias": np.zeros(3)}
    with pytest.raises(UserError, match=r"linear/kernel has shape \(3, 2\) and linear/bias \(3,\), expected \(d, K\)"):
        confidence_bound({"linear": transposed})
    with pytest.raises(UserError, match=r"linear/bias \(1,\), expected \(d, K\) and \(K,\)"):
        confidence_bound({**good, "linear": {**linear, "bias": np.zeros(1)}})
    with pytest.raises(UserError, match=r"lacks linear/bias, got entries \['kernel'\]; a bias may be zeros"):
        confidence_bound({**good, "linear": {"kernel": linear["kernel"]}})
    with pytest.raises(UserError, match=r"ood/bias has shape \(2,\), expected one number"):
        confidence_bound({**good, "ood": {**good["ood"], "bias": np.zeros(2)}})
    bound = confidence_bound({**good, "ood": {**good["ood"], "bias": np.zeros(1)}})
    np.testing.assert_array_equal(bound.log_odds, confidence_bound(good).log_odds)
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(UserError, match="linear/kernel holds NaN or infinity"):
            confidence_bound(head([[1.0], [value]], [0.0, 0.0], [1.0]))
    with pytest.raises(UserError, match=r"linear/kernel has shape \(2,\)"):
        confidence_bound({"linear": {"kernel": np.ones(2), "bias": np.ones(2)}})
    with pytest.raises(UserError, match=r"raw_weights has shape \(3,\), expected \(1,\)"):
        confidence_bound({**good, "ood": {"raw_weights": np.zeros(3), "bias": 0.0}})


def test_a_single_class_without_an_ood_class_is_certain_everywhere():
    bound = confidence_bound({"linear": {"kernel": np.zeros((4, 1)), "bias": np.zeros(1)}})
    assert bound.confidence == 1.0
    assert bound.attained_log_odds == np.inf
    np.testing.assert_allclose(np.linalg.norm(bound.embeddings, axis=1), 1.0)


def test_negative_embeddings_are_counted_unless_they_are_excluded():
    parameters = head([[2.0], [-2.0]], [0.0, 0.0], [1.0])
    either = guarantees.confidence_bound(parameters)
    np.testing.assert_allclose(either.confidence, guarantees.confidence_bound(parameters, nonnegative=False).confidence)
    np.testing.assert_allclose(either.confidence, confidence_bound(parameters).confidence[0], rtol=1e-12)
    assert confidence_bound(parameters).confidence[1] < either.confidence[1]
    assert "negative ones too" in either.reason


@given(
    seed=st.integers(0, 10**6),
    num_classes=st.integers(1, 6),
    width=st.integers(1, 6),
    log_scale=st.sampled_from([0.0, 30.0, 60.0]),
    weight_scale=st.sampled_from([1e-12, 1e-6, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_bounds_are_rounded_outwards(seed, num_classes, width, log_scale, weight_scale):
    # With embeddings and weights near 0 all that is left of the log-odds is rounding.
    rng = np.random.default_rng(seed)
    weights = weight_scale * rng.standard_normal((num_classes, width))
    parameters = head(weights, np.zeros(num_classes), np.exp(log_scale * rng.random(width)))
    bound = confidence_bound(parameters)
    v = np.exp(parameters["ood"]["raw_weights"])
    with decimal.localcontext(prec=60):
        for c in range(num_classes):
            g = [Decimal(float(x)) for x in bound.embeddings[c]]
            z = [sum(Decimal(float(w)) * x for w, x in zip(row, g, strict=True)) for row in weights]
            z.append(sum(Decimal(float(a)) * x**2 for a, x in zip(v, g, strict=True)))
            exact = z[c] - sum(y.exp() for i, y in enumerate(z) if i != c).ln()
            assert bound.attained_log_odds[c] <= exact <= bound.log_odds[c]
            assert 1 / (1 + (-exact).exp()) <= bound.confidence[c]


@pytest.mark.parametrize(("low", "high"), [(1e-8, 1e-7), (2.5e-6, 2e-5), (1e-5, 1e-4)])
@pytest.mark.parametrize("nonnegative", [True, False])
def test_small_square_weights(low, high, nonnegative):
    rng = np.random.default_rng(0)
    weights = 0.05 * rng.standard_normal((20, 512))
    weights[3] = weights[[0, 1, 4, 5, 6]].mean(axis=0) + 1e-4 * rng.standard_normal(512)
    parameters = head(weights, rng.standard_normal(20), rng.uniform(low, high, 512))
    bound = confidence_bound(parameters, nonnegative=nonnegative)
    gap = (bound.log_odds - bound.attained_log_odds) / np.maximum(1, np.abs(bound.log_odds))
    assert gap.max() < 1e-6


def test_a_gap_that_is_left_is_said():
    # The mean of two others, of weights that are 1e12 times as large as the square weights.
    rng = np.random.default_rng(15)
    weights = rng.standard_normal((20, 512))
    weights[2] = weights[:2].mean(axis=0)
    parameters = head(weights, np.zeros(20), rng.uniform(1e-12, 1e-11, 512))
    with pytest.warns(RuntimeWarning, match=r"the bound of 1 of 20 classes may lie above the supremum by up to"):
        bound = confidence_bound(parameters)
    assert bound.attained_log_odds[2] < -0.5 < bound.log_odds[2]


def test_the_floors_and_the_distance_of_a_head_are_part_of_its_bound():
    module = SquareLogitHead(4, exponent=4, min_weight=0.3, min_distance_weight=1.0, distance=True)
    variables = module.init(jax.random.key(0), jnp.ones((1, 7)))
    plain = jax.tree.map(np.array, variables["params"])
    plain["ood"]["raw_weights"] = np.log(np.exp(plain["ood"]["raw_weights"][:6].astype(float)) + 0.3)
    expected = confidence_bound(plain, exponent=4)
    found = confidence_bound(variables, **head_options(module))
    np.testing.assert_allclose(found.log_odds, expected.log_odds, rtol=1e-12)
    with pytest.raises(UserError, match="min_weight must be finite and at least 0, got -1"):
        confidence_bound(variables, min_weight=-1.0)


def test_the_threads_of_blas_do_not_wait_for_each_other():
    parameters = random_head(np.random.default_rng(3), num_classes=300, width=600, weight_scale=0.05)
    confidence_bound(random_head(np.random.default_rng(3), num_classes=5, width=5))
    start = time.process_time()
    bound = confidence_bound(parameters)
    assert time.process_time() - start < 5
    assert (bound.log_odds - bound.attained_log_odds).max() < 1e-8


@pytest.mark.parametrize("flag", ["False", 0, 1, [], np.array(True)], ids=repr)
@pytest.mark.usefixtures("unannotated")
def test_what_is_no_truth_value_is_refused(flag):
    parameters = head([[2.0], [-2.0]], [0.0, 0.0], [1.0])
    with pytest.raises(UserError, match="nonnegative must be True or False, got"):
        confidence_bound(parameters, nonnegative=flag)
    expected = confidence_bound(parameters, nonnegative=True).log_odds
    np.testing.assert_array_equal(confidence_bound(parameters, nonnegative=np.True_).log_odds, expected)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (None, r"expected a head's parameters, got a NoneType; pass variables\['params'\]\['head'\]"),
        ([1.0], "expected a head's parameters, got a list"),
        (LinearHead(3), "expected a head's parameters, got a LinearHead"),
        ({"params": None}, "expected a head's parameters, got a NoneType"),
        ({"linear": np.ones((2, 2))}, "the head's 'linear' is a ndarray, expected its arrays by name"),
        ({"linear": {"kernel": np.ones((0, 2)), "bias": np.ones(2)}}, r"linear/kernel has shape \(0, 2\)"),
        ({"linear": {"kernel": np.ones((2, 0)), "bias": np.ones(0)}}, r"linear/kernel has shape \(2, 0\)"),
        ({"linear": {"kernel": "a", "bias": np.ones(2)}}, "linear/kernel is of type <U1; expected real numbers"),
        ({"linear": {"kernel": np.ma.array(np.ones((2, 2)), mask=True), "bias": np.ones(2)}}, "a masked array was"),
        ({**head([[1.0], [0.0]], [0.0, 0.0], [1.0]), "ood": None}, "the head's 'ood' is a NoneType"),
    ],
)
@pytest.mark.usefixtures("unannotated")
def test_what_is_no_head_is_refused(parameters, message):
    with pytest.raises(UserError, match=message):
        confidence_bound(parameters)
