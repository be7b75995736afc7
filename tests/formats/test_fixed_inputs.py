"""What a file keeps of a network's code: its answers to fixed inputs, which tell it from others of its shapes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import Classifier, LinearHead
from preload_jax.errors import UserError
from preload_jax.formats import weights

SHAPE = (8, 8, 1)


class Layers(nn.Module):
    """Two dense layers, and what is done before, between and after them."""

    before: object = staticmethod(lambda x: x)
    activation: object = nn.relu
    after: object = staticmethod(lambda x: x)

    @nn.compact
    def __call__(self, images, *, train=False):
        hidden = self.before(images).reshape(images.shape[0], -1)
        for width in (32, 16):
            hidden = self.activation(nn.Dense(width)(hidden))
        return self.after(hidden)


@pytest.mark.parametrize(
    "options",
    [
        {"activation": nn.relu6},
        {"activation": lambda x: jnp.clip(x, 0, 3)},
        {"activation": lambda x: nn.leaky_relu(x, 0.01)},
        {"activation": nn.silu},
        {"before": lambda x: jnp.clip(x, 0, 1)},
        {"before": lambda x: jnp.minimum(x, 1)},
        {"before": lambda x: x - 0.02},
        {"before": lambda x: jnp.sign(x) * jnp.abs(x) ** 1.02},
        {"before": lambda x: -x},
        {"after": lambda x: x.at[:, 0].set(0)},
    ],
)
@pytest.mark.parametrize("zero_head", [False, True])
def test_networks_that_differ_far_away_are_told_apart(tmp_path, options, zero_head):
    first, second = (Classifier(Layers(**given), LinearHead(3)) for given in ({}, options))
    variables = jax.jit(first.init)(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    if zero_head:
        variables["params"]["head"] = jax.tree.map(jnp.zeros_like, variables["params"]["head"])
    path = tmp_path / "a.safetensors"
    weights.save(path, first, variables, image_shape=SHAPE)
    weights.load(path, model=first)
    with pytest.raises(UserError, match="the model gives other logits or features"):
        weights.load(path, model=second)


@pytest.mark.parametrize("noise", [1e-6, 3e-6])
def test_rounding_is_no_other_network(tmp_path, noise):
    model, path = Classifier(Layers(activation=jnp.sin), LinearHead(3)), tmp_path / "a.safetensors"
    variables = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    weights.save(path, model, variables, image_shape=SHAPE)
    for seed in range(3):
        factor = 1 + noise * np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)
        rounded = Classifier(Layers(before=lambda x, by=factor: x * by[None], activation=jnp.sin), LinearHead(3))
        weights.load(path, model=rounded)


class Tokens(nn.Module):
    shift: int = 0

    @nn.compact
    def __call__(self, tokens, *, train=False):
        return nn.Embed(7, 4)((tokens + self.shift) % 7).mean(axis=1)


def test_networks_that_take_tokens(tmp_path):
    model, path = Classifier(Tokens(), LinearHead(3)), tmp_path / "a.safetensors"
    variables = model.init(jax.random.key(0), jnp.zeros((1, 5), jnp.int32))
    weights.save(path, model, variables, image_shape=(5,))
    assert weights.load(path, model=model).image_shape == (5,)
    with pytest.raises(UserError, match="the model gives other logits or features"):
        weights.load(path, model=Classifier(Tokens(shift=1), LinearHead(3)))
