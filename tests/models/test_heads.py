"""Heads: literal values, the limits of float32, initial scales, wrong options."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from preload_jax.errors import UserError
from preload_jax.models import Classifier, LinearHead, SquareLogitHead, make_classifier, square_logit
from tests.toy import enable_x64

LARGEST = float(np.finfo(np.float32).max)
ANY_FINITE = st.floats(-LARGEST, LARGEST, width=32)


class SquareLogit(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    def test_hand_computed(self):
        features = jnp.array([[1.0, -2.0], [0.0, 0.0]])
        weights = jnp.log(jnp.array([3.0, 0.5]))
        value = self.variant(square_logit)(features, weights, jnp.array(-0.25))
        # 3·1 + 0.5·4 − 0.25
        np.testing.assert_allclose(value, [4.75, -0.25], rtol=1e-6)

    def test_other_even_exponents(self):
        features, weights = jnp.array([[2.0]]), jnp.zeros(1)
        for exponent, expected in ((2, 4.0), (4, 16.0), (6, 64.0)):
            np.testing.assert_allclose(
                square_logit(features, weights, jnp.zeros(()), exponent=exponent), [expected], rtol=1e-5
            )
        for exponent in (0, 1, 3, -2):
            with pytest.raises(ValueError, match="even integer >= 2"):
                square_logit(features, weights, jnp.zeros(()), exponent=exponent)

    def test_float32_in_whatever_precision_the_features_come(self):
        features = jnp.ones((1, 4), jnp.bfloat16)
        assert square_logit(features, jnp.zeros(4), jnp.zeros(())).dtype == jnp.float32

    def test_float32_with_x64_enabled(self):
        with enable_x64(True):
            features, weights, bias = jnp.full((1, 2), 3.0), jnp.zeros(2), jnp.zeros(())
            assert features.dtype == jnp.float64
            value, gradient = jax.jit(jax.value_and_grad(lambda f: square_logit(f, weights, bias)[0]))(features)
            assert value.dtype == jnp.float32
            np.testing.assert_allclose(value, 18.0, rtol=1e-6)
            np.testing.assert_allclose(gradient, [[6.0, 6.0]], rtol=1e-6)


@settings(max_examples=60, deadline=None)
@example(np.full((3, 5), 1.0650234e19, np.float32), np.full(5, -81.0, np.float32), 0.0, 2)  # its gradient was NaN
@given(
    hnp.arrays(np.float32, (3, 5), elements=ANY_FINITE),
    hnp.arrays(np.float32, 5, elements=ANY_FINITE),
    ANY_FINITE,
    st.sampled_from([2, 4]),
)
def test_finite_input_gives_finite_logits_probabilities_and_gradients(features, weights, bias, exponent):
    head = SquareLogitHead(2, exponent=exponent)
    params = {
        "linear": {"kernel": jnp.ones((5, 2)), "bias": jnp.zeros(2)},
        "ood": {"raw_weights": jnp.asarray(weights), "bias": jnp.asarray(bias, jnp.float32)},
    }
    logits = head.apply({"params": params}, jnp.asarray(features))
    chex.assert_tree_all_finite(logits)
    probabilities = jax.nn.softmax(logits, axis=-1)
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1.0, rtol=1e-6)

    def probability(f, w):
        return square_logit(f, w, jnp.asarray(bias, jnp.float32), exponent=exponent).sum()

    gradients = jax.grad(probability, argnums=(0, 1))(jnp.asarray(features), jnp.asarray(weights))
    assert not any(np.isnan(g).any() for g in gradients)


@pytest.mark.parametrize(("scale", "expected"), [("one", 1.0), ("inverse_width", 1 / 400)])
def test_initial_scale(scale, expected):
    head = SquareLogitHead(3, initial_scale=scale)
    params = head.init(jax.random.key(0), jnp.ones((1, 400)))["params"]
    weights = np.exp(params["ood"]["raw_weights"])
    np.testing.assert_allclose(weights / expected, 1.0, atol=0.06)


def test_accelerators_are_told_not_to_round_products():
    head, features = SquareLogitHead(3), jnp.ones((2, 4))
    text = jax.jit(head.apply).lower(head.init(jax.random.key(0), features), features).as_text()
    assert text.count("dot_general") == text.count("precision = [HIGHEST, HIGHEST]") == 2


def test_unknown_initial_scale():
    with pytest.raises(ValueError, match=r"unknown initial scale 'two'; expected one of one, inverse_width"):
        SquareLogitHead(3, initial_scale="two").init(jax.random.key(0), jnp.ones((1, 4)))


def test_heads_keep_the_classes_parameters_at_one_path():
    features = jnp.ones((2, 4))
    linear = LinearHead(3).init(jax.random.key(0), features)["params"]
    square = SquareLogitHead(3).init(jax.random.key(0), features)["params"]
    assert jax.tree.map(jnp.shape, linear["linear"]) == jax.tree.map(jnp.shape, square["linear"])
    assert LinearHead(3).apply({"params": linear}, features).shape == (2, 3)
    assert SquareLogitHead(3).apply({"params": square}, features).shape == (2, 4)


@pytest.mark.parametrize(
    ("head", "has_ood_class", "num_logits"),
    [
        (LinearHead(3), False, 3),
        (LinearHead(4, none_class=True), True, 4),
        (SquareLogitHead(3), True, 4),
        (make_classifier("mlp", "linear", num_classes=3).head, False, 3),
        (make_classifier("mlp", "none_class", num_classes=3).head, True, 4),
        (make_classifier("mlp", "square_logit", num_classes=3).head, True, 4),
    ],
)
def test_a_head_says_how_many_classes_it_has_and_whether_the_last_logit_is_the_ood_class(
    head, has_ood_class, num_logits
):
    features = jnp.ones((2, 5))
    assert (head.num_classes, head.has_ood_class) == (3, has_ood_class)
    assert head.apply(head.init(jax.random.key(0), features), features).shape == (2, num_logits)


class Pair(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        return images[:, 0], images[:, 1]


class Named(Pair):
    def __call__(self, images, *, train=False):
        return {"features": images}


class WithoutTrain(nn.Module):
    def __call__(self, images):
        return images


class OtherSwitch(nn.Module):
    def __call__(self, images, deterministic=True):
        return images


@pytest.mark.parametrize(("backbone", "kind"), [(Pair(), "tuple"), (Named(), "dict")])
def test_a_backbone_that_returns_no_array_is_said(backbone, kind):
    model = Classifier(backbone, LinearHead(3))
    with pytest.raises(TypeError, match=rf"the backbone returned a {kind}; expected one array, features \[n, d\]"):
        model.init(jax.random.key(0), jnp.zeros((2, 2, 4)))


class Flat(nn.Module):
    """One number an image, without an axis for features."""

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.Dense(1)(images.reshape(len(images), -1))[:, 0]


class Pixels(nn.Module):
    def __call__(self, images, *, train=False):
        return images.reshape(-1, images.shape[-1])


@pytest.mark.parametrize(("backbone", "shape"), [(Flat(), r"\[2\]"), (Pixels(), r"\[4, 4\]")])
def test_features_are_rows_of_numbers_one_an_image(backbone, shape):
    with pytest.raises(TypeError, match=rf"features of shape {shape} of 2 images; expected \[n, d\]: pool or flatten"):
        Classifier(backbone, LinearHead(3)).init(jax.random.key(0), jnp.zeros((2, 2, 4)))


@pytest.mark.parametrize("backbone", [WithoutTrain(), OtherSwitch()])
def test_a_backbone_without_a_switch_for_training_is_said(backbone):
    name = type(backbone).__name__
    with pytest.raises(TypeError, match=rf"the backbone's {name}.__call__ takes no `train`; expected __call__"):
        Classifier(backbone, LinearHead(3))


@pytest.mark.usefixtures("unannotated")
def test_the_square_logit_takes_numbers_and_lists_and_refuses_other_shapes():
    features, weights = np.ones((4, 3), np.float32), np.zeros(3, np.float32)
    np.testing.assert_array_equal(square_logit(features, weights, -1.0), np.full(4, 2.0))
    np.testing.assert_array_equal(square_logit(features.tolist(), weights.tolist(), -1), np.full(4, 2.0))
    for given_numbers, message in (
        ((features, weights[:2], 0.0), r"raw_weights \[2\].*expected features \[n, d\], raw_weights \[d\]"),
        ((features, weights[:, None], 0.0), r"raw_weights \[3, 1\]"),
        ((features, weights, np.zeros(4)), r"bias \[4\]"),
        ((np.float32(1.0), weights, 0.0), r"features \[\]"),
        ((1j * features, weights, 0.0), "features of type complex64; expected real numbers"),
        ((np.ma.array(features, mask=True), weights, 0.0), "a masked array was given"),
        ((features, weights, None), "bias of type object; expected real numbers"),
    ):
        with pytest.raises(UserError, match=message):
            square_logit(*given_numbers)
    with pytest.raises(UserError, match=r"floor \[2\]"):
        square_logit(features, weights, 0.0, floor=np.ones(2))
