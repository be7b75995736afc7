"""Backbones and the classifier: shapes, sizes, precision, the guard against overflow, wrong options."""

from functools import partial

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax.errors import UserError
from preload_jax.models import HEADS, Classifier, LeNet, LinearHead, WideResNet, layers, make_classifier
from preload_jax.models.classifier import OnePixel

CASES = [("mlp", (8, 8, 1), 256), ("lenet", (28, 28, 1), 1024), ("wide_resnet", (32, 32, 3), 256)]


def init(model, shape):
    return jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, *shape)))


@pytest.mark.parametrize(("backbone", "shape", "width"), CASES)
@pytest.mark.parametrize("head", HEADS)
def test_shapes(backbone, shape, width, head):
    model = make_classifier(backbone, head, num_classes=10)
    # Traced, not run: shapes are all that is looked at.
    variables = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *shape)))
    apply = partial(model.apply, features=True)
    logits, features = jax.eval_shape(apply, variables, jax.ShapeDtypeStruct((2, *shape), jnp.float32))
    chex.assert_shape(logits, (2, 10 + model.head.has_ood_class))
    chex.assert_shape(features, (2, width))
    of_none = jax.eval_shape(model.apply, variables, jax.ShapeDtypeStruct((0, *shape), jnp.float32))
    chex.assert_shape(of_none, (0, *logits.shape[1:]))


@pytest.mark.parametrize(
    ("backbone", "shape", "expected"),
    [
        # LeNet: 832 + 51,264 + 3,212,288 + 10,250; WideResNet-16-4 is 2.75 million in the literature.
        ("lenet", (28, 28, 1), 3_274_634),
        ("wide_resnet", (32, 32, 3), 2_748_890),
    ],
)
def test_number_of_parameters(backbone, shape, expected):
    model = make_classifier(backbone, "linear", num_classes=10)
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *shape)))["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == expected


def assert_uniform(values, bound):
    """Drawn from ±bound: by the extremes, and for many values by their deviation."""
    assert np.abs(values).max() <= bound
    if np.size(values) > 1:
        assert values.min() < -0.8 * bound
        assert values.max() > 0.8 * bound
    if np.size(values) > 1000:
        np.testing.assert_allclose(np.std(values), bound / 3**0.5, rtol=0.05)


@pytest.mark.parametrize(("backbone", "shape"), [("mlp", (8, 8, 1)), ("lenet", (12, 12, 1))])
def test_initial_values_are_torch_s_defaults(backbone, shape):
    params = init(make_classifier(backbone, "square_logit", num_classes=30, initial_scale="one"), shape)["params"]
    for layer in params["backbone"].values():
        bound = (layer["kernel"].size / layer["kernel"].shape[-1]) ** -0.5
        assert_uniform(layer["kernel"], bound)
        assert_uniform(layer["bias"], bound)
    linear, ood = params["head"]["linear"], params["head"]["ood"]
    bound = len(linear["kernel"]) ** -0.5
    for values in (linear["kernel"], ood["raw_weights"], ood["bias"]):
        assert_uniform(values, bound)
    assert ood["bias"] != 0


@pytest.mark.parametrize(
    ("backbone", "shape", "options", "zero"),
    [
        ("mlp", (8, 8, 1), {}, True),
        ("lenet", (12, 12, 1), {}, False),
        ("wide_resnet", (8, 8, 3), {"depth": 10, "widen_factor": 1}, True),
    ],
)
@pytest.mark.parametrize("head", ["linear", "square_logit"])
def test_initial_biases_of_the_classes_are_the_released_networks(backbone, shape, options, zero, head):
    params = init(make_classifier(backbone, head, num_classes=30, **options), shape)["params"]
    bias = params["head"]["linear"]["bias"]
    if zero:
        np.testing.assert_array_equal(bias, 0.0)
    else:
        assert_uniform(bias, 1024**-0.5)


def test_initial_convolutions_of_wide_resnet_are_the_released_code_s():
    model = make_classifier("wide_resnet", "linear", num_classes=3, depth=10, widen_factor=2)
    params = init(model, (8, 8, 3))["params"]["backbone"]
    kernels = [leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params) if path[-1].key == "kernel"]
    assert len(kernels) == 10
    for kernel in kernels:
        size, _, _, channels = kernel.shape
        np.testing.assert_allclose(kernel.std(), (2 / (size * size * channels)) ** 0.5, rtol=0.1)
        np.testing.assert_allclose(kernel.mean() / kernel.std(), 0, atol=0.1)


@pytest.mark.parametrize(
    ("backbone", "shape"), [("mlp", (8, 8, 1)), ("lenet", (12, 12, 1)), ("wide_resnet", (8, 8, 3))]
)
def test_half_precision_keeps_parameters_and_logits_in_float32(backbone, shape):
    model = make_classifier(backbone, "square_logit", num_classes=10, dtype=jnp.bfloat16)
    full = make_classifier(backbone, "square_logit", num_classes=10)
    variables = init(model, shape)
    chex.assert_trees_all_equal_dtypes(variables, init(full, shape))
    images = jax.random.uniform(jax.random.key(1), (4, *shape))
    half_logits, full_logits = jax.jit(model.apply)(variables, images), jax.jit(full.apply)(variables, images)
    assert half_logits.dtype == jnp.float32
    np.testing.assert_allclose(half_logits, full_logits, rtol=0.05, atol=0.05 * np.abs(full_logits).max())


def test_dropout_is_flax_s_to_the_bit():
    class Net(nn.Module):
        own: bool

        @nn.compact
        def __call__(self, x):
            if self.own:
                return layers.Dropout(0.3, name="Dropout_0")(x, train=True)
            return nn.Dropout(0.3, deterministic=False)(x)

    x = jax.random.normal(jax.random.key(0), (4, 6, 6, 8), jnp.bfloat16)
    found, expected = (jax.jit(Net(own).apply)({}, x, rngs={"dropout": jax.random.key(1)}) for own in (True, False))
    np.testing.assert_array_equal(found, expected)
    assert 0.2 < np.mean(found == 0) < 0.4
    assert found.dtype == jnp.bfloat16


@pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="lowers the branches of all platforms")
def test_a_mask_is_kept_on_a_tpu():
    traced = jax.jit(layers.Dropout(0.3).apply, static_argnames="train").trace(
        {}, jnp.ones((2, 4, 4, 2)), train=True, rngs={"dropout": jax.random.key(0)}
    )
    texts = {name: traced.lower(lowering_platforms=(name,)).as_text() for name in ("tpu", "cpu", "cuda")}
    assert [name for name, text in texts.items() if "optimization_barrier" in text] == ["tpu"]


def test_dropout_and_batch_statistics_only_in_training():
    model = make_classifier("wide_resnet", "linear", num_classes=3, depth=10, widen_factor=1)
    variables = init(model, (8, 8, 3))
    images = jax.random.uniform(jax.random.key(1), (4, 8, 8, 3))
    evaluate = jax.jit(model.apply)
    np.testing.assert_array_equal(evaluate(variables, images), evaluate(variables, images))

    @jax.jit
    def train(key):
        return model.apply(variables, images, train=True, rngs={"dropout": key}, mutable=["batch_stats"])

    outputs = [train(jax.random.key(k)) for k in (0, 1)]
    assert not np.allclose(outputs[0][0], outputs[1][0])
    before, after = variables["batch_stats"], outputs[0][1]["batch_stats"]
    assert not np.allclose(before["backbone"]["bn"]["mean"], after["backbone"]["bn"]["mean"])


@pytest.mark.parametrize(
    ("backbone", "shape"), [("mlp", (8, 8, 1)), ("lenet", (12, 12, 1)), ("wide_resnet", (8, 8, 3))]
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_largest_finite_images_give_probabilities(backbone, shape, dtype):
    model = make_classifier(backbone, "square_logit", num_classes=10, dtype=dtype)
    variables = init(model, shape)
    largest = float(np.finfo(np.float32).max)
    signs = jnp.where(jax.random.bernoulli(jax.random.key(3), shape=(1, *shape)), 1.0, -1.0)
    images = jnp.concatenate([jnp.full((1, *shape), largest), largest * signs, jnp.full((1, *shape), -largest)])
    probabilities = jax.nn.softmax(jax.jit(model.apply)(variables, images), axis=-1)
    chex.assert_tree_all_finite(probabilities)
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1.0, rtol=1e-6)


def test_ordinary_images_pass_the_guard_unchanged():
    # A backbone whose features are the images.
    model = Classifier(OnePixel(), LinearHead(3))
    images = jax.random.normal(jax.random.key(0), (3, 1, 1, 16)) * 1e4
    variables = model.init(jax.random.key(0), images)

    def seen(images):
        return model.apply(variables, images, features=True)[1].reshape(images.shape)

    for scale in (1.0, 1e10):
        np.testing.assert_array_equal(seen(images * scale), images * scale)
    # Further out the ray is kept: each image is divided by one number.
    largest = jnp.abs(images).max(axis=(1, 2, 3), keepdims=True)
    np.testing.assert_allclose(seen(images * 1e25), images / largest * 1e15, rtol=1e-5)


def test_groups_of_wide_resnet_halve_the_image_and_blocks_add_to_their_input():
    network, images = WideResNet(depth=10, widen_factor=1), jax.random.uniform(jax.random.key(1), (2, 32, 32, 3))
    variables = network.init(jax.random.key(0), images)

    def blocks(kernel):
        """The outputs of all blocks, where the first one's second convolution has this kernel in place of its own."""
        params = dict(variables["params"])
        params["group1_block0"] = {**params["group1_block0"], "conv2": {"kernel": kernel}}
        given = {**variables, "params": params}
        _, state = network.apply(given, images, capture_intermediates=True, mutable=["intermediates"])
        return {name: found["__call__"][0] for name, found in state["intermediates"].items() if "block" in name}

    own = variables["params"]["group1_block0"]["conv2"]["kernel"]
    with_positive, without = blocks(jnp.abs(own)), blocks(jnp.zeros_like(own))
    shapes = {name: output.shape[1:] for name, output in without.items()}
    assert shapes == {"group1_block0": (32, 32, 16), "group2_block0": (16, 16, 32), "group3_block0": (8, 8, 64)}
    # What goes into that convolution is ≥ 0, after a ReLU.
    more = with_positive["group1_block0"] - without["group1_block0"]
    assert (more >= 0).all()
    assert (more > 0).any()


def test_wrong_options():
    with pytest.raises(ValueError, match=r"unknown backbone 'vgg'; expected one of conv_net, lenet, mlp, "):
        make_classifier("vgg", "linear", num_classes=2)
    with pytest.raises(ValueError, match="unknown head 'cubic'"):
        make_classifier("mlp", "cubic", num_classes=2)
    with pytest.raises(ValueError, match="num_classes must be at least 2, got 1"):
        make_classifier("mlp", "linear", num_classes=1)
    with pytest.raises(UserError, match="divisible by 4"):
        LeNet().init(jax.random.key(0), jnp.zeros((1, 30, 30, 1)))
    with pytest.raises(ValueError, match=r"6·n \+ 4"):
        WideResNet(depth=15).init(jax.random.key(0), jnp.zeros((1, 8, 8, 3)))


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("lenet", {"channels": (8, 16), "width": 40}),
        ("wide_resnet", {"depth": 10, "widen_factor": 1}),
        ("resnet18", {"width": 40}),
        ("vit", {"patch": 4, "depth": 1, "width": 48, "heads": 3, "hidden": 96}),
        ("mlp", {"widths": (16, 40)}),
        ("conv_net", {"channels": (8, 16)}),
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.array, jnp.int32], ids=lambda kind: kind.__name__)
def test_sizes_of_any_integer_type_make_the_same_network(name, given, kind):
    """Eight times 40 does not fit into eight bits."""
    cast = {key: tuple(map(kind, x)) if isinstance(x, tuple) else kind(x) for key, x in given.items()}
    plain, other = (
        make_classifier(name, "linear", num_classes=3, dropout=rate, **sizes)
        for rate, sizes in ((0.25, given), (np.array(0.25), cast))
    )
    assert plain == other
    assert hash(plain) == hash(other)


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("channels", [(32,), (32, 64, 128), 32])
def test_lenet_has_two_convolutions(channels):
    with pytest.raises(UserError, match="channels must be two integers, of the two convolutions, got "):
        make_classifier("lenet", "linear", num_classes=3, channels=channels)
