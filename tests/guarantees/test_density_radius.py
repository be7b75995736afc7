"""CCU's radius and balls: by hand, against the paper's bound and a fine grid, and attacked."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logsumexp

from preload_jax import attacks, guarantees
from preload_jax.errors import UserError
from preload_jax.guarantees.density_radius import read_densities
from preload_jax.models import CCUHead, Classifier, LinearHead
from preload_jax.models.classifier import OnePixel


def network(size, components, *, classes=3, seed=0, certain=True):
    """Random mixtures, and a network that is nearly certain everywhere: the worst there is."""
    rng = np.random.default_rng(seed)
    model = Classifier(OnePixel(), CCUHead(classes, components))
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 1, 1, size)))
    variables = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), shapes)
    head, stats = variables["params"]["head"], variables["batch_stats"]["head"]
    head["linear"]["bias"] = np.eye(classes, dtype=np.float32)[0] * (40.0 if certain else 0.0)
    for name, spread, low, high in (("in", 1.0, -1.0, 0.0), ("out", 4.0, 1.4, 3.0)):
        head["densities"][f"{name}_means"] = spread * rng.normal(size=(components, size)).astype(np.float32)
        head["densities"][f"{name}_log_variances"] = rng.uniform(low, high, components).astype(np.float32)
    stats["densities"]["whitening"] = np.diag(rng.uniform(0.5, 4.0, size)).astype(np.float32)
    stats["densities"]["center"] = rng.uniform(size=(1, 1, size)).astype(np.float32)
    return model, variables


def test_what_float32_makes_of_directions_of_very_different_lengths_is_allowed_for():
    """A mean along a direction that W makes a thousand times longer than those of the inputs: rounding is as large."""
    size, far, rng = 256, 30.0, np.random.default_rng(1)
    model = Classifier(OnePixel(), CCUHead(2, 1))
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 1, 1, size)))
    variables = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), shapes)
    head, stats = variables["params"]["head"], variables["batch_stats"]["head"]
    head["linear"]["bias"][:] = 200.0, 0.0
    head["densities"]["in_means"][0, 0] = 1.4 * far
    head["densities"]["in_log_variances"][:] = -4.0
    whitening = np.linalg.qr(rng.normal(size=(size, size)))[0] * np.repeat([999.0, 1.0], size // 2)
    stats["densities"]["whitening"] = whitening.astype(np.float32)
    stats["densities"]["center"][:] = 0.5
    stats["log_prior_odds"] = np.float32(-71762.0)
    white = np.zeros((2000, size))
    white[:, size // 2 :] = rng.normal(size=(2000, size // 2))
    white *= far / np.linalg.norm(white, axis=1, keepdims=True)
    images = (0.5 + white @ np.linalg.inv(whitening)).reshape(-1, 1, 1, size).astype(np.float32)
    confidences = np.exp(np.asarray(log_confidences(model, variables, images), np.float64))
    assert (confidences <= guarantees.density_ball(model, variables, images, 0.0)).all()


@partial(jax.jit, static_argnames="model")
def log_confidences(model, variables, images):
    return jax.nn.log_softmax(model.apply(variables, images), axis=1).max(axis=1)


def confidences(model, variables, rows):
    images = jnp.asarray(np.reshape(rows, (len(rows), 1, 1, -1)), jnp.float32)
    return np.exp(log_confidences(model, variables, images))


def directions(count, size, seed=0):
    u = np.random.default_rng(seed).normal(size=(count, size))
    return u / np.linalg.norm(u, axis=1, keepdims=True)


def test_the_radius_by_hand():
    model, variables = network(1, 1, classes=2)
    densities, stats = variables["params"]["head"]["densities"], variables["batch_stats"]["head"]
    densities.update(in_means=np.zeros((1, 1)), out_means=np.zeros((1, 1)))
    densities.update(in_log_variances=np.zeros(1), out_log_variances=np.full(1, np.float32(math.log(4))))
    stats["densities"]["whitening"][:] = 0.5
    # r = 2 exp(−3 t²/8) ≤ (p − 1/2)/(1 − p) = 1 for p = 0.75.
    found = guarantees.density_radius(model, variables, 0.75)
    np.testing.assert_allclose(found.in_metric, math.sqrt(8 * math.log(2) / 3), rtol=1e-4)
    np.testing.assert_allclose([found.radius, found.scale], [2 * found.in_metric, 2.0], rtol=2e-5)
    assert found.radius >= 2 * found.in_metric
    # p(o) / p(i) = 8 leaves less than that at any distance.
    stats["log_prior_odds"] = np.float32(math.log(8))
    assert guarantees.density_radius(model, variables, 0.75).in_metric < 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_of_one_gaussian_each_it_is_exact(seed):
    model, variables = network(2, 1, seed=seed)
    found, angles = guarantees.density_radius(model, variables, 0.6), np.linspace(0, 2 * np.pi, 721)
    circle = np.column_stack([np.cos(angles), np.sin(angles)]) @ np.linalg.inv(found.whitening)
    on, inside = (
        confidences(model, variables, found.center.ravel() + t * found.in_metric * circle) for t in (1.0, 0.995)
    )
    assert on.max() <= 0.6
    assert inside.max() > 0.6


@given(seed=st.integers(0, 10**6), size=st.sampled_from([1, 4]), p=st.sampled_from([0.4, 0.9]))
@settings(max_examples=8, deadline=None)
def test_nothing_beyond_the_radius_is_more_confident(seed, size, p):
    model, variables = network(size, 3, seed=seed)
    found = guarantees.density_radius(model, variables, p)
    assert found.share_beyond(found.center[None]) == float(found.in_metric == 0.0)
    u = np.concatenate([directions(200, size, seed), np.eye(size), -np.eye(size)])
    for factor in (1.0, 1.1, 3.0, 1e3, 1e20):
        assert confidences(model, variables, found.center.ravel() + factor * found.radius * u).max() <= p
        in_metric = found.in_metric * u @ np.linalg.inv(found.whitening)
        assert confidences(model, variables, found.center.ravel() + factor * in_metric).max() <= p


@partial(jax.jit, static_argnames="model")
def attacked(model, variables, images, epsilon):
    def score(x):
        return log_confidences(model, variables, x)

    return attacks.pgd(score, images, key=jax.random.key(0), epsilon=epsilon, steps=10)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=3, deadline=None)
def test_no_attack_in_a_ball_beats_the_bound(seed):
    size = 4
    model, variables = network(size, 3, seed=seed)
    x = np.random.default_rng(seed).uniform(0.0, 1.0, (20, 1, 1, size)).astype(np.float32)
    inverse = np.linalg.inv(variables["batch_stats"]["head"]["densities"]["whitening"])
    u = (directions(300, size, seed) @ inverse).reshape(300, 1, 1, size)
    for radius in (0.3, 2.0):
        bound = guarantees.density_ball(model, variables, x, radius)
        for share in (0.0, 0.5, 1.0):
            points = (x[:, None] + share * radius * u).reshape(-1, size)
            assert (confidences(model, variables, points).reshape(20, -1).max(axis=1) <= bound).all()
        # The L∞ ball within: ‖Wᵀv‖ ≤ 4 √D ‖v‖∞.
        worst = attacked(model, variables, x, radius / 4.0 / math.sqrt(size))
        assert (confidences(model, variables, worst) <= bound).all()


def papers_bound(densities, at, radius, classes):
    """Theorem 3.1: (1 + K b) / (K (1 + b)), b by the triangle inequality."""

    def terms(name, sign):
        distances = np.linalg.norm(at[:, None] - getattr(densities, f"{name}_means")[None], axis=2)
        variances = np.exp(getattr(densities, f"{name}_log_variances"))
        moved = np.maximum(distances + sign * radius, 0.0)
        return logsumexp(-0.5 * at.shape[1] * np.log(variances) - moved**2 / (2 * variances), axis=1)

    share = expit(terms("in", -1) - terms("out", 1) - densities.log_prior_odds)
    return share + (1 - share) / classes


def test_of_one_gaussian_each_it_is_never_above_the_papers():
    for seed in range(5):
        model, variables = network(4, 1, seed=seed)
        x = np.random.default_rng(seed).normal(0.5, 2.0, (30, 1, 1, 4))
        densities = read_densities(model, variables)
        at = (x - densities.center).reshape(30, 4) @ densities.whitening
        for radius in (0.0, 0.5, 3.0):
            found = guarantees.density_ball(model, variables, x, radius)
            assert (found <= papers_bound(densities, at, radius, 3) + 1e-3).all()
            # At the point itself both are its confidence.
            if radius == 0.0:
                np.testing.assert_allclose(found, confidences(model, variables, x.reshape(30, 4)), rtol=2e-3)


def test_without_larger_gaussians_of_outliers_there_is_no_radius():
    model, variables = network(3, 2)
    densities = variables["params"]["head"]["densities"]
    densities["out_log_variances"] = densities["in_log_variances"] - 0.1
    found = guarantees.density_radius(model, variables, 0.5)
    assert found.radius == math.inf == found.relative
    u = np.ones((2, 1, 1, 3))
    limit = guarantees.far_away_limit(model, variables, u)
    assert limit.undecided.all()
    assert np.isnan(limit.probabilities).all()


@pytest.mark.parametrize("certain", [True, False])
def test_the_limit_along_every_ray_is_uniform(certain):
    model, variables = network(3, 4, certain=certain)
    u = directions(50, 3).reshape(50, 1, 1, 3)
    limit = guarantees.far_away_limit(model, variables, u, starts=np.random.default_rng(1).normal(size=u.shape))
    np.testing.assert_allclose(limit.probabilities, 1 / 3)
    assert (limit.winner == -1).all()
    assert not limit.undecided.any()
    np.testing.assert_allclose(confidences(model, variables, 1e7 * u.reshape(50, 3)), 1 / 3, rtol=1e-6)


def test_what_has_no_radius_is_refused():
    model, variables = network(2, 1)
    with pytest.raises(UserError, match=r"confidence must be above 1/K = 0\.333"):
        guarantees.density_radius(model, variables, 0.3)
    with pytest.raises(UserError, match="no other has densities"):
        guarantees.density_radius(Classifier(OnePixel(), LinearHead(2)), variables, 0.6)
    with pytest.raises(UserError, match="radius must be"):
        guarantees.density_ball(model, variables, np.zeros((1, 1, 1, 2)), -1.0)
    with pytest.raises(UserError, match=r"expected \[n, 1, 1, 2\]"):
        guarantees.density_ball(model, variables, np.zeros((1, 1, 1, 3)), 1.0)
    variables["params"]["head"]["densities"]["in_means"][0, 0] = np.nan
    with pytest.raises(UserError, match="NaN"):
        guarantees.density_radius(model, variables, 0.5)


@pytest.mark.usefixtures("unannotated")
def test_images_are_read_as_predict_reads_them():
    model, variables = network(2, 1)
    found = guarantees.density_radius(model, variables, 0.6)
    images = np.array([[[[0, 255]]], [[[255, 255]]]], np.uint8)
    expected = found.distances(images)
    for given_images in (images / 255.0, list(images), (images / 255.0).tolist()):
        np.testing.assert_allclose(found.distances(given_images), expected, rtol=1e-6)
    for wrong, message in (
        (images[0], r"expected \[n, 1, 1, 2\]: for one image give images\[None\]"),
        (images[:0], "no images; give at least one"),
        (np.ma.array(images, mask=images > 9), "a masked array was given"),
        (images.astype(np.int64), "images of type int64; expected uint8"),
        (images * 1e39 + 1e39, "images, as float32, hold NaN or infinity in 2 of 2"),
    ):
        for function in (found.share_beyond, lambda x: guarantees.density_ball(model, variables, x, 1.0)):
            with pytest.raises(UserError, match=message):
                function(wrong)
    densities = variables["params"]["head"]["densities"]
    densities["in_means"] = np.ma.array(densities["in_means"], mask=True)
    with pytest.raises(UserError, match="a masked array was given"):
        guarantees.density_radius(model, variables, 0.6)
