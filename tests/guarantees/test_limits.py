"""Limits along rays: the recession network against float64 far away, theorems 1 and 2, dead directions and ties."""

import functools
from functools import partial

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from preload_jax.errors import UserError
from preload_jax.guarantees import confidence_profile, far_away_limit, ray_certificate, ray_constants, ray_slopes
from preload_jax.models import MLP, Classifier, LinearHead, SquareLogitHead
from tests.random_networks import HEADS, NUM_CLASSES, SMALL, backbone_variables, random_classifier
from tests.toy import enable_x64

FAR = 1e8


@pytest.fixture(autouse=True)
def _networks_of_users_mix_types():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def random_directions(shape, *, n=40, seed=0):
    # One n in most tests, so that a network is compiled once.
    directions = np.random.default_rng(seed).normal(size=(n, *shape))
    return directions.astype(np.float32)


@functools.cache
def float64_affine_piece(backbone, n):
    """(s, a) from two float64 evaluations far away: G(u₀ + t·u) = t·s + a; of the network and rays used below."""
    model, variables, shape = random_classifier(backbone, "linear")
    directions, starts = random_directions(shape, n=n), random_directions(shape, n=n, seed=1)
    with enable_x64(True):
        wide_backbone = model.backbone.clone(dtype=jnp.float64)
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), backbone_variables(variables))
        u, u0 = (jnp.asarray(array, jnp.float64) for array in (directions, starts))
        at = [np.asarray(jax.jit(partial(wide_backbone.apply, train=False))(wide, u0 + t * u)) for t in (FAR, 2 * FAR)]
    assert at[0].dtype == np.float64
    return (at[1] - at[0]) / FAR, 2 * at[0] - at[1]


class AffinePiece(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters(*SMALL)
    def test_equals_float64_evaluation_far_away(self, backbone):
        model, variables, shape = random_classifier(backbone, "linear")
        u, u0 = random_directions(shape, n=8), random_directions(shape, n=8, seed=1)
        slopes, constants = float64_affine_piece(backbone, 8)
        inner = backbone_variables(variables)
        s = self.variant(partial(ray_slopes, model.backbone))(inner, jnp.asarray(u))
        a = self.variant(lambda v, u, u0: ray_constants(model.backbone, v, u, starts=u0))(
            inner, jnp.asarray(u), jnp.asarray(u0)
        )
        np.testing.assert_allclose(s, slopes, atol=3e-6 * np.abs(slopes).max())
        np.testing.assert_allclose(a, constants, atol=3e-6 * np.abs(constants).max())

    def test_a_unit_of_slope_0_is_active_by_the_sign_of_its_constant(self):
        # First layer dead along -u; the second layer's constants are relu(b₂) = (3, 0).
        backbone = MLP(widths=(1, 2))
        params = {
            "dense1": {"kernel": jnp.ones((1, 1)), "bias": jnp.ones(1)},
            "dense2": {"kernel": jnp.ones((1, 2)), "bias": jnp.array([3.0, -3.0])},
        }
        u = jnp.array([[-1.0]])
        np.testing.assert_array_equal(ray_slopes(backbone, {"params": params}, u), [[0.0, 0.0]])
        np.testing.assert_allclose(ray_constants(backbone, {"params": params}, u), [[3.0, 0.0]], rtol=1e-6)

    def test_a_bfloat16_backbone_is_analysed_in_float32(self):
        model, variables, shape = random_classifier("lenet", "linear")
        half = model.backbone.clone(dtype=jnp.bfloat16)
        u, inner = jnp.asarray(random_directions(shape)), backbone_variables(variables)
        np.testing.assert_array_equal(ray_slopes(half, inner, u), ray_slopes(model.backbone, inner, u))


@pytest.mark.parametrize("backbone", SMALL)
@given(seed=st.integers(0, 10_000), exponent=st.sampled_from([2, 4, 6]))
@settings(max_examples=5, deadline=None)
def test_theorems_1_and_2_hold_for_random_networks(backbone, seed, exponent):
    model, variables, shape = random_classifier(backbone, "square_logit", seed=seed)
    model = model.clone(head=SquareLogitHead(NUM_CLASSES, exponent=exponent))
    limit = far_away_limit(model, variables, random_directions(shape, seed=seed))
    assert (limit.probabilities[:, :NUM_CLASSES] < 1).all()
    assert (limit.winner[~limit.dead] == NUM_CLASSES).all()
    assert (limit.probabilities[~limit.dead, NUM_CLASSES] == 1).all()
    np.testing.assert_allclose(limit.probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("backbone", SMALL)
@pytest.mark.parametrize("head", ["linear", "none_class"])
def test_linear_heads_become_certain_almost_everywhere(backbone, head):
    model, variables, shape = random_classifier(backbone, head)
    limit = far_away_limit(model, variables, random_directions(shape, n=600), batch_size=40)
    # Some class tends to 1; with the none-class head it may be the extra one, a linear logit like the others.
    assert np.mean(limit.winner >= 0) > 0.99
    if head == "linear":
        assert (limit.winner < NUM_CLASSES).all()
    assert (limit.probabilities[limit.winner >= 0].max(axis=1) == 1).all()


@pytest.mark.parametrize("backbone", SMALL)
@pytest.mark.parametrize("head", HEADS)
def test_the_limit_is_where_the_confidence_goes(backbone, head):
    model, variables, shape = random_classifier(backbone, head, seed=1)
    u, u0 = random_directions(shape), random_directions(shape, seed=1)
    for starts in (None, u0):
        limit = far_away_limit(model, variables, u, starts=starts)
        profile = confidence_profile(
            model, variables, u, num_classes=NUM_CLASSES, starts=starts, distances=np.array([1e12])
        )
        np.testing.assert_allclose(
            profile.confidence[0], limit.probabilities[:, :NUM_CLASSES].max(axis=1), atol=1e-5, rtol=0
        )
        np.testing.assert_allclose(
            profile.ood_probability[0], limit.probabilities[:, NUM_CLASSES:].sum(axis=1), atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("head", HEADS)
def test_a_dead_direction_ends_at_the_softmax_of_the_constant(head):
    model, variables, shape = random_classifier("mlp", head, seed=3)
    variables["params"]["backbone"]["dense1"]["kernel"] = jnp.abs(variables["params"]["backbone"]["dense1"]["kernel"])
    u = np.concatenate([-np.ones((1, *shape), np.float32), np.ones((1, *shape), np.float32)])
    limit = far_away_limit(model, variables, u)
    assert limit.dead.tolist() == [True, False]
    assert limit.slope_norm[0] == 0
    assert limit.winner[0] == -1
    far = np.asarray(model.apply(variables, jnp.asarray(1e6 * u[:1])), np.float64)
    np.testing.assert_allclose(limit.probabilities[:1], softmax(far, axis=1), rtol=1e-5)


def two_unit_classifier(kernel, head_bias, layer_bias):
    """G(x) = relu(x + layer_bias) in two dimensions and a linear head."""
    model = Classifier(MLP(widths=(2,)), LinearHead(len(head_bias)))
    params = {
        "backbone": {"dense1": {"kernel": jnp.eye(2), "bias": jnp.asarray(layer_bias, jnp.float32)}},
        "head": {"linear": {"kernel": jnp.asarray(kernel, jnp.float32), "bias": jnp.asarray(head_bias, jnp.float32)}},
    }
    return model, {"params": params}


def test_tied_classes_share_the_limit_by_their_biases():
    log3 = np.log(3.0)
    model, variables = two_unit_classifier([[1.0, 1.0, 0.5], [1.0, 1.0, 0.5]], [log3, 0.0, 9.0], [0.0, 0.0])
    limit = far_away_limit(model, variables, np.array([[1.0, 2.0], [-1.0, -2.0]]))
    np.testing.assert_allclose(limit.probabilities[0], [0.75, 0.25, 0.0], rtol=1e-6)
    # Dead: all three classes at the biases.
    np.testing.assert_allclose(limit.probabilities[1], softmax([log3, 0.0, 9.0]), rtol=1e-6)
    assert limit.winner.tolist() == [-1, -1]


def test_tied_classes_share_the_limit_by_their_constants():
    # s = (1, 1)/√2 ties the classes w = (1, 0) and (0, 1); a = (log 3, 0), and the start moves it by u₀.
    log3 = np.log(3.0)
    model, variables = two_unit_classifier([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], [log3, 0.0])
    u = np.array([[1.0, 1.0]])
    np.testing.assert_allclose(far_away_limit(model, variables, u).probabilities, [[0.75, 0.25]], rtol=1e-6)
    moved = far_away_limit(model, variables, u, starts=np.array([[0.0, log3]]))
    np.testing.assert_allclose(moved.probabilities, [[0.5, 0.5]], rtol=1e-6)
    # The second ray's start is not the first's.
    both = far_away_limit(model, variables, np.array([[2.0, 1.0], [1.0, 1.0]]), starts=np.array([[9.0, 0], [0, log3]]))
    np.testing.assert_allclose(both.probabilities, [[1.0, 0.0], [0.5, 0.5]], rtol=1e-6)
    untied = far_away_limit(model, variables, np.array([[1.0, 1.001]]))
    np.testing.assert_array_equal(untied.probabilities, [[0.0, 1.0]])


def test_classes_that_rounding_may_have_put_apart_are_neither_tied_nor_apart():
    # The same weights in another order.
    weights = np.random.default_rng(0).lognormal(sigma=8.0, size=200).astype(np.float32)
    model = Classifier(MLP(widths=(200,)), LinearHead(2))
    layer = {"kernel": jnp.eye(200), "bias": jnp.zeros(200)}
    linear = {"kernel": jnp.stack([weights, weights[::-1]], axis=1), "bias": jnp.array([np.log(3.0), 0.0])}
    variables = {"params": {"backbone": {"dense1": layer}, "head": {"linear": linear}}}
    limit = far_away_limit(model, variables, np.ones((1, 200)))
    assert limit.undecided.tolist() == [True]
    # In the same order they are equal, and the constants decide.
    linear["kernel"] = jnp.stack([weights, weights], axis=1)
    limit = far_away_limit(model, variables, np.ones((1, 200)))
    np.testing.assert_allclose(limit.probabilities, [[0.75, 0.25]], rtol=1e-6)


def test_directions_of_any_finite_length_are_directions():
    model, variables = two_unit_classifier(np.eye(2), [0.0, 9.0], [0.0, 0.0])
    expected = far_away_limit(model, variables, np.array([[4.0, 3.0]])).probabilities
    for length in (1e-300, 1e-160, 1e160, 1e300):
        found = far_away_limit(model, variables, length * np.array([[4.0, 3.0]]))
        np.testing.assert_array_equal(found.probabilities, expected)


def test_settings_that_have_no_limit_are_refused_at_once():
    model, variables = random_classifier("mlp", "square_logit", exponent=18)[:2]
    directions = np.ones((1, *random_classifier("mlp", "square_logit")[2]))
    with pytest.raises(UserError, match="the exponent is 18; limits are known of exponents up to 16"):
        far_away_limit(model, variables, directions)
    model, variables, _ = random_classifier("mlp", "linear")
    with pytest.raises(UserError, match="batch_size must be at least 1, got 0"):
        far_away_limit(model, variables, directions, batch_size=0)
    with pytest.raises(UserError, match=r"images of shape \[n, 9\] do not fit the network"):
        far_away_limit(model, variables, np.ones((2, 9)))


def test_a_slope_next_to_0_is_not_0():
    model, variables = two_unit_classifier(np.eye(2), [0.0, 9.0], [0.0, 0.0])
    variables["params"]["backbone"]["dense1"]["kernel"] = 1e-20 * jnp.eye(2)
    limit = far_away_limit(model, variables, np.array([[4.0, 3.0]]))
    assert (limit.dead.tolist(), limit.winner.tolist()) == ([False], [0])
    np.testing.assert_allclose(limit.slope_norm, 1e-20, rtol=1e-6)


def test_the_length_and_the_number_of_directions_do_not_matter():
    model, variables, shape = random_classifier("lenet", "none_class")
    u = random_directions(shape, n=11)
    whole = far_away_limit(model, variables, u)
    scaled = far_away_limit(model, variables, u.astype(np.float64) * 1e-30, batch_size=4)
    np.testing.assert_array_equal(whole.winner, scaled.winner)
    np.testing.assert_allclose(whole.slope_norm, scaled.slope_norm, rtol=1e-5)


class Smooth(nn.Module):
    """Bounded embeddings: no slope tells the limit."""

    @nn.compact
    def __call__(self, x, *, train=False):
        return nn.sigmoid(nn.Dense(4)(x))


class Shifted(nn.Module):
    """An offset under a name of its own."""

    offset: float

    @nn.compact
    def __call__(self, x, *, train=False):
        return nn.relu(nn.Dense(4)(x) + self.param("shift", nn.initializers.constant(self.offset), (1, 4)))


class InTrainingMode(nn.Module):
    """Batch norm that uses the batch's own statistics whatever it is told."""

    @nn.compact
    def __call__(self, x, *, train=False):
        x = nn.Dense(4)(x)
        return nn.relu(x - x.mean(axis=0, keepdims=True))


@pytest.mark.parametrize("backbone", [Smooth(), Shifted(1.0), Shifted(1e-4)])
@pytest.mark.parametrize("head", [LinearHead(2), SquareLogitHead(2)])
def test_backbones_of_other_activations_and_names_end_where_they_do(backbone, head):
    model = Classifier(backbone, head)
    variables = model.init(jax.random.key(0), jnp.ones((1, 3)))
    u, u0 = random_directions((3,), n=20), random_directions((3,), n=20, seed=1)
    limit = far_away_limit(model, variables, u, starts=u0)
    far = np.asarray(model.apply(variables, jnp.asarray(u0 + 1e7 * u)), np.float64)
    np.testing.assert_allclose(limit.probabilities, softmax(far, axis=1), atol=1e-5)
    assert not limit.undecided.any()
    # Theorem 2 needs embeddings that grow.
    assert limit.dead.all() if isinstance(backbone, Smooth) else not limit.dead.all()
    assert (limit.winner[limit.dead] == -1).all()


def test_a_network_in_training_mode_is_refused():
    model = Classifier(InTrainingMode(), LinearHead(2))
    variables = model.init(jax.random.key(0), jnp.ones((2, 3)))
    with pytest.raises(UserError, match=r"'reduce_sum' at .*test_limits\.py:\d+.* joins rows of a batch"):
        far_away_limit(model, variables, np.eye(3))


def test_wrong_directions_and_heads_are_refused():
    model, variables = two_unit_classifier(np.eye(2), [0.0, 0.0], [0.0, 0.0])
    with pytest.raises(UserError, match="direction 1 is 0"):
        far_away_limit(model, variables, np.array([[1.0, 0.0], [0.0, 0.0]]))
    with pytest.raises(UserError, match="NaN or infinity in 1 of 2 examples, first in example 1"):
        far_away_limit(model, variables, np.array([[1.0, 0.0], [np.nan, 0.0]]))
    with pytest.raises(UserError, match="expected a LinearHead or a SquareLogitHead, got Dense"):
        far_away_limit(Classifier(MLP(widths=(2,)), nn.Dense(2)), variables, np.eye(2))


def test_profiles_tell_a_confidence_next_to_1_from_1():
    model, variables = two_unit_classifier([[20.0, 0.0], [0.0, 0.0]], [0.0, 0.0], [0.0, 0.0])
    profile = confidence_profile(model, variables, np.array([[1.0, 0.0]]), num_classes=2, distances=np.ones(1))
    np.testing.assert_allclose(1 - profile.confidence, np.exp(-20), rtol=1e-6)


def test_profiles_start_and_end_where_they_should():
    model, variables, shape = random_classifier("mlp", "square_logit")
    u = random_directions(shape, n=5)
    profile = confidence_profile(model, variables, u, num_classes=NUM_CLASSES)
    assert (profile.distances[0], profile.distances[-1], len(profile.distances)) == (1.0, 1e30, 61)
    assert profile.confidence.shape == profile.ood_probability.shape == (61, 5)
    unit = u / np.linalg.norm(u.reshape(5, -1), axis=1)[:, None, None, None]
    at_1 = softmax(np.asarray(model.apply(variables, jnp.asarray(unit)), np.float64), axis=1)
    np.testing.assert_allclose(profile.confidence[0], at_1[:, :-1].max(axis=1), rtol=1e-5)
    np.testing.assert_array_equal(profile.ood_probability[-1], 1.0)
    for num_classes in (2, 7):
        with pytest.raises(UserError, match=f"4 logits; expected num_classes = {num_classes}"):
            confidence_profile(model, variables, u, num_classes=num_classes, distances=np.ones(1))
    with pytest.raises(UserError, match="the rays at t = 1e\\+39 hold NaN or infinity"):
        confidence_profile(model, variables, u, num_classes=3, distances=np.array([1e39]))


def rays_of_bytes():
    """A network, directions, starts in uint8 and the same as fractions."""
    model, variables, shape = random_classifier("mlp", "square_logit")
    starts = np.random.default_rng(3).integers(0, 256, (4, *shape), np.uint8)
    return model, variables, random_directions(shape, n=4), starts, starts.astype(np.float32) / 255


def functions_of_starts(model, variables, u):
    return {
        "limit": lambda starts: far_away_limit(model, variables, u, starts=starts).log_odds,
        "constants": lambda starts: ray_constants(model.backbone, backbone_variables(variables), u, starts=starts),
        "profile": lambda starts: (
            confidence_profile(
                model, variables, u, num_classes=NUM_CLASSES, starts=starts, distances=[0.5, 2.0]
            ).confidence
        ),
        "certificate": lambda starts: ray_certificate(model, variables, u, starts=starts).largest_log_odds,
    }


@pytest.mark.parametrize("of", ["limit", "constants", "profile", "certificate"])
@pytest.mark.usefixtures("unannotated")
def test_starts_are_read_as_predict_reads_images(of):
    model, variables, u, starts, fractions = rays_of_bytes()
    function = functions_of_starts(model, variables, u)[of]
    expected = np.asarray(function(fractions))
    for each in (starts, jnp.asarray(starts), list(starts), fractions.tolist()):
        np.testing.assert_array_equal(function(each), expected)
    masked = np.ma.array(fractions, mask=fractions > 0.5)
    for wrong, message in (
        (1e39 * (1.0 + fractions.astype(np.float64)), "starts, as float32, hold NaN or infinity in 4 of 4"),
        (np.full_like(fractions, np.nan), "starts hold NaN or infinity in 4 of 4"),
        (starts.astype(np.int64), "starts of type int64; expected uint8"),
        (fractions > 0.5, "starts of type bool; expected uint8"),
        (masked, "a masked array was given"),
        (fractions[0], r"starts have shape \[6, 6, 1\], directions \[4, 6, 6, 1\]; give one a direction"),
    ):
        with pytest.raises(UserError, match=message):
            function(wrong)


def test_starts_may_be_traced():
    model, variables, u, starts, fractions = rays_of_bytes()
    constants = jax.jit(lambda given: ray_constants(model.backbone, backbone_variables(variables), u, starts=given))
    np.testing.assert_allclose(constants(jnp.asarray(starts)), constants(jnp.asarray(fractions)), atol=1e-5)


def test_a_function_s_starts_are_images_too():
    def function(x):
        rows = x.reshape(len(x), -1)
        return jnp.stack([rows[:, 0], -rows[:, 0]], axis=1)

    along = np.array([[0.0, 1.0]], np.float32)
    starts = np.array([[255, 7]], np.uint8)
    found = far_away_limit(function, None, along, starts=starts)
    np.testing.assert_allclose(found.log_odds[0, 0], 2.0, rtol=1e-6)


@pytest.mark.usefixtures("unannotated")
def test_of_directions_only_where_they_point_counts():
    model, variables, u, starts, fractions = rays_of_bytes()
    inner = backbone_variables(variables)
    expected = far_away_limit(model, variables, fractions).slope_norm
    for each in (starts, starts.astype(np.int64), starts.tolist(), fractions.astype(np.float64) * 1e300):
        np.testing.assert_allclose(far_away_limit(model, variables, each).slope_norm, expected, rtol=1e-5)
    slopes = ray_slopes(model.backbone, inner, fractions)
    np.testing.assert_allclose(ray_slopes(model.backbone, inner, starts), 255 * slopes, rtol=1e-5, atol=1e-4)
    masked = np.ma.array(u, mask=u > 0.5)
    for wrong, message in (
        (None, "directions are of type object; expected real numbers"),
        (u > 0.5, "directions are of type bool; expected real numbers"),
        (1j * u, "directions are of type complex64; expected real numbers"),
        (masked, "a masked array was given"),
        (u[:0], r"directions have shape \[0, 6, 6, 1\]; give at least one"),
        (u[0, 0, 0], r"directions have shape \[1\]; give at least one"),
        # An input's shape is none, and so the words say how to draw some.
        ((6, 6, 1), r"directions have shape \[3\].*random ones are numpy.random.default_rng\(0\).normal"),
        (np.zeros_like(u), "direction 0 is 0"),
        (np.full_like(u, np.nan), "directions hold NaN or infinity in 4 of 4"),
        ([[1.0], [1.0, 2.0]], "directions are no array"),
    ):
        for function in (
            lambda given: far_away_limit(model, variables, given),
            lambda given: ray_slopes(model.backbone, inner, given),
            lambda given: ray_constants(model.backbone, inner, given),
        ):
            with pytest.raises(UserError, match=message):
                function(wrong)
    with pytest.raises(UserError, match="directions, as float32, hold NaN or infinity in 4 of 4"):
        ray_slopes(model.backbone, inner, 1e39 * np.ones_like(u, np.float64))


@pytest.mark.parametrize("wrong", [[], [np.nan], "ab", [[1.0]], 3.0, np.ma.array([1.0, 2.0], mask=[0, 1])], ids=str)
@pytest.mark.usefixtures("unannotated")
def test_distances_of_a_profile_are_numbers(wrong):
    model, variables, u, _, _ = rays_of_bytes()
    with pytest.raises(UserError, match=r"distances (are|hold)|masked array"):
        confidence_profile(model, variables, u, num_classes=NUM_CLASSES, distances=wrong)
