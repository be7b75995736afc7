"""The radius beyond which no class is confident: hand-computed cases and random embeddings."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from preload_jax.errors import UserError
from preload_jax.guarantees import SafeRadius, safe_radius
from tests.random_networks import random_head


def head(weights, square_weights, bias=0.0):
    """One class that matters; the other has no chance."""
    return {
        "linear": {"kernel": np.array([weights, np.zeros(len(weights))]).T, "bias": np.array([bias, -1e6])},
        "ood": {"raw_weights": np.log(np.array(square_weights)), "bias": 0.0},
    }


@pytest.mark.parametrize(
    ("parameters", "confidence", "options", "expected"),
    [
        # 2R − R² = 0
        (head([2.0], [1.0]), 0.5, {}, 2.0),
        # 2R − R² = −log 3
        (head([2.0], [1.0]), 0.25, {}, 1 + math.sqrt(1 + math.log(3))),
        # The second coordinate takes the rest of the length: g = (4/3, √(32)/3).
        (head([2.0, 0.0], [1.0, 0.25]), 0.5, {}, 4 / math.sqrt(3)),
        # A weight next to 0: wR − R² = −log 3.
        (head([1e-6], [1.0]), 0.25, {}, (1e-6 + math.sqrt(1e-12 + 4 * math.log(3))) / 2),
        # A negative weight is no help where g ≥ 0, and 2 where it may be negative.
        (head([-2.0], [1.0], bias=-0.5), 0.5, {"nonnegative": True}, 0.0),
        # Where it is not known they may be.
        (head([-2.0], [1.0]), 0.5, {"nonnegative": False}, 2.0),
        (head([-2.0], [1.0]), 0.5, {}, 2.0),
        # 2R − (1 + 3)R² = 0
        (head([2.0], [1.0]), 0.5, {"min_weight": 3.0}, 0.5),
        # R − R⁴ = 0 and R − R⁶ = 0
        (head([1.0], [1.0]), 0.5, {"exponent": 4}, 1.0),
        (head([1.0], [1.0]), 0.5, {"exponent": 6}, 1.0),
        # Never that confident: 1 is the largest log-odds.
        (head([2.0], [1.0]), 0.74, {}, 0.0),
        # Nor here: 3/4 at R = 4^(−1/3) is 0.47.
        (head([1.0], [1.0]), 0.62, {"exponent": 4}, 0.0),
    ],
)
def test_by_hand(parameters, confidence, options, expected):
    found = safe_radius(parameters, confidence, **options)
    np.testing.assert_allclose(found.class_radii[0], expected, rtol=1e-9)
    assert found.class_radii[0] >= expected
    assert found.radius == found.class_radii.max()


@given(
    seed=st.integers(0, 10**6),
    confidence=st.sampled_from([0.01, 0.3, 0.5, 0.9, 0.999]),
    exponent=st.sampled_from([2, 2, 4, 6]),
    width=st.integers(1, 8),
    nonnegative=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_no_embedding_beyond_it_is_more_confident(seed, confidence, exponent, width, nonnegative):
    rng = np.random.default_rng(seed)
    parameters = random_head(rng, num_classes=4, width=width, weight_scale=1.0)
    found = safe_radius(parameters, confidence, exponent=exponent, nonnegative=nonnegative)
    directions = rng.normal(size=(4000, width)) * rng.choice([0.05, 1.0], (4000, width))
    directions = np.abs(directions) if nonnegative else directions
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    weights, v = parameters["linear"]["kernel"], np.exp(parameters["ood"]["raw_weights"])
    for factor in (1.0, 1.01, 1.5, 10.0):
        g = found.radius * factor * directions
        z = np.column_stack([g @ weights + parameters["linear"]["bias"], g**exponent @ v + parameters["ood"]["bias"]])
        assert softmax(z, axis=1)[:, :-1].max() <= confidence + 1e-9


@pytest.mark.parametrize("exponent", [2, 4, 6])
def test_it_is_the_farthest_point_where_the_pair_of_logits_is_that_far_apart(exponent):
    # In direction u the class keeps up with the OOD class until (w·u) R = (v·u^e) R^e.
    angles = np.linspace(0, np.pi / 2, 200_001)
    u = np.stack([np.cos(angles), np.sin(angles)])
    for seed in range(4):
        rng = np.random.default_rng(seed)
        weights, v = rng.uniform(0.0, 3.0, 2), rng.uniform(0.1, 2.0, 2)
        radii = (weights @ u / (v @ u**exponent)) ** (1 / (exponent - 1))
        found = safe_radius(head(weights, v), 0.5, exponent=exponent)
        np.testing.assert_allclose(found.radius, radii.max(), rtol=1e-8)


def test_it_grows_as_the_confidence_falls():
    parameters = random_head(np.random.default_rng(1), num_classes=5, width=9, weight_scale=1.0)
    radii = [safe_radius(parameters, confidence).radius for confidence in (0.999, 0.9, 0.5, 0.1, 1e-6)]
    assert radii == sorted(radii)


def test_vanishing_square_weights_push_it_far_out():
    parameters = head([1.0], [1.0])
    parameters["ood"]["raw_weights"] = np.array([-1e5])
    np.testing.assert_allclose(safe_radius(parameters, 0.5).radius, math.exp(80), rtol=1e-9)


def test_linear_heads_have_none():
    found = safe_radius({"linear": {"kernel": np.eye(2), "bias": np.zeros(2)}}, 0.5)
    assert math.isinf(found.radius)
    assert found.share_beyond(np.full((3, 2), 1e30, np.float32)) == 0.0


def test_share_beyond():
    found = safe_radius(head([2.0, 2.0], [1.0, 1.0]), 0.5)
    np.testing.assert_allclose(found.radius, math.sqrt(8), rtol=1e-9)
    assert found.share_beyond(np.array([[3.0, 0.0], [1.0, 1.0], [2.0, 2.1], [0.0, 0.0]])) == 0.5
    assert SafeRadius(0.5, 2.0, np.array([2.0])).share_beyond(np.array([[2.0], [1.0]])) == 0.5


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_wrong_confidences_are_refused(confidence):
    with pytest.raises(UserError, match="confidence must lie between 0 and 1, both excluded, got"):
        safe_radius(head([1.0], [1.0]), confidence)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.ones((4, 4)), r"embeddings of shape \[4, 4\]; expected \[n, 2\], or \[n, 3\] with a distance"),
        (np.ones((4, 1)), r"embeddings of shape \[4, 1\]; expected \[n, 2\]"),
        (np.ones((0, 2)), r"embeddings of shape \[0, 2\].*, n at least 1"),
        (np.ones(2), r"embeddings of shape \[2\]"),
        (np.array([[1.0, np.nan]]), "embeddings hold NaN or infinity in 1 of 1"),
        (np.ma.array([[1.0, 9.0]], mask=[[0, 1]]), "a masked array was given"),
        (None, "embeddings of type object; expected real numbers"),
        ([[1.0], [1.0, 2.0]], "embeddings are no array"),
    ],
)
@pytest.mark.usefixtures("unannotated")
def test_what_are_no_embeddings_is_refused(features, message):
    with pytest.raises(UserError, match=message):
        safe_radius(head([2.0, 2.0], [1.0, 1.0]), 0.5).share_beyond(features)


@pytest.mark.usefixtures("unannotated")
def test_embeddings_may_be_a_list_and_have_the_distance_last():
    found = safe_radius(head([2.0, 2.0], [1.0, 1.0]), 0.5)
    assert found.share_beyond([[3.0, 0.0], [1.0, 1.0]]) == 0.5
    assert found.share_beyond(np.array([[3.0, 0.0, 0.0], [1.0, 1.0, 99.0]])) == 0.5


@pytest.mark.parametrize("flag", ["False", 0, 1, [], np.array(True)], ids=repr)
@pytest.mark.usefixtures("unannotated")
def test_what_is_no_truth_value_is_refused(flag):
    with pytest.raises(UserError, match="nonnegative must be True or False, got"):
        safe_radius(head([2.0], [1.0]), 0.5, nonnegative=flag)
    assert safe_radius(head([-2.0], [1.0], bias=-0.5), 0.5, nonnegative=np.True_).radius == 0.0
