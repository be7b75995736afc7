"""Interval bounds: they hold at random points of boxes, by hand for one layer, and are tight where a box is a point."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import models
from preload_jax.errors import UserError
from preload_jax.guarantees import intervals

RNG = np.random.default_rng(0)


def bounds(function, low, high, variables=None, **options):
    found = intervals.output_bounds(
        lambda v, x: function(x) if v is None else function(v, x), variables, low, high, **options
    )
    return found[0]


def test_one_layer_by_hand():
    # x₀ in [0, 1] and x₁ in [1, 2]: x₀ − 2 x₁ in [−4, −1], its ReLU 0, and the second output in [1, 3].
    weights = np.array([[1.0, 1.0], [-2.0, 1.0]], np.float32)
    low, high = np.array([[0.0, 1.0]]), np.array([[1.0, 2.0]])
    least, most = bounds(lambda w, x: x @ w, low, high, weights)
    np.testing.assert_allclose(least, [[-4.0, 1.0]], rtol=1e-5)
    np.testing.assert_allclose(most, [[-1.0, 3.0]], rtol=1e-5)
    least, most = bounds(lambda w, x: nn.relu(x @ w), low, high, weights)
    np.testing.assert_allclose(least, [[0.0, 1.0]], rtol=1e-5)
    np.testing.assert_allclose(most, [[0.0, 3.0]], rtol=1e-5, atol=1e-6)


FUNCTIONS = {
    "square": lambda x: x * x,
    "cube": lambda x: x**3,
    "inverse square": lambda x: x**-2,
    "product": lambda x: x * x[:, ::-1],
    "quotient": lambda x: x / (2.0 + jnp.abs(x[:, ::-1])),
    "silu": nn.silu,
    "gelu": nn.gelu,
    "leaky relu": nn.leaky_relu,
    "softmax": lambda x: nn.softmax(x, axis=1),
    "norm": lambda x: jnp.sqrt(jnp.sum(x**2, axis=1, keepdims=True) + 0.1),
    "clip": lambda x: jnp.clip(x, -0.5, 0.25),
    "where": lambda x: jnp.where(x < 0.1, -x, 2.0 * x + 1.0),
    "zero": lambda x: jnp.where(x == 0.0, 1.0, x) + jnp.where(x != x[:, ::-1], x, 3.0),
    "sums": lambda x: jnp.cumsum(x, axis=1),
    "maxima": lambda x: jnp.max(x, axis=1, keepdims=True),
    "joined": lambda x: jnp.concatenate([x, jnp.ones_like(x)], axis=1),
    "whole number": lambda x: jnp.where(x > 0, x, 0),
    "whole numbers": lambda x: x * jnp.array([[1, 2, 2**24 + 1, 3]]).astype(x.dtype),
    "truths": lambda x: x + jnp.array([[True, False, True, False]]).astype(x.dtype),
    "variance": lambda x: jnp.var(x, axis=1, keepdims=True) + jnp.std(x + 9.0, axis=1, keepdims=True),
    "bilinear": lambda x: jnp.einsum("ni,nj->nij", x, x - 1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_hold_at_random_points(name):
    function = FUNCTIONS[name]
    centers, radius = RNG.normal(size=(8, 4)), RNG.uniform(0.0, 0.5, (8, 4))
    least, most = bounds(function, centers - radius, centers + radius)
    for _ in range(20):
        points = centers + radius * RNG.uniform(-1.0, 1.0, centers.shape)
        values = np.asarray(function(jnp.asarray(points, jnp.float32)))
        assert ((least <= values) & (values <= most)).all()


class Residual(nn.Module):
    """What the library's networks are made of, in little."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.Conv(4, (3, 3), name="conv")(images)
        x = x + nn.relu(nn.BatchNorm(use_running_average=not train, name="bn")(x))
        x = nn.max_pool(x, (2, 2), strides=(2, 2)).mean(axis=(1, 2))
        return nn.relu(nn.Dense(8, name="dense")(x))


def test_networks_are_within_and_tight_at_a_point():
    model = models.Classifier(Residual(), models.SquareLogitHead(3))
    images = RNG.random((4, 8, 8, 3)).astype(np.float32)
    variables = model.init(jax.random.key(0), jnp.asarray(images))
    apply = jax.jit(lambda v, x: model.apply(v, x))
    wide = images.astype(np.float64)
    least, most = bounds(apply, wide - 0.02, wide + 0.02, variables)
    for _ in range(10):
        points = (wide + 0.0199 * RNG.uniform(-1.0, 1.0, wide.shape)).astype(np.float32)
        values = np.asarray(apply(variables, jnp.asarray(points)))
        assert ((least <= values) & (values <= most)).all()
    least, most = bounds(apply, wide, wide, variables)
    values = np.asarray(apply(variables, jnp.asarray(images)))
    assert ((least <= values) & (values <= most)).all()
    # In exact arithmetic a point has one output.
    least, most = bounds(apply, wide, wide, variables, rounding=False)
    np.testing.assert_allclose(most, least, atol=1e-6)
    np.testing.assert_allclose(values, least, atol=1e-4)


def test_what_may_be_anything_is_unbounded_and_no_nan():
    least, most = bounds(lambda x: 1.0 / x, np.array([[-1.0, 1.0]]), np.array([[1.0, 2.0]]))
    np.testing.assert_allclose(least, [[-np.inf, 0.5]], rtol=1e-5)
    np.testing.assert_allclose(most, [[np.inf, 1.0]], rtol=1e-5)
    least, most = bounds(jnp.log, np.array([[-1.0]]), np.array([[1.0]]))
    assert least[0, 0] == -np.inf
    assert most[0, 0] >= 0.0


def test_an_operation_without_a_rule_is_named():
    with pytest.raises(
        UserError, match=r"'sin' at .*test_intervals.py.*: there is no rule for this primitive on a box"
    ):
        bounds(jnp.sin, np.zeros((1, 2)), np.ones((1, 2)))
    with pytest.raises(UserError, match="a cast between truth values, integers and numbers has no rule on a box"):
        bounds(lambda x: x * (x > 0.5).astype(jnp.float32), np.zeros((1, 2)), np.ones((1, 2)))
