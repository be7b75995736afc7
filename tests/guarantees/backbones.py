"""Small backbones of every kind, as functions of images that compute in their input's precision."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

IMAGE, VECTOR = (6, 6, 2), (8,)


def weights(*shape, seed=0, scale=None):
    """Float64 numbers that float32 holds, about as large as an initialisation's."""
    scale = shape[0] ** -0.5 if scale is None else scale
    return np.random.default_rng(seed + sum(shape)).normal(0.0, scale, shape).astype(np.float32).astype(np.float64)


def two_layers(activation, *, width=12, second=None):
    """dense – activation – dense – activation."""
    second = activation if second is None else second

    def network(x):
        hidden = activation(x @ weights(8, width) + weights(width, scale=0.5))
        return second(hidden @ weights(width, 6, seed=1) + weights(6, scale=0.5, seed=2))

    return VECTOR, network


def linen(module, shape=IMAGE, **kwargs):
    """A Flax module whose offsets and statistics are far from their initial 0 and 1."""
    variables = module.init(jax.random.key(0), jnp.ones((1, *shape)), **kwargs)
    rng = np.random.default_rng(0)

    def perturbed(path, leaf):
        if path[-1].key == "var":
            return rng.uniform(0.2, 2.0, leaf.shape).astype(np.float32)
        return (np.asarray(leaf) + 0.3 * rng.normal(size=leaf.shape)).astype(np.float32)

    variables = jax.tree_util.tree_map_with_path(perturbed, variables)
    return shape, lambda x: module.apply(jax.tree.map(lambda leaf: leaf.astype(x.dtype), variables), x, **kwargs)


class Layers(nn.Module):
    """A convolution, what is asked for, a global mean and a dense layer."""

    middle: tuple = ()
    padding: str = "SAME"
    pool: str = "mean"

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(6, (3, 3), padding=self.padding)(x)
        for layer in self.middle:
            x = layer(x)
        x = x.reshape(len(x), -1) if self.pool == "none" else getattr(jnp, self.pool)(x, axis=(1, 2))
        return nn.relu(nn.Dense(6)(x))


class Residual(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3, 3))(x)
        for _ in range(2):
            y = nn.relu(nn.BatchNorm(use_running_average=True)(x))
            x = x + nn.Conv(4, (3, 3))(nn.Dropout(0.5, deterministic=True)(y))
        return nn.relu(x).mean(axis=(1, 2))


class SqueezeAndExcitation(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(6, (3, 3))(x))
        gate = nn.sigmoid(nn.Dense(6)(nn.relu(nn.Dense(3)(x.mean(axis=(1, 2))))))
        return nn.relu(nn.Dense(6)((x * gate[:, None, None]).mean(axis=(1, 2))))


class Attention(nn.Module):
    """Pixels as tokens; one head or several."""

    heads: int = 1

    @nn.compact
    def __call__(self, x):
        tokens = nn.Dense(8)(x.reshape(len(x), 9, -1))
        tokens = tokens + nn.MultiHeadDotProductAttention(self.heads)(tokens)
        return nn.relu(nn.Dense(6)(tokens.mean(axis=1)))


class ViT(nn.Module):
    """Patches, a class token, positions, and blocks of layer norm, attention and GELU."""

    blocks: int = 1

    @nn.compact
    def __call__(self, x):
        n = len(x)
        tokens = nn.Conv(8, (3, 3), (3, 3), padding="VALID")(x).reshape(n, -1, 8)
        first = self.param("class", nn.initializers.normal(), (1, 1, 8))
        tokens = jnp.concatenate([jnp.broadcast_to(first, (n, 1, 8)), tokens], axis=1)
        tokens = tokens + self.param("positions", nn.initializers.normal(), (1, tokens.shape[1], 8))
        for _ in range(self.blocks):
            tokens = tokens + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(tokens))
            tokens = tokens + nn.Dense(8)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(tokens))))
        return nn.LayerNorm()(tokens)[:, 0]


class Mixer(nn.Module):
    @nn.compact
    def __call__(self, x):
        tokens = nn.Conv(8, (2, 2), (2, 2), padding="VALID")(x).reshape(len(x), 9, 8)
        y = nn.LayerNorm()(tokens).swapaxes(1, 2)
        tokens = tokens + nn.Dense(9)(nn.gelu(nn.Dense(12)(y))).swapaxes(1, 2)
        tokens = tokens + nn.Dense(8)(nn.gelu(nn.Dense(12)(nn.LayerNorm()(tokens))))
        return nn.LayerNorm()(tokens).mean(axis=1)


class SlopeNamedBias(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(8)(x)
        slope = self.param("bias", nn.initializers.constant(0.2), (8,))
        return nn.Dense(6)(jnp.where(x >= 0, x, slope * x))


class NNXNetwork(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(2, 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, use_running_average=True, rngs=rngs)
        self.dense = nnx.Linear(4, 6, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x))).mean(axis=(1, 2))
        return nnx.silu(self.dense(x))


def nnx_network():
    graph, state = nnx.split(NNXNetwork())
    return IMAGE, lambda x: nnx.merge(graph, jax.tree.map(lambda leaf: leaf.astype(x.dtype), state))(x)


def equinox_network():
    network = eqx.nn.MLP(8, 6, 12, 2, activation=jax.nn.gelu, key=jax.random.key(0))

    def apply(x):
        cast = jax.tree.map(lambda leaf: leaf.astype(x.dtype) if eqx.is_array(leaf) else leaf, network)
        return jax.vmap(cast)(x)

    return VECTOR, apply


def rms_norm(x):
    return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def layer_norm(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-6)


def hyper(x):
    """A kernel that other parameters generate."""
    kernel = jnp.tanh(weights(8, 1) @ weights(1, 12)) * weights(8, 12, seed=3)
    return jax.nn.relu(x @ kernel.astype(x.dtype) + weights(12)) @ weights(12, 6)


def kernel_from_the_image(x):
    scale = jax.nn.softmax(x @ weights(8, 8, seed=4))
    return jnp.einsum("nd,nd,dk->nk", x, scale, weights(8, 6))


def scan_of_layers(x):
    kernels = np.stack([weights(8, 8, seed=i) for i in range(3)])
    return lax.scan(lambda y, kernel: (jax.nn.relu(y @ kernel + 0.1), None), x, kernels.astype(x.dtype))[0]


def in_half_precision(x):
    # The oracle computes in float64 throughout; the cast is read as exact.
    half = jnp.bfloat16 if x.dtype == jnp.float32 else x.dtype
    hidden = jax.nn.relu(x.astype(half) @ weights(8, 8).astype(half))
    return (hidden.astype(x.dtype)) @ weights(8, 6)


def cancelled(x):
    hidden = jax.nn.relu(x @ weights(8, 6) + 0.3)
    return hidden - jax.nn.relu(hidden - 1e4)


def tied(x):
    first = weights(8, 6)
    a, b = x @ first + weights(6, seed=7), x @ first + weights(6, seed=8)
    return jnp.maximum(a, b) + jnp.minimum(a - b, 0.0)


def dead_units(x):
    hidden = jax.nn.relu(x @ -np.abs(weights(8, 10)) + weights(10, seed=5))
    return jnp.tanh(hidden @ weights(10, 8) + weights(8)) @ weights(8, 6)


def glu(x):
    a, b = jnp.split(x @ weights(8, 12) + weights(12), 2, axis=-1)
    return a * jax.nn.sigmoid(b)


def group_norm(x):
    return nn.GroupNorm(3)(x)


def masked_attention(x):
    tokens = x.reshape(len(x), 4, 2) @ weights(2, 4)
    scores = jnp.einsum("nqd,nkd->nqk", tokens, tokens @ weights(4, 4, seed=1))
    scores = jnp.where(jnp.tril(jnp.ones((4, 4), bool)), scores, jnp.finfo(x.dtype).min)
    return jnp.einsum("nqk,nkd->nqd", jax.nn.softmax(scores), tokens).reshape(len(x), -1)


relu = jax.nn.relu
BACKBONES = {
    "relu": two_layers(relu),
    "leaky relu": two_layers(jax.nn.leaky_relu),
    "prelu": linen(nn.Sequential([nn.Dense(8), nn.PReLU(), nn.Dense(6)]), VECTOR),
    "slope named bias": linen(SlopeNamedBias(), VECTOR),
    "abs": two_layers(jnp.abs),
    "relu6": two_layers(jax.nn.relu6),
    "clip of features": two_layers(lambda x: jnp.clip(x, -1.0, 2.0)),
    "clip of inputs": (VECTOR, lambda x: relu(jnp.clip(x, 0.0, 1.0) @ weights(8, 6) + 0.1)),
    "hard tanh": two_layers(jax.nn.hard_tanh),
    "hard swish": two_layers(jax.nn.hard_swish),
    "tanh": two_layers(jnp.tanh),
    "sigmoid": two_layers(jax.nn.sigmoid),
    "softplus": two_layers(jax.nn.softplus),
    "elu": two_layers(jax.nn.elu),
    "selu": two_layers(jax.nn.selu),
    "gelu, tanh": two_layers(jax.nn.gelu),
    "gelu, erf": two_layers(lambda x: jax.nn.gelu(x, approximate=False)),
    "silu": two_layers(jax.nn.silu),
    "mish": two_layers(jax.nn.mish),
    "soft sign": two_layers(jax.nn.soft_sign),
    "own elu": two_layers(lambda x: jnp.where(x > 0, x, jnp.exp(x) - 1)),
    "own sigmoid gate": two_layers(lambda x: x / (1 + jnp.exp(-x))),
    "gate": (VECTOR, glu),
    "squareplus": two_layers(jax.nn.squareplus),
    "layer norm": two_layers(jax.nn.gelu, second=layer_norm),
    "layer norm, then gelu": two_layers(lambda x: jax.nn.gelu(layer_norm(x))),
    "rms norm": two_layers(relu, second=rms_norm),
    "group norm": linen(Layers((nn.GroupNorm(3), relu))),
    "batch norm": linen(Layers((nn.BatchNorm(use_running_average=True), relu))),
    "dropout off": linen(Layers((relu, nn.Dropout(0.5, deterministic=True)))),
    "max pooling": linen(Layers((lambda x: nn.max_pool(x, (2, 2), (2, 2)), relu))),
    "overlapping max pooling, padded": linen(Layers((relu, lambda x: nn.max_pool(x, (3, 3), (2, 2), padding="SAME")))),
    "mean pooling": linen(Layers((relu, lambda x: nn.avg_pool(x, (2, 2), (2, 2))))),
    "global max pooling": linen(Layers((nn.silu,), pool="max")),
    "global min pooling": linen(Layers((nn.silu,), pool="min")),
    "convolution without padding": linen(Layers((relu,), padding="VALID", pool="none")),
    "transposed convolution": linen(Layers((nn.ConvTranspose(4, (2, 2), (2, 2)), relu))),
    "residual": linen(Residual()),
    "squeeze and excitation": linen(SqueezeAndExcitation()),
    "attention, one head": linen(Attention(1)),
    "attention, two heads": linen(Attention(2)),
    "attention, masked": (VECTOR, masked_attention),
    "vit": linen(ViT()),
    "mlp-mixer": linen(Mixer()),
    "offset of another name": (VECTOR, lambda x: relu(x @ weights(8, 6) + weights(6, scale=3.0))),
    "generated kernel": (VECTOR, hyper),
    "kernel from the image": (VECTOR, kernel_from_the_image),
    "1/255": (VECTOR, lambda x: jnp.tanh((x / 255.0) @ weights(8, 6)) + 0.0 * relu(x @ weights(8, 6))),
    "mean and deviation": (VECTOR, lambda x: relu(((x - 0.4734) / 0.2515) @ weights(8, 6) + 0.1)),
    "product of two branches": (VECTOR, lambda x: relu(x @ weights(8, 6) + 0.2) * (x @ weights(8, 6, seed=1) - 0.1)),
    "minimum that cancels": (VECTOR, cancelled),
    "root of a sum of squares": (VECTOR, lambda x: jnp.sqrt((x @ weights(8, 12)).reshape(-1, 6, 2) ** 2 @ np.ones(2))),
    "norm of the image": (VECTOR, lambda x: x / (1.0 + jnp.linalg.norm(x, axis=-1, keepdims=True))),
    "half precision": (VECTOR, in_half_precision),
    "tied": (VECTOR, tied),
    "dead units": (VECTOR, dead_units),
    "scan": (VECTOR, scan_of_layers),
    "sorted": (VECTOR, lambda x: jnp.sort(x @ weights(8, 6), axis=-1)),
    "nnx": nnx_network(),
    "equinox": equinox_network(),
}

# What has no germ, and what the error says; each takes two rays of two numbers.
REFUSED = {
    "running maximum": (lambda x: lax.cummax(x, axis=1), "'cummax' .* no rule"),
    "exponential of a growing value": (lambda x: jnp.exp(x), "'exp' .* outgrows every power of t along 1 of 2 rays"),
    "power 17": (lambda x: (((x**2) ** 2) ** 2) ** 2 * x, r"'\w+' .* outgrows t\^16"),
    "batch norm in training mode": (lambda x: x - x.mean(axis=0), "'reduce_sum' .* joins rows of a batch"),
    "images in reverse order": (lambda x: jnp.flip(x, axis=0), "'rev' .* joins rows of a batch"),
    "attention between images": (lambda x: x @ x.T @ x, "'dot_general' .* joins rows of a batch"),
    "running sum": (
        lambda x: lax.scan(lambda c, row: (c + row, c + row), jnp.zeros(x.shape[1:]), x)[1],
        "'scan' .* joins rows of a batch",
    ),
    "sum over the batch": (lambda x: x.sum(), "'reduce_sum' .* joins rows of a batch"),
}
