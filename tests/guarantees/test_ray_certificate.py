"""Whole rays: never below a fine grid in float64, above it by no more than the grid can miss, and cases by hand."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logit, logsumexp

from preload_jax.errors import UserError
from preload_jax.guarantees import input_radius, ray_certificate
from preload_jax.guarantees.head_parameters import read_head
from preload_jax.guarantees.ray_inputs import ray_starts
from preload_jax.models import Classifier, LinearHead, SquareLogitHead, WithDistance, head_options
from tests.toy import enable_x64

SHAPE = (6, 6, 1)


@pytest.fixture(autouse=True)
def _pooling_mixes_types():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class Dense(nn.Module):
    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.relu(nn.Dense(24)(images.reshape(len(images), -1)))
        return nn.relu(nn.Dense(16)(x))


class Pooled(nn.Module):
    """Convolution, batch norm, leaky ReLU, max and mean pooling, a residual sum, absolute values."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.Conv(4, (3, 3))(images)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        x = nn.max_pool(nn.leaky_relu(x, 0.125), (2, 2), (2, 2))
        x = x + nn.Conv(4, (3, 3))(nn.relu(x))
        x = nn.avg_pool(x, (3, 3), (1, 1), padding="SAME").reshape(len(x), -1)
        return jnp.abs(nn.Dense(7)(x))


class Gelu(nn.Module):
    def __call__(self, images, *, train=False):
        return nn.gelu(images.reshape(len(images), -1))


def classifier(backbone, head, *, gain=8.0, seed=0):
    model = Classifier(backbone, head)
    variables = model.init(jax.random.key(seed), jnp.zeros((1, *SHAPE)))
    # Biases are 0 at first, and then a ray from 0 is one piece.
    keys = iter(jax.random.split(jax.random.key(1), 100))
    params = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(next(keys), x.shape), variables["params"])
    params["head"]["linear"]["kernel"] *= gain
    return model, {**variables, "params": params}


def directions(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, *SHAPE))


def log_odds(model, variables, u, u0, t):
    """max_c log P(c) − log(1 − P(c)) along one ray, in float64 to the end."""
    head = read_head(variables["params"]["head"], **head_options(model.head))
    backbone = model.backbone.backbone if isinstance(model.backbone, WithDistance) else model.backbone
    own = {name: tree["backbone"] for name, tree in variables.items() if "backbone" in tree}
    with enable_x64(True):
        own = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float64)), own)
        x = u0 + t.reshape(-1, 1, 1, 1) * u / np.linalg.norm(u)
        g = np.asarray(jax.jit(lambda x: backbone.apply(own, x, train=False))(jnp.asarray(x)))
    assert g.dtype == np.float64
    z = g @ head.weights.T + head.bias
    if head.square_weights is not None:
        ood = g**head.exponent @ head.square_weights + head.ood_bias
        if isinstance(model.backbone, WithDistance):
            away = np.linalg.norm((x - np.asarray(model.backbone.center.values)).reshape(len(x), -1), axis=1)
            relative = model.backbone.weight * away / model.backbone.scale
            ood += head.distance_weight * relative**head.exponent
        z = np.concatenate([z, ood[:, None]], axis=1)
    k = len(head.bias)
    return np.max([z[:, c] - logsumexp(np.delete(z, c, axis=1), axis=1) for c in range(k)], axis=0)


def test_a_linear_head_does_not_see_the_distance():
    model, variables = classifier(Dense(), LinearHead(3))
    seen = Classifier(WithDistance(Dense(), center=CENTER, scale=2.0), LinearHead(3))
    found, alone = (ray_certificate(network, variables, directions(4)) for network in (seen, model))
    np.testing.assert_array_equal(found.largest_log_odds, alone.largest_log_odds)


CENTER = np.full(SHAPE, 0.4, np.float32)
CASES = {
    "mlp": (Dense(), SquareLogitHead(3)),
    "exponent 4": (Dense(), SquareLogitHead(3, exponent=4)),
    "pooled": (Pooled(), SquareLogitHead(3)),
    "distance": (WithDistance(Dense(), center=CENTER, scale=2.0), SquareLogitHead(3, min_weight=0.01)),
    "distance, exponent 4": (
        WithDistance(Pooled(), center=CENTER, scale=2.0, weight=0.5),
        SquareLogitHead(3, min_weight=0.01, exponent=4),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("starts", [False, True])
def test_it_is_never_below_a_fine_grid_and_hardly_above(name, starts):
    model, variables = classifier(*CASES[name])
    u = directions(4)
    u0 = np.random.default_rng(1).random((4, *SHAPE)) if starts else np.zeros((4, *SHAPE))
    found = ray_certificate(model, variables, u, starts=u0, confidence=0.6, batch_size=3)
    assert (found.num_pieces > 5).all()
    for i in range(4):
        t = np.linspace(0.0, 2.0 * max(found.distance[i], found.last_crossing[i], 5.0), 100_001)
        grid = log_odds(model, variables, u[i], u0[i], t)
        slope = np.abs(np.diff(grid)).max()
        assert -1e-9 <= found.largest_log_odds[i] - grid.max() <= slope
        assert (
            abs(log_odds(model, variables, u[i], u0[i], found.distance[i : i + 1])[0] - found.largest_log_odds[i])
            < 1e-8
        )
        above = np.flatnonzero(grid > logit(0.6))
        last = t[above[-1]] if len(above) else 0.0
        assert -1e-9 <= found.last_crossing[i] - last <= t[1] * (1 + 1e-9)


def by_hand(kernel, bias, raw_weights=None):
    head = {"linear": {"kernel": np.array(kernel, float), "bias": np.array(bias, float)}}
    if raw_weights is not None:
        head["ood"] = {"raw_weights": np.array(raw_weights, float), "bias": np.zeros(())}
    return {"params": {"head": head}}


class Hinge(nn.Module):
    """relu(x₁ − 1): nothing until t = 1."""

    def __call__(self, images, *, train=False):
        return nn.relu(images.reshape(len(images), -1)[:, :1] - 1.0)


def test_a_parabola_by_hand():
    # z_1 − z_o = 6 g − g²: at most 9, at g = 3; 0 again at g = 6; g = t − 1.
    model = Classifier(Hinge(), SquareLogitHead(1))
    found = ray_certificate(model, by_hand([[6.0]], [0.0], [0.0]), np.ones((1, 1, 1, 1)))
    assert found.num_pieces.tolist() == [2]
    np.testing.assert_allclose(
        [found.largest_log_odds, found.distance, found.last_crossing], [[9.0], [4.0], [7.0]], rtol=1e-9
    )


def test_a_ray_that_no_unit_answers_to_has_no_last_crossing():
    model = Classifier(Hinge(), SquareLogitHead(1))
    variables = by_hand([[6.0]], [1.0], [0.0])
    found = ray_certificate(model, variables, -np.ones((1, 1, 1, 1)))
    assert (found.largest_log_odds[0], found.last_crossing[0], found.num_pieces[0]) == (1.0, np.inf, 1)
    found = ray_certificate(model, variables, -np.ones((1, 1, 1, 1)), confidence=0.9)
    assert (found.largest_log_odds[0], found.last_crossing[0]) == (1.0, 0.0)


def test_a_linear_head_becomes_certain():
    model, variables = classifier(Dense(), LinearHead(3))
    found = ray_certificate(model, variables, directions(3))
    assert np.isposinf([found.largest_log_odds, found.distance, found.last_crossing]).all()
    assert (found.largest_confidence == 1).all()
    dead = ray_certificate(
        Classifier(Hinge(), LinearHead(2)), by_hand([[1.0, 0.0]], [0.0, 2.0]), -np.ones((1, 1, 1, 1))
    )
    np.testing.assert_allclose(dead.largest_log_odds, [2.0])


def test_the_last_crossing_lies_within_the_radius_in_input_space():
    model, variables = classifier(*CASES["distance"])
    radius = input_radius(model, variables, 0.5).radius
    u0 = np.broadcast_to(CENTER, (20, *SHAPE))
    found = ray_certificate(model, variables, directions(20), starts=u0)
    assert (found.last_crossing <= radius).all()


def test_rays_do_not_depend_on_the_batch():
    model, variables = classifier(*CASES["pooled"])
    whole = ray_certificate(model, variables, directions(5))
    parts = ray_certificate(model, variables, directions(5), batch_size=2)
    np.testing.assert_array_equal(whole.num_pieces, parts.num_pieces)
    np.testing.assert_allclose(whole.largest_log_odds, parts.largest_log_odds, rtol=1e-9)
    np.testing.assert_allclose(whole.last_crossing, parts.last_crossing, rtol=1e-9)


def test_progress_counts_rays_and_pieces_over_all_batches():
    model, variables = classifier(*CASES["pooled"])
    said = []
    found = ray_certificate(
        model, variables, directions(5), batch_size=2, progress=lambda ended, crossed: said.append((ended, crossed))
    )
    assert said[-1] == (5, found.num_pieces.sum())
    assert said == sorted(said)
    assert len(said) >= 3


def test_what_it_does_not_cover_is_refused():
    model, variables = classifier(Dense(), SquareLogitHead(3))
    with pytest.raises(UserError, match="confidence must lie between 0 and 1"):
        ray_certificate(model, variables, directions(1), confidence=1.0)
    with pytest.raises(UserError, match="cross more than 2 pieces"):
        ray_certificate(model, variables, directions(1), max_pieces=2)
    with pytest.raises(UserError, match="direction 0 is 0"):
        ray_certificate(model, variables, np.zeros((1, *SHAPE)))
    with pytest.raises(UserError, match="not piecewise affine along 2 of 2 rays"):
        ray_certificate(*classifier(Gelu(), SquareLogitHead(3)), directions(2))
    with pytest.raises(UserError, match="expected a Classifier with a LinearHead or a SquareLogitHead, got Dense"):
        ray_certificate(Classifier(Dense(), nn.Dense(3)), {}, directions(2))


class Scaled(nn.Module):
    """One unit with weights of 3e7 beside one with weights of 3e-8, and the other way round after them."""

    def __call__(self, images, *, train=False):
        x = images.reshape(len(images), -1)
        first = nn.relu(x @ jnp.asarray([[3e7, 1 / 3e7], [0.0, 0.0]]) + jnp.asarray([0.0, -1.0]))
        return nn.relu(first @ jnp.asarray([[1 / 3e7, 0.0], [0.0, 3e7]]))


def test_a_neighbour_with_large_weights_hides_no_crossing():
    # The second unit begins at t = 3e7, with slope 1: z_1 − z_2 = 20 (t − 3e7) − 3 − … there.
    variables = by_hand([[0.0, 0.0], [20.0, 0.0]], [-3.0, 0.0], [-40.0, -2.0])
    found = ray_certificate(Classifier(Scaled(), SquareLogitHead(2)), variables, np.array([[[[1.0, 0.0]]]]))
    assert found.num_pieces.tolist() == [2]
    np.testing.assert_allclose(found.largest_log_odds, [20**2 / (4 * np.exp(-2.0)) - 3.0], rtol=1e-4)
    assert found.distance[0] == pytest.approx(3e7 + 10 * np.exp(2.0), rel=1e-7)


class BothSides(nn.Module):
    """relu(x) and relu(−x): two long pieces."""

    def __call__(self, images, *, train=False):
        x = images.reshape(len(images), -1)
        return jnp.concatenate([nn.relu(x), nn.relu(-x)], axis=1)


@pytest.mark.parametrize("exponent", [2, 6, 16])
def test_long_pieces_lose_no_digits(exponent):
    rng = np.random.default_rng(0)
    variables = by_hand(3 * rng.normal(size=(4, 3)), rng.normal(size=3), -np.ones(4))
    model = Classifier(BothSides(), SquareLogitHead(3, exponent=exponent))
    u = np.array([[[[0.6, 0.8]]]])
    near = ray_certificate(model, variables, u, starts=-3.0 * u)
    far = ray_certificate(model, variables, u, starts=-1000.0 * u)
    np.testing.assert_allclose(far.largest_log_odds, near.largest_log_odds, rtol=1e-9)
    np.testing.assert_allclose(far.last_crossing, near.last_crossing + 997.0, rtol=1e-9)


def test_tied_classes_do_not_become_certain():
    class Doubled(nn.Module):
        def __call__(self, images, *, train=False):
            x = nn.relu(images.reshape(len(images), -1) @ np.float32(np.random.default_rng(0).normal(size=(36, 8))))
            return jnp.concatenate([x, x], axis=1)

    w = np.random.default_rng(1).normal(size=16)
    variables = by_hand(np.stack([w, np.roll(w, 8)], axis=1), [0.0, 0.5])
    found = ray_certificate(Classifier(Doubled(), LinearHead(2)), variables, directions(3))
    np.testing.assert_allclose(found.largest_log_odds, 0.5, atol=1e-9)
    assert found.winner.tolist() == [1, 1, 1]


def test_starts_and_variables_that_do_not_fit_are_refused():
    model, variables = classifier(*CASES["mlp"])
    with pytest.raises(UserError, match="starts hold NaN or infinity in 1 of 2"):
        ray_certificate(model, variables, directions(2), starts=np.stack([np.zeros(SHAPE), np.full(SHAPE, np.inf)]))
    with pytest.raises(UserError, match=r"starts have shape \[1, 6, 6, 1\], directions \[2, 6, 6, 1\]"):
        ray_starts(np.zeros((1, *SHAPE)), directions(2))
    with pytest.raises(UserError, match="give at least one"):
        ray_certificate(model, variables, np.zeros((0, *SHAPE)))
    with pytest.raises(UserError, match="batch_size must be at least 1"):
        ray_certificate(model, variables, directions(2), batch_size=0)
    _, with_distance = classifier(*CASES["distance"])
    with pytest.raises(UserError, match="the variables are of another network: batch_stats/backbone/distance_center"):
        ray_certificate(model, with_distance, directions(2))


class Gated(nn.Module):
    gate: str = "sigmoid"

    def __call__(self, images, *, train=False):
        h = images.reshape(len(images), -1)
        first = h[:, :1]
        on = {
            "sigmoid": lambda: nn.sigmoid(first - 20) > 0.5,
            "square": lambda: (first * first > 3) & (first * first < 9),
            "norm": lambda: jnp.linalg.norm(h, axis=1, keepdims=True) > 2,
            "tanh": lambda: jnp.sign(jnp.tanh(first) - 0.5) > 0,
        }[self.gate]()
        return jnp.where(on, nn.relu(h), 0.0)


@pytest.mark.parametrize("gate", ["sigmoid", "square", "norm", "tanh"])
def test_curved_gates_before_affine_outputs_are_refused(gate):
    model, variables = classifier(Gated(gate), SquareLogitHead(3))
    with pytest.raises(UserError, match="not piecewise affine"):
        ray_certificate(model, variables, np.random.default_rng(0).normal(size=(3, *SHAPE)))


class Flat(nn.Module):
    def __call__(self, images, *, train=False):
        return nn.relu(images)


@pytest.mark.parametrize(
    ("kernel", "direction"),
    [
        ([[0, 0, -1e3], [1e-9, 0, 0]], [1.0, 1.0]),
        ([[1, 1], [1, -1]], [1.0, 3e-12]),
        ([[1e-28, 0], [0, 0]], [1.0, 1.0]),
    ],
    ids=["another class is large", "nearly an axis", "small weights"],
)
def test_small_slopes_of_linear_heads_end_in_certainty(kernel, direction):
    linear = {"kernel": np.float32(kernel), "bias": np.zeros(len(kernel[0]), np.float32)}
    variables = {"params": {"backbone": {}, "head": {"linear": linear}}}
    model = Classifier(Flat(), LinearHead(len(kernel[0])))
    assert ray_certificate(model, variables, np.array([direction])).largest_log_odds[0] == np.inf


def test_a_unit_that_wakes_up_far_away_counts():
    class Late(nn.Module):
        @nn.compact
        def __call__(self, images, *, train=False):
            return nn.relu(nn.Dense(2, name="a")(images))

    layer = {"kernel": np.float32([[1, 1], [-1, 0], [5e-15, 0]]), "bias": np.float32([-1e-4, 0])}
    linear = {"kernel": np.float32([[1e6, 0], [0, 0]]), "bias": np.float32([-5, 5])}
    variables = {"params": {"backbone": {"a": layer}, "head": {"linear": linear}}}
    found = ray_certificate(Classifier(Late(), LinearHead(2)), variables, np.array([[1.0, 1.0, 1.0]]))
    assert found.largest_log_odds[0] >= 28_757
