"""No NaN: probabilities sum to 1 at every finite input, whatever the precision; other inputs are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preload_jax.checks import require_finite
from preload_jax.errors import UserError
from tests.random_networks import HEADS, NUM_CLASSES, SMALL, random_classifier

LARGEST = float(np.finfo(np.float32).max)
LARGEST_BFLOAT16 = float(jnp.finfo(jnp.bfloat16).max)
DTYPES = [jnp.float32, jnp.bfloat16]


def extremes(shape):
    """Inputs whose entries are as large, or as small, as finite floats get."""
    rng = np.random.default_rng(0)
    signs = np.sign(rng.normal(size=(2, *shape)))
    noise = rng.uniform(-1, 1, (2, *shape))
    mixed = np.where(rng.random((2, *shape)) < 0.5, noise, signs * LARGEST)
    single = np.zeros((1, *shape))
    single.flat[3] = -LARGEST
    corners = [np.full((1, *shape), value) for value in (LARGEST, -LARGEST, 1e15, 1e-38, 1e-45, 0.0)]
    return np.concatenate([signs * LARGEST, noise * LARGEST, mixed, single, *corners]).astype(np.float32)


def assert_probabilities(logits, shape):
    probabilities = np.asarray(jax.nn.softmax(logits))
    assert probabilities.shape == shape
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert not np.isnan(np.asarray(jax.nn.log_softmax(logits))).any()


@pytest.mark.parametrize("backbone", SMALL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_floats(backbone, dtype):
    model, variables, shape = random_classifier(backbone, "linear", dtype=dtype)
    images = extremes(shape)
    half = jnp.asarray(np.clip(images, -LARGEST_BFLOAT16, LARGEST_BFLOAT16)).astype(jnp.bfloat16)
    apply = jax.jit(lambda images: model.apply(variables, images, features=True))
    _, features = apply(jnp.asarray(images))
    # As float32, so that the network is compiled once.
    _, half_features = apply(half.astype(jnp.float32))
    for head in HEADS:
        other, _, _ = random_classifier("mlp", head)
        other_variables = other.head.init(jax.random.key(0), features)
        for embedding in (features, half_features, features.astype(jnp.bfloat16)):
            logits = other.head.apply(other_variables, embedding)
            assert_probabilities(logits, (len(images), NUM_CLASSES + (head != "linear")))


@pytest.mark.parametrize("head", HEADS)
def test_the_largest_bfloat16_images(head):
    model, variables, shape = random_classifier("mlp", head, dtype=jnp.bfloat16)
    images = jnp.asarray(np.clip(extremes(shape), -LARGEST_BFLOAT16, LARGEST_BFLOAT16)).astype(jnp.bfloat16)
    assert_probabilities(model.apply(variables, images), (len(images), NUM_CLASSES + (head != "linear")))


@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_norms_of_tiny_variance(dtype):
    # Each multiplies by 1/√(1e-5) = 316: seven of them in a row overflow, were activations not limited.
    model, variables, shape = random_classifier("wide_resnet", "square_logit", dtype=dtype)
    model = model.clone(backbone=model.backbone.clone(depth=16))
    variables = model.init(jax.random.key(0), jnp.zeros((1, *shape)))
    tiny = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * 0 if path[-1].key == "var" else leaf, variables["batch_stats"]
    )
    images = extremes(shape)
    logits = jax.jit(model.apply)({**variables, "batch_stats": tiny}, jnp.asarray(images))
    assert_probabilities(logits, (len(images), NUM_CLASSES + 1))
    # The far-away images end in the extra class, as theorem 2 says.
    np.testing.assert_array_equal(np.asarray(logits[:2]).argmax(axis=1), NUM_CLASSES)


@given(exponent=st.floats(-45, 38.5), seed=st.integers(0, 100), head=st.sampled_from(HEADS))
@settings(max_examples=30, deadline=None)
def test_any_magnitude(exponent, seed, head):
    model, variables, shape = random_classifier("mlp", head)
    images = np.random.default_rng(seed).uniform(-1, 1, (4, *shape)) * 10.0**exponent
    images = np.clip(images, -LARGEST, LARGEST).astype(np.float32)
    assert_probabilities(model.apply(variables, jnp.asarray(images)), (4, NUM_CLASSES + (head != "linear")))


def test_float16_images_are_not_scaled():
    model, variables, shape = random_classifier("mlp", "linear")
    images = jnp.full((1, *shape), 60_000, jnp.float16)
    np.testing.assert_allclose(
        model.apply(variables, images), model.apply(variables, images.astype(jnp.float32)), rtol=1e-6
    )


def test_at_magnitudes_below_the_limits_nothing_is_limited():
    """Without offsets the features of 2ⁿ·x are 2ⁿ times those of x, to the bit."""
    model, variables, shape = random_classifier("wide_resnet", "linear")
    variables = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * 0 if path[-1].key in ("mean", "bias") else leaf, variables
    )
    images = jnp.asarray(np.random.default_rng(0).uniform(size=(4, *shape)), jnp.float32)
    features = jax.jit(lambda images: model.apply(variables, images, features=True)[1])
    once, scaled = features(images), features(2.0**49 * images)  # 5.6e14
    assert (once > 0).any()
    np.testing.assert_array_equal(scaled, 2.0**49 * once)


@pytest.mark.parametrize("wrap", [np.asarray, jnp.asarray])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_inputs_are_refused(wrap, value):
    images = np.zeros((5, 2, 2, 1), np.float32)
    require_finite(wrap(images))
    images[2, 0, 1] = images[4, 1, 1] = value
    with pytest.raises(UserError, match="images hold NaN or infinity in 2 of 5 examples, first in example 2; expected"):
        require_finite(wrap(images))
    with pytest.raises(UserError, match=r"^features hold"):
        require_finite(wrap(images), name="features")


def test_integers_and_the_empty_are_finite():
    require_finite(np.full((2, 3), 255, np.uint8))
    require_finite(np.zeros((0, 3), np.float32))
    require_finite(jnp.asarray(1.0))
