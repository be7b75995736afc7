"""The radius in input space: the closed form by hand, attacks on several backbones, and the limits of float32."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preload_jax.errors import UserError
from preload_jax.guarantees import confidence_bound, input_radius, safe_radius
from preload_jax.models import MLP, Classifier, LinearHead, SquareLogitHead, WithDistance, head_options
from preload_jax.models.classifier import OnePixel


class Norms(nn.Module):
    """Layer norm last: embeddings are bounded and signed, so that no other guarantee means anything."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.gelu(nn.Dense(24)(images.reshape(len(images), -1)))
        return nn.LayerNorm()(nn.Dense(6)(x))


def by_hand(weights, bias, raw_weights, ood_bias):
    head = {
        "linear": {"kernel": np.array(weights, float).T, "bias": np.array(bias, float)},
        "ood": {"raw_weights": np.array(raw_weights, float), "bias": np.array(ood_bias, float)},
    }
    return {"params": {"head": head}}


@pytest.mark.parametrize(
    ("exponent", "nonnegative", "log_odds"),
    # (max(w, 0)²/(4 v)): 2²/4 + 0.75 and 6²/(4·9) + 4²/4 + 0.5; with |w| 3²/(4·9) more for the first.
    [(2, True, [1.75, 5.5]), (2, None, [2.0, 5.5]), (2, False, [2.0, 5.5])],
)
def test_the_closed_form_by_hand(exponent, nonnegative, log_odds):
    center, scale, weight = np.array([[[1.0, -1.0]]]), 3.0, 0.5
    model = Classifier(
        WithDistance(OnePixel(), center=center, scale=scale, weight=weight),
        SquareLogitHead(2, min_weight=0.5, min_distance_weight=0.125, exponent=exponent),
    )
    variables = by_hand([[2.0, -3.0], [4.0, 6.0]], [0.75, 0.5], np.log([0.5, 8.5, 0.125]), 0.0)
    found = input_radius(model, variables, 0.5, nonnegative=nonnegative)
    np.testing.assert_allclose(found.class_log_odds, log_odds, rtol=1e-12)
    # v_r = 0.25, so that r = √(A / 0.25) / 0.5
    np.testing.assert_allclose(found.relative, math.sqrt(5.5 / 0.25) / 0.5, rtol=2e-5)
    np.testing.assert_allclose(found.radius, 3.0 * found.relative, rtol=1e-12)
    lower = input_radius(model, variables, 0.25, nonnegative=nonnegative)
    np.testing.assert_allclose(lower.relative, math.sqrt((5.5 + math.log(3)) / 0.25) / 0.5, rtol=2e-5)
    assert input_radius(model, variables, 0.999, nonnegative=nonnegative).radius == 0.0
    assert found.share_beyond(center + np.array([[[[0.0, 0.0]]], [[[0.0, 1e3]]]])) == 0.5


@given(
    seed=st.integers(0, 10**6),
    backbone=st.sampled_from([Norms(), MLP(widths=(12, 6))]),
    exponent=st.sampled_from([2, 4]),
    confidence=st.sampled_from([0.3, 0.5, 0.9]),
    weight=st.sampled_from([0.5, 2.0]),
)
@settings(max_examples=8, deadline=None)
def test_no_attack_is_confident_beyond_the_radius(seed, backbone, exponent, confidence, weight):
    rng = np.random.default_rng(seed)
    center, scale = rng.random((3, 3, 1)).astype(np.float32), float(rng.uniform(0.5, 2))
    model = Classifier(
        WithDistance(backbone, center=center, scale=scale, weight=weight), SquareLogitHead(3, exponent=exponent)
    )
    variables = model.init(jax.random.key(seed), jnp.zeros((1, 3, 3, 1)))
    # A trained network's classes are sure of themselves, and its OOD class is not.
    params = jax.tree.map(lambda x: x, variables["params"])
    params["head"]["linear"]["kernel"] *= 8.0
    params["head"]["ood"]["raw_weights"] -= 1.0
    variables = {**variables, "params": params}
    found = input_radius(model, variables, confidence)
    radius = max(found.radius, scale)  # with radius 0 nothing is confident anywhere

    def on_sphere(x):
        offset = x - center[None]
        norm = jnp.sqrt(jnp.sum(offset**2, axis=(1, 2, 3), keepdims=True))
        return center[None] + radius * offset / norm

    def log_confidence(x):
        return jax.nn.log_softmax(model.apply(variables, x))[:, :-1].max(axis=1)

    step = jax.jit(lambda x: on_sphere(x + 0.1 * radius * jax.grad(lambda y: log_confidence(y).sum())(x)))
    x = on_sphere(jnp.asarray(rng.normal(size=(64, 3, 3, 1)), jnp.float32))
    for _ in range(10):
        x = step(x)
    assert float(jnp.exp(log_confidence(x)).max()) <= confidence
    for factor in (1.5, 10.0, 1e4, 1e12):
        far = center[None] + factor * (x - center[None])
        assert float(jnp.exp(log_confidence(far)).max()) <= confidence


def test_the_radius_is_reached_where_the_embedding_can_be_anything():
    # One class, one feature: the embedding is the second pixel, which moves freely on the sphere.
    class Second(nn.Module):
        def __call__(self, images, *, train=False):
            return images[:, 0, 0, 1:2] * 1e-3

    model = Classifier(WithDistance(Second(), center=np.zeros((1, 1, 2)), scale=1.0), SquareLogitHead(1))
    variables = by_hand([[2.0]], [0.0], np.log([1e-6, 1.0]), 0.0)
    # z_c − z_o at (x, y) is 2e-3·y − 1e-12·y² − x² − y², at most 0 beyond √(A): A = 1e6, far above what y attains.
    found = input_radius(model, variables, 0.5)
    np.testing.assert_allclose(found.radius, 1e3, rtol=2e-5)


def test_what_is_kept_with_the_variables_goes_before_the_fields():
    backbone = WithDistance(MLP(widths=(4,)), center=np.ones((2, 2, 1)), scale=2.0)
    model = Classifier(backbone, SquareLogitHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 2, 2, 1)))
    expected = input_radius(model, variables, 0.2)
    bare = Classifier(WithDistance(MLP(widths=(4,))), SquareLogitHead(3))
    found = input_radius(bare, variables, 0.2)
    assert (found.radius, found.scale) == (expected.radius, 2.0)
    np.testing.assert_array_equal(found.center, np.ones((2, 2, 1)))
    with pytest.raises(UserError, match="neither the variables nor the WithDistance have a center"):
        input_radius(bare, {"params": variables["params"]}, 0.2)
    assert input_radius(model, {"params": variables["params"]}, 0.2).radius == expected.radius


def test_bounds_of_the_head_alone_leave_the_distance_out():
    model = Classifier(WithDistance(MLP(widths=(4,)), center=np.ones((2, 2, 1)), scale=2.0), SquareLogitHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 2, 2, 1)))
    head = variables["params"]["head"]
    without = {"linear": head["linear"], "ood": {**head["ood"], "raw_weights": head["ood"]["raw_weights"][:4]}}
    options = head_options(model.head)
    np.testing.assert_array_equal(
        confidence_bound(head, **options).log_odds, confidence_bound(without, **options).log_odds
    )
    found = safe_radius(head, 0.2, **options)
    assert found.radius == safe_radius(without, 0.2, **options).radius > 0
    # The distance is the last feature, and no part of the norm.
    assert found.share_beyond(np.array([[0.0, 0.0, 0.0, 0.0, 1e9]])) == 0.0


def test_a_radius_beyond_the_limits_of_float32_is_none():
    model = Classifier(WithDistance(OnePixel(), center=np.zeros((1, 1, 1)), scale=1.0), SquareLogitHead(1))
    # The distance hardly counts: 1/(4·exp(−80)) over exp(−80).
    found = input_radius(model, by_hand([[1.0]], [0.0], [-80.0, -80.0], 0.0), 0.5)
    assert (found.radius, found.relative) == (math.inf, math.inf)
    fourth = model.clone(head=SquareLogitHead(1, exponent=4))
    found = input_radius(fourth, by_hand([[1.0]], [0.0], [-80.0, -80.0], 0.0), 0.5)
    assert found.radius == math.inf


def test_other_models_are_refused():
    variables = by_hand([[1.0]], [0.0], [0.0, 0.0], 0.0)
    good = Classifier(WithDistance(OnePixel(), center=np.zeros((1, 1, 1)), scale=1.0), SquareLogitHead(1))
    with pytest.raises(UserError, match="got OnePixel and SquareLogitHead: no other has a radius in input space"):
        input_radius(good.clone(backbone=OnePixel()), variables, 0.5)
    with pytest.raises(UserError, match="got WithDistance and LinearHead"):
        input_radius(good.clone(head=LinearHead(1)), variables, 0.5)
    with pytest.raises(UserError, match="confidence must lie between 0 and 1"):
        input_radius(good, variables, 1.0)
    with pytest.raises(UserError, match="no entry for the distance"):
        input_radius(good, by_hand([[1.0]], [0.0], [0.0], 0.0), 0.5)


@pytest.mark.usefixtures("unannotated")
def test_images_are_read_as_predict_reads_them():
    center = np.full((1, 1, 2), 0.5)
    model = Classifier(WithDistance(OnePixel(), center=center, scale=1.0), SquareLogitHead(1))
    variables = by_hand([[1.0, 1.0]], [0.0], [0.0, 0.0, 0.0], 0.0)
    found = input_radius(model, variables, 0.5)
    images = np.array([[[[0, 255]]], [[[255, 255]]]], np.uint8)
    for given_images in (images, images / 255.0, list(images), (images / 255.0).tolist(), jnp.asarray(images)):
        np.testing.assert_allclose(found.distances(given_images), math.sqrt(0.5), rtol=1e-6)
    for wrong, message in (
        (images[0], r"images of shape \[1, 1, 2\]; expected \[n, 1, 1, 2\]: for one image give images\[None\]"),
        (images[..., :1], r"images of shape \[2, 1, 1, 1\]; expected \[n, 1, 1, 2\]$"),
        (images[:0], "no images; give at least one"),
        (images * np.nan, "images hold NaN or infinity in 2 of 2"),
        (images * 1e39 + 1e39, "images, as float32, hold NaN or infinity in 2 of 2"),
        (np.ma.array(images, mask=images > 9), "a masked array was given"),
        (images.astype(np.int64), "images of type int64; expected uint8"),
        (None, "images of shape"),
    ):
        with pytest.raises(UserError, match=message):
            found.distances(wrong)
        with pytest.raises(UserError, match=message):
            found.share_beyond(wrong)
    with pytest.raises(UserError, match="nonnegative must be True or False, got 'False'"):
        input_radius(model, variables, 0.5, nonnegative="False")
