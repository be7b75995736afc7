"""Batch norm and dropout of other frameworks, switched and updated as the frameworks themselves do."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from preload_jax import Classifier, LinearHead, adapters, fit, predict
from preload_jax.errors import UserError
from tests import toy

DATA = toy.data()
IMAGES, LABELS = np.asarray(DATA.images)[:128], np.asarray(DATA.labels)[:128]
UNIT = jnp.asarray(IMAGES[:16] / 255, jnp.float32)
KEY = jax.random.key(5)


class Nnx(nnx.Module):
    def __init__(self, rngs, rate=0.0):
        self.dense = nnx.Linear(16, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, images):
        return self.dropout(nnx.relu(self.norm(self.dense(images.reshape(len(images), -1)))))


class Equinox(eqx.Module):
    dense: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout

    def __init__(self, key, rate=0.0):
        self.dense = eqx.nn.Linear(16, 8, key=key)
        self.norm = eqx.nn.BatchNorm(8, axis_name="all")
        self.dropout = eqx.nn.Dropout(rate)

    def __call__(self, image, state, *, key=None):
        x, state = self.norm(self.dense(image.ravel()), state)
        return self.dropout(jax.nn.relu(x), key=key), state


def nnx_network(rate=0.0):
    return Nnx(nnx.Rngs(0), rate)


def equinox_network(rate=0.0):
    return eqx.nn.make_with_state(Equinox)(jax.random.key(0), rate)


def adapter(framework, rate=0.0):
    if framework == "nnx":
        return adapters.from_nnx(nnx_network(rate))
    network, state = equinox_network(rate)
    return adapters.from_equinox(network, state=state)


def one_pass(framework):
    """The framework's own features in training mode, and its statistics after it."""
    if framework == "nnx":
        network = nnx_network()
        network.train()
        return network(UNIT), jax.tree.leaves(nnx.state(network, nnx.BatchStat))
    network, state = equinox_network()
    run = jax.vmap(network, in_axes=(0, None), out_axes=(0, None), axis_name="all")
    features, state = run(UNIT, state)
    return features, jax.tree.leaves(state)


@pytest.mark.parametrize("framework", ["nnx", "equinox"])
def test_training_mode_is_the_framework_s_own(framework):
    backbone = adapter(framework)
    variables = backbone.init(KEY, UNIT)
    features, after = backbone.apply(
        variables, UNIT, train=True, mutable=["batch_stats"], rngs={"dropout": jax.random.key(1)}
    )
    expected, statistics = one_pass(framework)
    np.testing.assert_allclose(features, expected, rtol=1e-6, atol=1e-6)
    model = Classifier(backbone, LinearHead(3))
    own = adapters.unwrap(
        model, {"params": {"backbone": variables["params"]}, "batch_stats": {"backbone": after["batch_stats"]}}
    )
    found = jax.tree.leaves(nnx.state(own, nnx.BatchStat) if framework == "nnx" else own[1])
    for a, b in zip(found, statistics, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    # In evaluation mode statistics stay, and the given network was not changed.
    same, kept = backbone.apply(variables, UNIT, mutable=["batch_stats"])
    jax.tree.map(np.testing.assert_array_equal, kept["batch_stats"], variables["batch_stats"])
    assert abs(same - features).max() > 1e-3


@pytest.mark.parametrize("framework", ["nnx", "equinox"])
def test_dropout_draws_in_training_alone(framework):
    backbone = adapter(framework, 0.5)
    variables = backbone.init(KEY, UNIT)

    def trained(seed):
        return backbone.apply(
            variables, UNIT, train=True, mutable=["batch_stats"], rngs={"dropout": jax.random.key(seed)}
        )[0]

    np.testing.assert_array_equal(trained(0), trained(0))
    assert (trained(0) != trained(1)).any()
    # Each image has its own.
    assert len({tuple(row) for row in np.asarray(trained(0) == 0)}) > 4
    assert (backbone.apply(variables, UNIT) == backbone.apply(variables, UNIT)).all()


@pytest.mark.parametrize("framework", ["nnx", "equinox"])
def test_fit_trains_weights_and_statistics(framework):
    model = Classifier(adapter(framework, 0.1), LinearHead(3))
    variables = fit(model, IMAGES, LABELS, epochs=8, batch_size=32, learning_rate=3e-2)
    assert (predict(model, variables, IMAGES).label == LABELS).mean() > 0.9
    own = adapters.unwrap(model, variables)
    images = jnp.asarray(IMAGES / 255, jnp.float32)
    if framework == "nnx":
        own.eval()
        features = own(images)
    else:
        network, state = own
        features = jax.vmap(eqx.nn.inference_mode(network), (0, None), (0, None), axis_name="all")(images, state)[0]
    head = variables["params"]["head"]["linear"]
    logits = features @ head["kernel"] + head["bias"][None]
    assert (logits.argmax(axis=1) == predict(model, variables, IMAGES).label).mean() > 0.99


def test_a_function_is_told_what_it_asks_for():
    def features(params, images, *, train, key):
        x = images.reshape(len(images), -1) @ params["kernel"]
        return x * jax.random.bernoulli(key, 0.5, x.shape).astype(x.dtype) if train else x

    backbone = adapters.from_function(jax.jit(features, static_argnames="train"), {"kernel": jnp.ones((16, 4))})
    variables = backbone.init(KEY, UNIT)
    np.testing.assert_array_equal(backbone.apply(variables, UNIT), UNIT.reshape(16, -1) @ jnp.ones((16, 4)))
    some = backbone.apply(variables, UNIT, train=True, rngs={"dropout": KEY}) == 0
    assert some.any()
    assert not some.all()


def test_convolutions_of_equinox_take_channels_first():
    class Network(eqx.Module):
        conv: eqx.nn.Conv2d

        def __call__(self, image):
            return jax.nn.relu(self.conv(image)).mean(axis=(1, 2))

    network = Network(eqx.nn.Conv2d(2, 4, 3, key=KEY))
    images = jax.random.uniform(KEY, (3, 6, 5, 2))
    backbone = adapters.from_equinox(network, channels_first=True)
    variables = backbone.init(KEY, images)
    np.testing.assert_array_equal(backbone.apply(variables, images), jax.vmap(network)(images.transpose(0, 3, 1, 2)))
    with pytest.raises(UserError, match=r"channels_first=True where it takes \[c, h, w\]"):
        adapters.from_equinox(network).init(KEY, images)
