"""Germs of sixty small networks against float64 far out, and of single operations against literal numbers."""

import re
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax

from preload_jax.errors import UserError
from preload_jax.guarantees import far_away_limit, germs
from tests.guarantees.backbones import BACKBONES, IMAGE, REFUSED, ViT, linen, weights
from tests.toy import enable_x64

RAYS = 300
# Their float32 literals, such as a slope of 0.01 or a mean of 0.4734, are not those of the float64 network.
ROUNDED_LITERALS = {
    "leaky relu", "selu", "layer norm, then gelu", "vit", "mlp-mixer", "clip of inputs", "mean and deviation",
    "generated kernel", "equinox",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _networks_of_users_mix_types():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def rays(shape, *, n=RAYS, seed=0):
    """Directions and origins: a third along few axes, where many units are dead or tied."""
    rng = np.random.default_rng(seed)
    u, u0 = rng.normal(size=(n, *shape)), rng.uniform(size=(n, *shape))
    u[: n // 3] *= rng.uniform(size=(n // 3, *shape)) < 0.2
    u[: n // 3].reshape(n // 3, -1)[:, 0] += 1.0
    u0[::2] = 0.0
    return u.astype(np.float32), u0.astype(np.float32)


def in_float64(function, u, u0, t):
    with enable_x64(True):
        return np.asarray(jax.jit(function)(jnp.asarray(u0.astype(np.float64) + t * u.astype(np.float64))))


@pytest.mark.parametrize("name", BACKBONES)
def test_a_network_far_out_is_its_germ(name):
    shape, function = BACKBONES[name]
    u, u0 = rays(shape)
    (found,) = germs.ray_germs(function, u, origins=u0, batch_size=128)
    decided = found.order < 0
    assert decided.mean() > 0.95
    # Casts are read as exact: what bfloat16 loses is the network's own.
    tolerance = 0.05 if name == "half precision" else 2e-7 if name in ROUNDED_LITERALS else 1e-10
    for t in (1e9, 1e10, 1e12):
        expected = in_float64(function, u, u0, t)
        assert expected.dtype == np.float64
        size = 1.0 + np.abs(expected).max(axis=tuple(range(1, expected.ndim)), keepdims=True)
        assert (np.abs(found.at(t) - expected) / size)[decided].max() < tolerance


def with_head(function, head, width):
    """(logits, features): three classes, and for a square-logit head the OOD class, by hand."""

    def network(x):
        features = function(x)
        logits = features @ weights(width, 3, seed=9).astype(features.dtype)
        if head == "square_logit":
            logits = jnp.concatenate([logits, 0.1 * (features**2).sum(axis=-1, keepdims=True)], axis=-1)
        return logits, features

    return network


@pytest.mark.parametrize("head", ["linear", "square_logit"])
@pytest.mark.parametrize(
    "name", ["relu6", "tanh", "layer norm", "gelu, tanh", "attention, one head", "minimum that cancels"]
)
def test_verdicts_are_where_confidences_go(name, head):
    shape, function = BACKBONES[name]
    network = with_head(function, head, 6)
    u, u0 = rays(shape, n=90)
    limit = far_away_limit(network, None, u, starts=u0, batch_size=40)
    unit = u / np.linalg.norm(u.reshape(len(u), -1), axis=1).reshape(-1, *[1] * len(shape))
    far = softmax(in_float64(lambda x: network(x)[0], unit.astype(np.float32), u0, 1e12), axis=1)
    decided = ~limit.undecided
    assert decided.mean() > 0.95
    # A gap that grows like t is small at t = 1e12 where slopes nearly tie.
    close = np.abs(limit.probabilities - far).max(axis=1) < 1e-5
    assert close[decided].mean() > 0.98
    bounded = name in ("relu6", "tanh", "layer norm", "minimum that cancels")
    assert limit.dead[decided].all() == bounded
    if head == "square_logit":
        assert ((limit.winner == 3) == ~limit.dead)[decided].all()
    ends = limit.log_odds[decided]
    np.testing.assert_allclose(expit(ends), limit.probabilities[decided], atol=1e-12)


def test_rows_do_not_depend_on_the_batch():
    shape, function = BACKBONES["max pooling"]
    u, u0 = rays(shape, n=20)
    (whole,) = germs.ray_germs(function, u, origins=u0, batch_size=20)
    (parts,) = germs.ray_germs(function, u, origins=u0, batch_size=3)
    for power in whole.terms:
        np.testing.assert_allclose(whole.terms[power], parts.terms[power], rtol=1e-12, atol=1e-14)


def terms_of(function, u, u0=0.0):
    """{power: coefficient} of a function of one number, without zeros and what the remainder hides, and the order."""
    (found,) = germs.ray_germs(function, np.array([[u]], np.float32), origins=np.array([[u0]], np.float32))
    (order,) = found.order
    return {p: term[0, 0] for p, term in found.terms.items() if term[0, 0] != 0 and p > order}, order


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: 3 * x + 1, {1: 3.0, 0: 7.0}),
        (lambda x: x * x, {2: 1.0, 1: 4.0, 0: 4.0}),
        (lambda x: x**3, {3: 1.0, 2: 6.0, 1: 12.0, 0: 8.0}),
        (lambda x: 1 / x, {-1: 1.0, -2: -2.0}),
        (lambda x: x / (x - 1), {0: 1.0, -1: 1.0, -2: -1.0}),
        (lambda x: jnp.sqrt(x * x + 1), {1: 1.0, 0: 2.0, -1: 0.5, -2: -1.0}),
        (lambda x: jnp.exp(1 / x), {0: 1.0, -1: 1.0, -2: -1.5}),
        (lambda x: jnp.tanh(x) + jax.nn.sigmoid(-x), {0: 1.0}),
        (lambda x: jnp.maximum(x, 2 * x - 1e6), {1: 2.0, 0: 4.0 - 1e6}),
        (lambda x: jnp.minimum(x, x + 1e-3), {1: 1.0, 0: 2.0}),
        (lambda x: jnp.sign(x) * jnp.abs(-x), {1: 1.0, 0: 2.0}),
        (lambda x: jnp.where(x > 1e9, 5.0, 7.0), {0: 5.0}),
        (lambda x: jax.nn.softplus(x) - x, {}),
    ],
)
def test_single_operations_have_the_germs_of_the_books(function, expected):
    found, order = terms_of(function, 1.0, 2.0)
    # Of a quotient with a bounded value, t⁻¹ is the lowest power that is kept.
    assert order <= -2
    assert found == pytest.approx({p: c for p, c in expected.items() if p > order}, rel=1e-6)


def test_what_the_terms_hide_is_undecided_not_guessed():
    # 1/x² and 1/(x² + 1/x²) differ by less than t^-2 shows.
    def network(x):
        first, second = 1 / (x * x), 1 / (x * x + 1 / (x * x))
        choice = jnp.where(first > second, 1.0, -1.0)
        return jnp.concatenate([choice, jnp.zeros_like(choice)], axis=-1)

    limit = far_away_limit(network, None, np.array([[1.0], [-1.0]]))
    assert limit.undecided.tolist() == [True, True]
    assert np.isnan(limit.probabilities).all()
    assert limit.winner.tolist() == [-1, -1]


def test_rounding_that_may_decide_is_not_trusted():
    # Two sums of the same numbers in another order: equal, but not in float64.
    values = weights(50, 1, scale=1.0)[:, 0]

    def network(x):
        sums = [x @ values[order].astype(x.dtype) for order in (np.arange(50), np.arange(50)[::-1])]
        step = jnp.where(sums[0] - sums[1] > 0, 1.0, -1.0)
        return jnp.stack([step, jnp.zeros_like(step)], axis=-1)

    u = np.tile(np.float32([1.0]), (1, 50))
    limit = far_away_limit(network, None, u)
    # An exact 0 is a decision, a difference of rounding errors is none.
    exact = (u.astype(np.float64) @ values) == (u.astype(np.float64) @ values[::-1])
    assert limit.undecided.tolist() == [not exact[0]]


def test_masks_and_limits_against_overflow_are_infinite():
    assert terms_of(lambda x: jnp.clip(x, -1e30, 1e30), 1.0)[0] == {1: 1.0}
    big = jnp.finfo(jnp.float32).min
    pair = lambda x: jax.nn.softmax(jnp.concatenate([-x * x, jnp.full_like(x, big)], axis=-1))[:, :1]  # noqa: E731
    assert terms_of(pair, 1.0)[0] == {0: 1.0}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_germ_is_refused_by_name_and_line(name):
    function, message = REFUSED[name]
    with pytest.raises(UserError, match=message) as error:
        germs.ray_germs(function, np.array([[1.0, 1.0], [-1.0, -1.0]], np.float32))
    assert re.search(r" at .*backbones.py:\d+", str(error.value)), str(error.value)


def test_stacked_products_are_refused():
    network = lambda x: jax.nn.relu(x) ** 2 * jax.nn.relu(x) ** 2  # noqa: E731
    with pytest.raises(UserError, match=r"the embedding outgrows t\^2 along 1 of 2 rays"):
        far_away_limit(network, None, np.array([[1.0, 0.5], [-1.0, -1.0]]))


def test_batch_norm_in_training_mode_is_refused():
    module = nn.BatchNorm(use_running_average=False)
    variables = module.init(jax.random.key(0), jnp.ones((2, *IMAGE)))
    network = lambda x: module.apply(variables, x, mutable=["batch_stats"])[0]  # noqa: E731
    with pytest.raises(UserError, match="joins rows of a batch, as batch norm in training mode does"):
        germs.ray_germs(network, rays(IMAGE, n=3)[0])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (jax.nn.relu, True),
        (jax.nn.relu6, True),
        (jax.nn.softplus, True),
        (jax.nn.sigmoid, True),
        (jnp.abs, True),
        (lambda x: (x * x).mean(axis=-1), True),
        (lambda x: jnp.maximum(x, 0.0) @ np.abs(weights(8, 3)), True),
        (lambda x: jnp.where(x != x, x, jax.nn.relu(x)), True),
        (lambda x: nn.max_pool(jax.nn.relu(x)[:, :, None], (2,), (2,)), True),
        (lambda x: jax.nn.relu(x) @ weights(8, 3), False),
        (lambda x: jax.nn.relu(x) - 1e-6, False),
        (jax.nn.gelu, False),
        (jax.nn.leaky_relu, False),
        (lambda x: jnp.full_like(x, jnp.array(-1)), False),
        (jnp.tanh, False),
    ],
)
def test_what_is_proved_non_negative(function, expected):
    assert germs.nonnegative_outputs(function, jax.ShapeDtypeStruct((1, 8), "float32")) == [expected]


def test_a_deeper_vit_is_answered():
    shape, function = linen(ViT(blocks=2), (6, 6, 2))
    u, u0 = rays(shape, n=8)
    (found,) = germs.ray_germs(function, u, origins=u0)
    assert (found.order < 0).all()
    np.testing.assert_allclose(found.at(1e9), in_float64(function, u, u0, 1e9), atol=1e-6)


def test_functions_may_take_variables():
    function = lambda variables, x: jax.nn.relu(x @ variables["kernel"])  # noqa: E731
    variables = {"kernel": jnp.asarray(weights(8, 3), jnp.float32)}
    u, _ = rays((8,), n=5)
    limit = far_away_limit(function, variables, u)
    (found,) = germs.ray_germs(partial(function, variables), u)
    np.testing.assert_array_equal(limit.winner, np.where(limit.dead, -1, found.terms[1].argmax(axis=1)))


def _linear(x):
    return x @ weights(8, 4).astype(x.dtype)


def _scaled(x):
    return x * jnp.arange(1.0, 1.0 + x.shape[-1], dtype=x.dtype)


def _mask(x):
    return jnp.concatenate([(1 / (1 + jnp.abs(x[:, :1]))) ** 3, x[:, 1:3]], axis=1) > 0


_UNMASKED = np.array([True, True, False, True])
# What does not end as a sum of powers, infinities among numbers, and masks that the kept powers do not tell.
DECEPTIVE = {
    "root of a cube": lambda x: _scaled(jnp.tanh(jnp.abs(_linear(x)) - jnp.abs(_linear(x)) ** 1.5)),
    "gate by it": lambda x: _scaled(jnp.where(jnp.abs(_linear(x)) > jnp.abs(_linear(x)) ** 1.5, 1.0, 2.0)),
    "1 by what fades": lambda x: jnp.tanh(1 / jax.nn.sigmoid(_linear(x)) + _linear(x)),
    "its logarithm": lambda x: jnp.tanh(jnp.log(jax.nn.sigmoid(_linear(x))) + 0.5 * jnp.abs(_linear(x))),
    "log of softmax": lambda x: jnp.tanh(jnp.log(jax.nn.softmax(_linear(x))) + 0.5 * jnp.abs(_linear(x))),
    "two exponentials": lambda x: jnp.tanh(jnp.exp(2 * _linear(x)) * jnp.exp(-_linear(x)) - _linear(x)),
    "1 by 0": lambda x: jnp.tanh(1 / jax.nn.relu(_linear(x)) + _linear(x)),
    "sorted beside a mask": lambda x: _scaled(
        jnp.sort(jnp.where(_UNMASKED, _linear(x), -jnp.inf), axis=-1)[:, 1:2] * jnp.ones((1, 2), x.dtype)
    ),
    "sorted exponentials": lambda x: jnp.tanh(
        jnp.sort(jnp.concatenate([jnp.exp(_linear(x)[:, :2]), _linear(x)], -1), axis=-1)[:, -1:] - 2 * _linear(x)
    ),
    "reversed mask": lambda x: _scaled(jnp.flip(_mask(x), 1).astype(x.dtype)[:, 1:]),
    "sums of a mask": lambda x: _scaled(jnp.cumsum(_mask(x).astype(jnp.int32), 1)[:, 1:].astype(x.dtype)),
    "clamp with its bounds exchanged": lambda x: _scaled(
        jax.lax.clamp(jnp.asarray(2.0, x.dtype), _linear(x), jnp.asarray(1.0, x.dtype))
    ),
    "a tie of small among large": lambda x: jax.nn.relu(x[:, :2]) @ jnp.array([[0, 0, -1e8], [1e-7, 0, 0]], x.dtype),
    "too small for float32": lambda x: jnp.concatenate([((x[:, :1] * 1e-25) ** 2) * 1e29 * 1e29, x[:, 1:2]], 1),
    "bounded waves": lambda x: _linear(x) + jnp.sin(_linear(x)),
    "rounded": lambda x: jnp.floor(_linear(x)) + _linear(x),
}


@pytest.mark.parametrize("name", DECEPTIVE)
def test_what_is_decided_is_true(name):
    function = DECEPTIVE[name]
    u, _ = rays((8,), n=60)
    u = u / np.linalg.norm(u, axis=1, keepdims=True)
    limit = far_away_limit(function, None, u)
    with enable_x64(True):
        exact = np.asarray(jax.jit(function)(jnp.asarray(1e9 * u.astype(np.float64))))
    true = softmax(exact, axis=1)
    decided = ~limit.undecided
    np.testing.assert_allclose(limit.probabilities[decided], true[decided], atol=1e-4)


_KEY = jax.random.key(0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * jax.random.bernoulli(_KEY, 0.5, x.shape),
        lambda x: 0.5 * x + 0.5 * x[jax.random.permutation(_KEY, len(x))],
        lambda x: x[np.arange(len(x))[::-1]],
        lambda x: x * (jnp.arange(len(x))[:, None] % 3 - 1),
    ],
    ids=["dropout", "mixup", "reversal", "noise by place"],
)
def test_rows_that_depend_on_their_place_are_refused(function):
    with pytest.raises(UserError, match="answers differently about the same input in another place of a batch"):
        far_away_limit(function, None, rays((8,), n=3)[0])


def test_a_function_of_the_users_that_is_named_like_ours_is_read():
    @jax.jit
    def overflow_guard(x):
        return jnp.clip(x, -3.0, 3.0)

    limit = far_away_limit(lambda x: overflow_guard(_linear(x)), None, rays((8,), n=5)[0])
    assert limit.dead.all()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: jnp.real(jnp.fft.fft(x) ** 2), False),
        (lambda x: jnp.real(jnp.exp(1j * x)), False),
        (lambda x: jnp.square(1j * x).real, False),
        (lambda x: jnp.real((1j * x) * (1j * x)), False),
        (lambda x: jnp.real(jnp.sqrt(x.astype(jnp.complex64)) ** 4), False),
        (lambda x: jnp.real(jnp.sum(jnp.exp(1j * x), axis=1, keepdims=True)), False),
        (lambda x: jnp.imag(jnp.exp(1j * x)), False),
        (lambda x: jnp.real(jnp.full_like(x, 1.0) * (1.0 - 2.0j) ** 2), False),
        (lambda x: jnp.abs(jnp.fft.fft(x)), True),
        (lambda x: jnp.square(jnp.imag(jnp.fft.fft(x))), True),
    ],
)
def test_complex_numbers_have_no_sign(function, expected):
    assert germs.nonnegative_outputs(function, jax.ShapeDtypeStruct((1, 4), "float32")) == [expected]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.astype(jnp.int32) ** 2).astype(jnp.float32),
        lambda x: jnp.clip(x, 0, 255).astype(jnp.uint8).astype(jnp.int8).astype(jnp.float32),
        lambda x: jnp.take(jax.nn.relu(x), jnp.array([7]), axis=1, mode="fill", fill_value=-5.0),
        lambda x: (jnp.abs(x) * 1e4).astype(jnp.int32).sum(axis=1).astype(jnp.float32),
    ],
    ids=["square", "narrower", "filled", "sum"],
)
def test_integers_wrap_around_and_fillings_may_be_negative(function):
    assert germs.nonnegative_outputs(function, jax.ShapeDtypeStruct((1, 3), "float32")) == [False]
