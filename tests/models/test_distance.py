"""The distance as one more feature: literal values, what sees it, where it is kept, and the limits of float32."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from preload_jax.errors import UserError
from preload_jax.models import (
    MLP,
    Classifier,
    LinearHead,
    SquareLogitHead,
    WideResNet,
    WithDistance,
    features_nonnegative,
    typical_distance,
)
from preload_jax.models.classifier import OnePixel
from preload_jax.models.distance import is_measured

LARGEST = float(np.finfo(np.float32).max)


class Distance(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    def test_by_hand(self):
        backbone = WithDistance(OnePixel(), center=np.array([[[1.0, 2.0]]]), scale=10.0, weight=2.0)
        images = jnp.array([[[[4.0, 6.0]]], [[[1.0, 2.0]]]])
        variables = backbone.init(jax.random.key(0), images)
        # ‖(3, 4)‖ = 5, of a typical distance of 10, twice.
        found = self.variant(backbone.apply)(variables, images)
        np.testing.assert_allclose(found, [[4.0, 6.0, 1.0], [1.0, 2.0, 0.0]], rtol=1e-6)


def test_the_classes_do_not_see_the_distance():
    plain = Classifier(MLP(widths=(5,)), SquareLogitHead(3))
    far = Classifier(WithDistance(MLP(widths=(5,)), center=np.zeros((2, 2, 1)), scale=0.1), SquareLogitHead(3))
    images = jax.random.uniform(jax.random.key(1), (7, 2, 2, 1))
    variables = plain.init(jax.random.key(0), images)
    own = far.init(jax.random.key(0), images)
    # Everything but w' has the shape and the place that it has without.
    ood = {**variables["params"]["head"]["ood"], "raw_weights": own["params"]["head"]["ood"]["raw_weights"]}
    params = {**variables["params"], "head": {**variables["params"]["head"], "ood": ood}}
    chex.assert_trees_all_equal_shapes(params, own["params"])
    logits = far.apply({**own, "params": params}, images)
    np.testing.assert_array_equal(logits[:, :3], plain.apply(variables, images)[:, :3])
    # Distances of about ten typical ones, for the OOD class.
    assert float(logits[:, 3].min()) > 1.0
    linear = Classifier(far.backbone, LinearHead(3))
    np.testing.assert_allclose(
        linear.apply(
            {"params": {"backbone": params["backbone"], "head": {"linear": params["head"]["linear"]}}}, images
        ),
        logits[:, :3],
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    ("options", "floors"),
    [
        ({}, (0.0, 0.0)),
        ({"min_weight": 0.2}, (0.2, 0.2)),
        ({"min_weight": 0.2, "min_distance_weight": 1.0}, (0.2, 1.0)),
        ({"min_distance_weight": 0.5}, (0.0, 0.5)),
    ],
)
def test_floors_by_hand(options, floors):
    head = SquareLogitHead(2, distance=True, **options)
    features = jnp.array([[3.0, 2.0]])
    variables = {
        "params": {
            "linear": {"kernel": jnp.ones((1, 2)), "bias": jnp.zeros(2)},
            "ood": {"raw_weights": jnp.log(jnp.array([0.5, 0.25])), "bias": jnp.array(-1.0)},
        }
    }
    expected = (0.5 + floors[0]) * 9 + (0.25 + floors[1]) * 4 - 1
    np.testing.assert_allclose(head.apply(variables, features), [[3.0, 3.0, expected]], rtol=1e-6)


def test_wrong_floors_are_refused():
    for options in ({"min_weight": -0.1}, {"min_distance_weight": np.inf}, {"min_weight": np.nan}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} must be finite and at least 0"):
            SquareLogitHead(2, **options).init(jax.random.key(0), jnp.ones((1, 3)))


def test_the_backbones_variables_stay_where_they_are():
    images = jnp.ones((2, 8, 8, 3))
    plain = WideResNet(depth=10, widen_factor=1, dropout=0.0)
    variables = plain.init(jax.random.key(0), images)
    far = WithDistance(plain, center=np.zeros((8, 8, 3)), scale=2.0)
    own = far.init(jax.random.key(0), images)
    assert jax.tree.structure(own["params"]) == jax.tree.structure(variables["params"])
    assert own["batch_stats"].keys() - variables["batch_stats"].keys() == {"distance_center", "distance_scale"}
    # The variables of the network without it are enough.
    np.testing.assert_allclose(far.apply(variables, images)[:, :-1], plain.apply(variables, images), rtol=1e-6)
    # Training leaves the two as they are.
    _, updates = far.apply(own, 0.5 * images, train=True, mutable=["batch_stats"])
    np.testing.assert_array_equal(updates["batch_stats"]["distance_center"], np.zeros((8, 8, 3)))
    chex.assert_trees_all_equal_shapes(updates["batch_stats"], own["batch_stats"])


@settings(max_examples=25, deadline=None)
@given(
    hnp.arrays(np.float32, (2, 2, 2, 1), elements=st.floats(-LARGEST, LARGEST, width=32)),
    st.sampled_from([1e-20, 1.0, 1e20]),
    st.sampled_from([2, 4]),
)
def test_every_finite_image_has_finite_logits_and_gradients(images, scale, exponent):
    backbone = WithDistance(MLP(widths=(3,)), center=np.full((2, 2, 1), 0.5), scale=scale)
    model = Classifier(backbone, SquareLogitHead(2, min_weight=0.2, exponent=exponent))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 2, 2, 1)))
    probabilities = jax.nn.softmax(model.apply(variables, jnp.asarray(images)))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert np.isfinite(backbone.apply({"params": variables["params"]["backbone"]}, jnp.asarray(images))).all()


@pytest.mark.parametrize("where", [{}, {"scale": 3.0}, {"center": np.full((1, 1, 2), 0.5)}])
def test_what_is_not_measured_is_told_by_its_sign_and_computed_as_before(where):
    images = jnp.array([[[[4.0, 6.0]]], [[[1.0, 2.0]]]])
    backbone = WithDistance(OnePixel(), **where)
    variables = Classifier(backbone, SquareLogitHead(2)).init(jax.random.key(0), images)
    assert float(variables["batch_stats"]["backbone"]["distance_scale"]) == -where.get("scale", 1.0)
    assert not is_measured(variables)
    away = (np.asarray(images) - where.get("center", 0.0)).reshape(2, -1)
    expected = np.linalg.norm(away, axis=1) / where.get("scale", 1.0)
    own = {"batch_stats": variables["batch_stats"]["backbone"]}
    for stats in (own, {}):
        np.testing.assert_allclose(backbone.apply(stats, images)[:, -1], expected, rtol=1e-6)
    both = WithDistance(OnePixel(), center=np.zeros((1, 1, 2)), scale=3.0)
    assert is_measured(Classifier(both, SquareLogitHead(2)).init(jax.random.key(0), images))


def test_the_gradient_at_the_center_is_0():
    backbone = WithDistance(OnePixel(), center=np.array([[[1.0, 2.0]]]), scale=1.0)
    gradient = jax.grad(lambda x: backbone.apply({}, x)[0, -1])(jnp.array([[[[1.0, 2.0]]]]))
    np.testing.assert_array_equal(gradient, 0.0)


def test_the_typical_distance_of_bytes_is_that_of_fractions():
    images = np.random.default_rng(0).integers(0, 256, (2500, 3, 3, 1), np.uint8)
    found, expected = typical_distance(images), typical_distance(images / 255)
    np.testing.assert_allclose(found["center"], images.mean(axis=0) / 255, rtol=1e-6)
    np.testing.assert_allclose(found["scale"], expected["scale"], rtol=1e-6)
    for bad in (images[:0], images[:1], np.full((2, 1), np.nan)):
        with pytest.raises(UserError, match=r"no images|median distance from their mean is|images hold NaN"):
            typical_distance(bad)


def test_wrong_distances_are_refused():
    for options in ({"scale": 0.0}, {"scale": np.nan}, {"weight": -1.0}, {"center": np.array([np.nan])}):
        with pytest.raises(UserError, match=f"the distance's {next(iter(options))}"):
            WithDistance(OnePixel(), **options)
    backbone = WithDistance(OnePixel(), center=np.zeros(3), scale=1.0)
    with pytest.raises(UserError, match=r"images \[2, 1, 1, 4\] with a center \[3\]"):
        backbone.init(jax.random.key(0), jnp.ones((2, 1, 1, 4)))


def test_modules_with_the_same_center_are_equal():
    first, second = (WithDistance(MLP(), center=np.ones((2, 2, 1)), scale=1.0) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != WithDistance(MLP(), center=np.zeros((2, 2, 1)), scale=1.0)


def test_what_is_known_of_signs():
    assert features_nonnegative(WithDistance(MLP())) is True
    assert features_nonnegative(OnePixel()) is None


@pytest.mark.usefixtures("unannotated")
def test_images_of_a_typical_distance_are_read_as_predict_reads_them():
    images = np.random.default_rng(0).integers(0, 256, (5, 2, 2, 1), np.uint8)
    assert typical_distance(list(images))["scale"] == typical_distance(images)["scale"]
    for wrong, message in (
        (np.ma.array(images, mask=images > 9), "a masked array was given"),
        (images.astype(np.int64), "images of type int64; expected uint8"),
        (images * 1e39 + 1e39, "images, as float32, hold NaN or infinity in 5 of 5"),
        (images[0, 0, 0], r"images of shape \[1\]"),
        (None, "images of shape"),
    ):
        with pytest.raises(UserError, match=message):
            typical_distance(wrong)
    for center in (np.zeros((2, 1)), np.full((2, 2, 1), np.nan), np.zeros((1, 2, 2, 1))):
        with pytest.raises(UserError, match="expected finite numbers of one image's shape"):
            typical_distance(images, center=center)
    with pytest.raises(UserError, match="a masked array was given"):
        WithDistance(OnePixel(), center=np.ma.array(np.zeros(3), mask=[0, 1, 0]))
