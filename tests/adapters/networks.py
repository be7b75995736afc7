"""One small network in four frameworks, with the same weights: dense, ReLU, dense, ReLU."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from preload_jax import adapters
from tests import toy

NUMBERS = int(np.prod(toy.SHAPE))
WIDTHS = (12, 8)


def numbers(*shape):
    return np.random.default_rng(sum(shape)).normal(0.0, shape[0] ** -0.5, shape).astype(np.float32)


LAYERS = [(numbers(m, n), 0.1 * numbers(n)) for m, n in zip((NUMBERS, *WIDTHS), WIDTHS, strict=False)]


class Linen(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        x = images.reshape(images.shape[0], -1)
        for i, width in enumerate(WIDTHS):
            x = nn.relu(nn.Dense(width, name=f"dense{i}")(x))
        return x


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(NUMBERS, WIDTHS[0], rngs=rngs)
        self.second = nnx.Linear(*WIDTHS, rngs=rngs)

    def __call__(self, images):
        return nnx.relu(self.second(nnx.relu(self.first(images.reshape(images.shape[0], -1)))))


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, key):
        self.first = eqx.nn.Linear(NUMBERS, WIDTHS[0], key=key)
        self.second = eqx.nn.Linear(*WIDTHS, key=key)

    def __call__(self, image):
        return jax.nn.relu(self.second(jax.nn.relu(self.first(image.ravel()))))


def function(params, images):
    x = images.reshape(images.shape[0], -1)
    for kernel, bias in params:
        x = jax.nn.relu(x @ kernel + bias[None])
    return x


def linen_params():
    return {f"dense{i}": {"kernel": jnp.asarray(k), "bias": jnp.asarray(b)} for i, (k, b) in enumerate(LAYERS)}


def nnx_network():
    network = Nnx(nnx.Rngs(0))
    for layer, (kernel, bias) in zip((network.first, network.second), LAYERS, strict=True):
        layer.kernel, layer.bias = nnx.Param(jnp.asarray(kernel)), nnx.Param(jnp.asarray(bias))
    return network


def equinox_network():
    network = Equinox(jax.random.key(0))
    for name, (kernel, bias) in zip(("first", "second"), LAYERS, strict=True):
        network = eqx.tree_at(
            lambda n, name=name: (getattr(n, name).weight, getattr(n, name).bias),
            network,
            (jnp.asarray(kernel.T), jnp.asarray(bias)),
        )
    return network


def adapted():
    """Framework → backbone."""
    return {
        "function": adapters.from_function(function, LAYERS),
        "nnx": adapters.from_nnx(nnx_network()),
        "equinox": adapters.from_equinox(equinox_network()),
    }


def layers_of(own):
    """[(kernel [in, out], bias)] of a network in any of the frameworks, or of the Linen network's parameters."""
    if isinstance(own, Nnx):
        return [(layer.kernel[...], layer.bias[...]) for layer in (own.first, own.second)]
    if isinstance(own, Equinox):
        return [(layer.weight.T, layer.bias) for layer in (own.first, own.second)]
    if isinstance(own, dict):
        return [(own[name]["kernel"], own[name]["bias"]) for name in ("dense0", "dense1")]
    return own
