"""What is proved of recalibrated confidences holds on embeddings that try to break it, and far away."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from scipy.special import expit, logsumexp

from preload_jax import guarantees, make_classifier, models, recalibration
from preload_jax.errors import UserError
from tests.recalibration.examples import some, with_ood

METHODS = list(recalibration.TABLE)
K, SHAPE = 4, (4, 4, 1)


@pytest.fixture(scope="module")
def network():
    """A PreLoad network with the distance feature and floors, and its variables."""
    images = np.random.default_rng(0).random((50, *SHAPE), np.float32)
    backbone = models.WithDistance(models.MLP(widths=(6,)), **models.typical_distance(images))
    head = models.SquareLogitHead(K, min_weight=0.1, min_distance_weight=0.3)
    model = models.Classifier(backbone, head)
    return model, model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))


@pytest.fixture(scope="module")
def fitted():
    z, y = with_ood()
    return {name: recalibration.fit(name, z, y, has_ood_class=True) for name in METHODS}


def logits_of(model, variables, features):
    """[n, K + 1] of embeddings with the distance last, as the head computes them."""
    head = {"params": variables["params"]["head"]}
    module = model.head.clone(distance=True)
    return module.apply(head, jnp.asarray(features, jnp.float32))


def test_a_temperature_is_a_head(network):
    model, variables = network
    images = jax.random.normal(jax.random.key(1), (20, *SHAPE))
    expected = model.apply(variables, images)
    for t in (0.3, 1.0, 2.5):
        cooler, scaled = recalibration.at_temperature(model, variables, t)
        np.testing.assert_allclose(cooler.apply(scaled, images), expected / t, rtol=2e-5, atol=1e-6)
        assert jax.tree.structure(scaled) == jax.tree.structure(variables)
    for head in ("linear", "none_class"):
        plain = make_classifier("mlp", head, num_classes=K, widths=(6,))
        own = plain.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
        cooler, scaled = recalibration.at_temperature(plain, own, 2.0)
        np.testing.assert_allclose(cooler.apply(scaled, images), plain.apply(own, images) / 2.0, rtol=2e-5, atol=1e-6)


def test_the_certificate_of_a_temperature_is_that_of_the_head(network, fitted):
    model, variables = network
    found = fitted["temperature"]
    t = float(found.parameters["temperature"])
    proved = recalibration.guarantee(found, model, variables, confidence=0.6)
    scaled_model, scaled = recalibration.at_temperature(model, variables, t)
    options = {**models.head_options(scaled_model.head), "nonnegative": True}
    bound = guarantees.confidence_bound(scaled["params"]["head"], **options)
    np.testing.assert_allclose(proved.log_odds, bound.log_odds, rtol=1e-5, atol=1e-5)
    radius = guarantees.safe_radius(scaled["params"]["head"], 0.6, **options).radius
    np.testing.assert_allclose(proved.radius, radius, rtol=1e-5)
    in_input = guarantees.input_radius(scaled_model, scaled, 0.6).radius
    np.testing.assert_allclose(proved.input_radius, in_input, rtol=1e-5)
    # The largest log-odds are not those over T: the others' logits move, too.
    plain = guarantees.confidence_bound(variables["params"]["head"], **models.head_options(model.head))
    assert not np.allclose(proved.log_odds, plain.log_odds / t, rtol=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_no_embedding_is_more_confident_than_is_proved(network, fitted, method):
    model, variables = network
    found = fitted[method]
    proved = recalibration.guarantee(found, model, variables, confidence=0.5)
    rng = np.random.default_rng(0)
    scale = 10.0 ** rng.uniform(-2, 3, (20_000, 1))
    features = np.abs(rng.normal(size=(20_000, 7))) * scale
    features[::2, -1] = 0.0
    p = np.asarray(found.probabilities(logits_of(model, variables, features)))[:, :K]
    assert (p <= proved.confidence * (1.0 + 1e-5)).all()
    beyond = np.linalg.norm(features[:, :-1], axis=1) >= proved.radius
    assert beyond.any()
    assert p[beyond].max() <= 0.5 * (1.0 + 1e-5)
    assert np.isfinite(proved.radius)
    images = rng.normal(size=(2000, *SHAPE)).astype(np.float32)
    center = np.asarray(guarantees.input_radius(model, variables, 0.5).center)
    lengths = np.linalg.norm(images.reshape(2000, -1), axis=1)[:, None, None, None]
    images = (center + images / lengths * proved.input_radius * 1.001).astype(np.float32)
    on_sphere = np.asarray(found.probabilities(model.apply(variables, jnp.asarray(images))))[:, :K]
    assert on_sphere.max() <= 0.5 * (1.0 + 1e-5)


@pytest.mark.parametrize("method", ["vector", "dirichlet", "spline"])
def test_far_away_the_confidence_tends_to_0_as_it_did(network, fitted, method):
    model, variables = network
    directions = np.asarray(jax.random.normal(jax.random.key(2), (50, *SHAPE)))
    limit = guarantees.far_away_limit(model, variables, directions)
    assert (limit.winner == K).all()
    far = model.apply(variables, jnp.asarray(1e8 * directions))
    p = np.asarray(fitted[method].probabilities(far))
    np.testing.assert_array_equal(p[:, :K], 0.0)
    np.testing.assert_array_equal(p[:, K], 1.0)


def test_the_bound_of_the_kept_class_is_no_larger_than_it_need_be(network, fitted):
    """It holds for the largest 1 − P(OOD) there is, and exceeds it by log K at most."""
    model, variables = network
    head = variables["params"]["head"]
    weights, bias = np.asarray(head["linear"]["kernel"], float), np.asarray(head["linear"]["bias"], float)
    v = (0.1 + np.exp(np.asarray(head["ood"]["raw_weights"], float)))[:-1]

    def log_odds(g):
        return logsumexp(g @ weights + bias) - v @ g**2 - float(head["ood"]["bias"])

    starts = np.abs(np.random.default_rng(0).normal(size=(10, 6)))
    runs = [scipy.optimize.minimize(lambda g: -log_odds(g), g, bounds=[(0, None)] * 6) for g in starts]
    largest = max(-run.fun for run in runs)
    proved = recalibration.guarantee(fitted["vector"], model, variables)
    assert largest <= proved.log_odds[0] <= largest + np.log(K)


def test_without_a_square_logit_nothing_is_proved_but_the_splines_largest():
    rng = np.random.default_rng(0)
    z, y = some(n=60, k=3)
    for head, columns in (("linear", 3), ("none_class", 4)):
        model = make_classifier("mlp", head, num_classes=3, widths=(6,))
        variables = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
        given = z if columns == 3 else np.concatenate([z, rng.normal(size=(60, 1))], axis=1)
        for method in METHODS:
            found = recalibration.fit(method, given, y, has_ood_class=columns == 4)
            proved = recalibration.guarantee(found, model, variables, confidence=0.99)
            assert proved.input_radius is None
            if method == "spline":
                largest = found.parameters["probability"].max()
                np.testing.assert_allclose(proved.confidence, max(largest, 0.5), rtol=1e-4)
                np.testing.assert_allclose(expit(proved.log_odds), proved.confidence, rtol=1e-9)
                p = np.asarray(found.probabilities((1e6 * rng.normal(size=(100, columns))).astype(np.float32)))
                assert p[:, :3].max() <= proved.confidence[0]
                assert proved.radius == 0.0
            else:
                assert np.isposinf(proved.log_odds).all()
                assert proved.radius == np.inf


def test_what_does_not_fit_is_refused(network, fitted):
    model, variables = network
    other = recalibration.fit("spline", with_ood()[0], with_ood()[1])
    with pytest.raises(UserError, match="of 5 classes without an OOD class; the network has 4 with: give its own"):
        recalibration.guarantee(other, model, variables)
    with pytest.raises(UserError, match="confidence must lie between 0 and 1"):
        recalibration.guarantee(fitted["spline"], model, variables, confidence=1.0)
    with pytest.raises(UserError, match="temperature must be finite and above 0"):
        recalibration.at_temperature(model, variables, 0.0)
    with pytest.raises(UserError, match=r"leaves exp\(±80\)"):
        recalibration.at_temperature(model, variables, 1e40)
