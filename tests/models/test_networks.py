"""ResNets, the small convolutional network, the vision transformer: shapes, sizes, a forward pass by hand, limits."""

import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf, softmax

from preload_jax import backbones, fit, guarantees, weights
from preload_jax.api import notices
from preload_jax.errors import UserError
from preload_jax.models import ConvNet, ResNet18, ResNet50, ViT, make_classifier
from preload_jax.models.classifier import features_nonnegative, grows
from tests.random_networks import MORE, random_classifier
from tests.toy import enable_x64

FAR = 1e12


@pytest.mark.parametrize(
    ("backbone", "shape", "classes", "options", "expected"),
    [
        # As torchvision and the literature count them.
        ("resnet18", (224, 224, 3), 1000, {}, 11_689_512),
        ("resnet34", (224, 224, 3), 1000, {}, 21_797_672),
        ("resnet50", (224, 224, 3), 1000, {}, 25_557_032),
        ("resnet18", (32, 32, 3), 10, {}, 11_173_962),
        ("vit", (224, 224, 3), 1000, {"patch": 16, "depth": 12, "width": 768, "heads": 12}, 86_567_656),
        # 9·3·32 + 9·32·64 + 9·64·128, two numbers a channel of BN, 128·10 + 10.
        ("conv_net", (32, 32, 3), 10, {}, 864 + 18_432 + 73_728 + 448 + 1_290),
    ],
)
def test_number_of_parameters(backbone, shape, classes, options, expected):
    model = make_classifier(backbone, "linear", num_classes=classes, **options)
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, *shape)))["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == expected


def groups(network, shape):
    """The shapes of what each group's first block makes."""
    images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    variables = jax.eval_shape(network.init, jax.random.key(0), images)

    def intermediates(variables, images):
        return network.apply(variables, images, capture_intermediates=True, mutable=["intermediates"])[1]

    found = jax.eval_shape(intermediates, variables, images)["intermediates"]
    return [found[name]["__call__"][0].shape[1:] for name in sorted(found) if name.endswith("_block0")]


def test_the_stem_is_chosen_by_the_shorter_side_or_named():
    def network(stem="auto"):
        return ResNet18(blocks=(1, 1), width=4, stem=stem)

    assert groups(network(), (63, 80, 3)) == [(63, 80, 4), (32, 40, 8)]
    assert groups(network(), (64, 80, 3)) == [(16, 20, 4), (8, 10, 8)]
    assert groups(network("imagenet"), (32, 32, 3)) == [(8, 8, 4), (4, 4, 8)]
    assert groups(network("cifar"), (64, 64, 3)) == [(64, 64, 4), (32, 32, 8)]
    assert groups(ResNet50(blocks=(1, 1), width=2), (8, 8, 3)) == [(8, 8, 8), (4, 4, 16)]


def layer_norm(x, p):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6) * p["scale"] + p["bias"]


def dense(x, p):
    return x @ p["kernel"] + p["bias"]


def test_a_vit_is_the_equations_in_numpy():
    model, variables, shape = random_classifier("vit", "linear")
    network = model.backbone.clone(mean=(0.4,), std=(0.2,))
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables["params"]["backbone"])
    images = np.random.default_rng(0).uniform(size=(3, *shape))
    found = jax.jit(network.apply)({"params": variables["params"]["backbone"]}, jnp.asarray(images, jnp.float32))

    x = (images - 0.4) / 0.2
    patches = [x[:, i : i + 4, j : j + 4].reshape(3, -1) for i in (0, 4) for j in (0, 4)]
    kernel = p["patches"]["kernel"].reshape(16, 8)
    tokens = [np.repeat(p["class_token"][0], 3, axis=0), *(patch @ kernel + p["patches"]["bias"] for patch in patches)]
    x = np.stack(tokens, axis=1) + p["positions"]
    block = p["block0"]
    q, k, v = np.split(dense(layer_norm(x, block["norm1"]), block["qkv"]), 3, axis=-1)
    heads = []
    for h in (slice(0, 4), slice(4, 8)):
        heads.append(softmax(q[..., h] @ k[..., h].swapaxes(1, 2) / 2.0, axis=-1) @ v[..., h])
    x = x + dense(np.concatenate(heads, axis=-1), block["projection"])
    y = dense(layer_norm(x, block["norm2"]), block["dense1"])
    x = x + dense(0.5 * y * (1 + erf(y / 2**0.5)), block["dense2"])
    np.testing.assert_allclose(found, layer_norm(x[:, 0], p["norm"]), rtol=1e-4, atol=1e-5)


def convolution(x, kernel, stride):
    """3×3 or 1×1, padded alike on both sides, as sums of products."""
    size = len(kernel)
    x = np.pad(x, ((0, 0), *[(size // 2, size // 2)] * 2, (0, 0)))
    rows, columns = ((n - size) // stride + 1 for n in x.shape[1:3])
    out = np.zeros((len(x), rows, columns, kernel.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            window = x[:, i * stride : i * stride + size, j * stride : j * stride + size]
            out[:, i, j] = np.tensordot(window, kernel, 3)
    return out


def test_a_resnet_is_the_equations_in_numpy():
    model, variables, shape = random_classifier("resnet18", "linear")
    p, s = (
        jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables[kind]["backbone"])
        for kind in ("params", "batch_stats")
    )
    images = np.random.default_rng(0).uniform(size=(2, *shape))
    found = jax.jit(model.backbone.apply)(
        {kind: variables[kind]["backbone"] for kind in variables}, jnp.asarray(images, jnp.float32)
    )

    def step(x, p, s, name, stride=1):
        bn = name.replace("conv", "bn")
        x = convolution(x, p[name]["kernel"], stride)
        return (x - s[bn]["mean"]) / np.sqrt(s[bn]["var"] + 1e-5) * p[bn]["scale"] + p[bn]["bias"]

    x = np.maximum(step(images, p, s, "conv"), 0)
    for name, stride in (("group1_block0", 1), ("group2_block0", 2)):
        inner = p[name], s[name]
        y = step(np.maximum(step(x, *inner, "conv1", stride), 0), *inner, "conv2")
        x = np.maximum(y + (x if stride == 1 else step(x, *inner, "shortcut_conv", stride)), 0)
    np.testing.assert_allclose(found, x.mean(axis=(1, 2)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backbone", MORE)
def test_far_away_extreme_and_in_half_precision(backbone):
    model, variables, shape = random_classifier(backbone, "square_logit")
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(3, *shape)).astype(np.float32)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        limit = guarantees.far_away_limit(model, variables, directions)
    assert not limit.undecided.any()
    # Where float64 is at t = 1e12; the image is not pulled back there.
    unit = directions / np.linalg.norm(directions.reshape(3, -1).astype(np.float64), axis=1).reshape(3, 1, 1, 1)
    with enable_x64(True), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        wide = model.clone(backbone=model.backbone.clone(dtype=jnp.float64))
        doubles = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables)
        logits = jax.jit(wide.apply)(doubles, jnp.asarray(FAR * unit))
    np.testing.assert_allclose(softmax(np.asarray(logits), axis=1), limit.probabilities, atol=1e-5)
    assert limit.dead.all() == (backbone == "vit")

    largest = np.finfo(np.float32).max
    images = jnp.asarray(np.concatenate([rng.uniform(size=(2, *shape)), largest * np.sign(directions)]), jnp.float32)
    apply = jax.jit(model.apply, static_argnames="features")
    logits, features = apply(variables, images, features=True)
    chex.assert_tree_all_finite((logits, features))
    assert features_nonnegative(model.backbone) == (backbone != "vit")
    assert grows(model.backbone) == (backbone != "vit")
    if backbone != "vit":
        assert (features >= 0).all()
    half = model.clone(backbone=model.backbone.clone(dtype=jnp.bfloat16))
    half_logits = jax.jit(half.apply)(variables, images)
    assert half_logits.dtype == jnp.float32
    chex.assert_shape(apply(variables, images[:0]), (0, logits.shape[1]))
    np.testing.assert_allclose(half_logits[:2], logits[:2], rtol=0.1, atol=0.1 * np.abs(logits[:2]).max())
    chex.assert_tree_all_finite(half_logits)


@pytest.mark.parametrize("backbone", MORE)
def test_a_file_keeps_the_network(backbone, tmp_path):
    model, variables, shape = random_classifier(backbone, "square_logit")
    weights.save(tmp_path / "a.safetensors", model, variables, image_shape=shape)
    loaded = weights.load(tmp_path / "a.safetensors")
    assert loaded.model == model
    chex.assert_trees_all_equal(loaded.variables, variables)


def test_fit_trains_a_conv_net():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 16)
    images = (np.array([60, 190])[labels][:, None, None, None] * np.ones((8, 8, 1))).astype(np.uint8)
    outliers = rng.integers(0, 256, (16, 8, 8, 1), dtype=np.uint8)
    model = make_classifier("conv_net", "square_logit", num_classes=2, channels=(4, 4))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "training ended with .* called OOD")
        variables = fit(model, images, labels, outliers, epochs=1, batch_size=16, learning_rate=1e-2)
    assert np.abs(variables["batch_stats"]["backbone"]["bn1"]["mean"]).max() > 0


def test_embeddings_that_stay_bounded_are_warned_of(recwarn):
    for backbone in ("conv_net", "vit"):
        model, variables, shape = random_classifier(backbone, "square_logit")
        assert not recwarn
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            notices.of_bounded_embeddings(model, variables, shape)
    assert "embeddings stay bounded" in str(recwarn.pop(UserWarning).message)


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (lambda: ViT(patch=4), (30, 32, 3), "multiples of 4, got 30×32"),
        (lambda: ViT(patch=16), (8, 8, 3), "multiples of 16, got 8×8"),
        (lambda: ViT(heads=5), None, "heads must divide the width 192, got 5"),
        (lambda: ViT(depth=0), None, "depth must be at least 1, got 0"),
        (lambda: ViT(hidden=1.5), None, "hidden must be an integer, got 1.5"),
        (lambda: ConvNet(), (7, 32, 3), "a ConvNet of 3 blocks needs images of at least 8×8 pixels, got 7×32"),
        (lambda: ConvNet(channels=()), None, "channels must be a list of integers"),
        (lambda: ConvNet(channels=(8, 0)), None, "channels must be at least 1, got 0"),
        (lambda: ResNet18(stem="large"), None, r"unknown stem 'large'; expected one of auto, cifar, imagenet"),
        (lambda: ResNet18(blocks=3), None, "blocks must be a list of integers, one for each group, got 3"),
        (lambda: ResNet18(width=0), None, "width must be at least 1, got 0"),
        (lambda: ResNet50(mean=(0.5,)), None, "mean and std must both be given"),
        (lambda: ResNet50(mean=(0.5,), std=(0.2, 0.2)), None, "mean has 1 numbers and std has 2"),
        (lambda: ResNet50(mean=(0.5,), std=(0.0,)), None, "std must be finite and above 0, got 0.0"),
        (lambda: ResNet18(mean=(0.5,), std=(0.2,)), (8, 8, 3), "normalises 1 channels, the images have 3"),
    ],
)
def test_what_they_do_not_take(make, shape, message, unannotated):
    with pytest.raises(UserError, match=message):
        jax.eval_shape(make().init, jax.random.key(0), jnp.zeros((1, *(shape or (8, 8, 3)))))


def test_every_row_is_a_module_of_its_own():
    modules = [row.module for row in backbones.BACKBONES.values()]
    assert len(set(modules)) == len(modules) == 8
