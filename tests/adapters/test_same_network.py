"""The same network in four frameworks: the same answers, the same training, the same guarantees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import (
    Classifier,
    LinearHead,
    SquareLogitHead,
    adapters,
    attach,
    detectors,
    evaluate,
    fit,
    guarantees,
    predict,
    scores,
)
from preload_jax.detectors.network import linear_head
from preload_jax.models import WithDistance
from tests import toy
from tests.adapters import networks

DATA = toy.data()
IMAGES, LABELS, OUTLIERS = ALL = tuple(np.asarray(x)[:128] for x in (DATA.images, DATA.labels, DATA.outliers))
UNIT = jnp.asarray(IMAGES[:20] / 255, jnp.float32)
HEAD = SquareLogitHead(3)
NUMBERS = {"epochs": 2, "batch_size": 64, "learning_rate": 1e-2}
DIRECTIONS = np.random.default_rng(0).normal(size=(8, *toy.SHAPE))
LINEN = Classifier(networks.Linen(), HEAD)
OF = networks.adapted()
FRAMEWORKS = sorted(OF)


@pytest.fixture(scope="module")
def given():
    """The Linen network's variables, with the weights that all have, and a head."""
    variables = LINEN.init(jax.random.key(3), UNIT)
    return {"params": {**variables["params"], "backbone": networks.linen_params()}}


@pytest.fixture(scope="module")
def trained(given):
    return fit(LINEN, *ALL, variables=given, **NUMBERS)


def started(framework, given):
    """The classifier, and its variables with the Linen network's head."""
    model = Classifier(OF[framework], HEAD)
    variables = model.init(jax.random.key(7), UNIT)
    return model, {"params": {**variables["params"], "head": given["params"]["head"]}}


def own_features(framework):
    """What the framework itself computes."""
    if framework == "function":
        return networks.function(networks.LAYERS, UNIT)
    if framework == "nnx":
        return networks.nnx_network()(UNIT)
    return jax.vmap(networks.equinox_network())(UNIT)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_features_are_the_framework_s_own_to_the_bit(framework):
    backbone = OF[framework]
    variables = backbone.init(jax.random.key(0), UNIT)
    np.testing.assert_array_equal(backbone.apply(variables, UNIT), own_features(framework))


def proved(model, variables):
    """Limits, and certificates of whole rays."""
    return (
        guarantees.far_away_limit(model, variables, DIRECTIONS),
        guarantees.ray_certificate(model, variables, DIRECTIONS[:3], confidence=0.5),
    )


@pytest.fixture(scope="module")
def proved_of_linen(given):
    return proved(LINEN, given)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_logits_and_guarantees_are_those_of_linen(framework, given, proved_of_linen):
    model, variables = started(framework, given)
    expected = predict(LINEN, given, IMAGES)
    np.testing.assert_allclose(predict(model, variables, IMAGES).probabilities, expected.probabilities, rtol=1e-5)
    (limits, certificates), (their_limits, theirs) = proved(model, variables), proved_of_linen
    for name in ("winner", "dead", "undecided"):
        np.testing.assert_array_equal(getattr(limits, name), getattr(their_limits, name))
    for name in ("probabilities", "slope_norm"):
        np.testing.assert_allclose(getattr(limits, name), getattr(their_limits, name), rtol=1e-5)
    for name in ("largest_log_odds", "last_crossing"):
        np.testing.assert_allclose(getattr(certificates, name), getattr(theirs, name), rtol=1e-4, atol=1e-4)
    assert guarantees.nonnegative_embeddings(model, variables, toy.SHAPE)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_training_gives_the_parameters_that_linen_gets(framework, given, trained):
    model, start = started(framework, given)
    variables = fit(model, *ALL, variables=start, **NUMBERS)
    found = networks.layers_of(adapters.unwrap(model, variables))
    expected = networks.layers_of(trained["params"]["backbone"])
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert abs(np.asarray(found[0][0]) - networks.LAYERS[0][0]).max() > 1e-3
    results = [evaluate(*each, (IMAGES, LABELS), {"out": OUTLIERS}) for each in ((model, variables), (LINEN, trained))]
    np.testing.assert_allclose(*([each["ood"]["out"]["auroc"] for each in results]), atol=1e-3)
    bounds = [guarantees.confidence_bound(each["params"]["head"]).log_odds for each in (variables, trained)]
    np.testing.assert_allclose(*bounds, rtol=1e-3)
    radii = [guarantees.safe_radius(each["params"]["head"], 0.5).radius for each in (variables, trained)]
    np.testing.assert_allclose(*radii, rtol=1e-3)


def test_fit_starts_from_the_weights_that_the_network_has():
    model = Classifier(OF["nnx"], HEAD)
    variables = fit(model, *ALL, epochs=1, batch_size=64, learning_rate=0.0, weight_decay=0.0)
    for a, b in zip(networks.layers_of(adapters.unwrap(model, variables)), networks.LAYERS, strict=True):
        jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_attach_keeps_the_logits_of_a_network_that_was_trained_elsewhere(framework):
    kernel, bias = networks.numbers(8, 3), networks.numbers(3)
    model = Classifier(OF[framework], LinearHead(3))
    variables = adapters.variables(model, kernel, bias)
    own = np.asarray(jnp.matmul(own_features(framework), kernel, precision="highest") + bias[None])
    np.testing.assert_allclose(model.apply(variables, UNIT), own, rtol=1e-6, atol=1e-6)
    attached = attach(model, variables, *ALL, epochs=1, batch_size=64)
    logits = attached.model.apply(attached.variables, UNIT)
    np.testing.assert_array_equal(logits[:, :3], model.apply(variables, UNIT))
    jax.tree.map(
        np.testing.assert_array_equal, attached.variables["params"]["backbone"], variables["params"]["backbone"]
    )
    assert predict(attached.model, attached.variables, 1e5 * OUTLIERS.astype(np.float32)).is_ood.all()
    assert np.isfinite(attached.bound.log_odds).all()


def test_detectors_take_an_adapter(given):
    model, variables = started("equinox", given)
    outputs = detectors.outputs(model, variables, IMAGES)
    expected = detectors.outputs(LINEN, given, IMAGES)
    np.testing.assert_allclose(outputs.features, expected.features, rtol=1e-5, atol=1e-6)
    for name, options in (("knn", {"k": 3}), ("vim", {"dims": 2})):
        head = linear_head(variables)
        scores = [
            detectors.score(detectors.fit(name, each, LABELS, num_classes=3, head=head, **options), each)
            for each in (outputs, expected)
        ]
        np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-4)


def test_with_a_distance():
    model = Classifier(WithDistance(OF["nnx"]), HEAD)
    variables = fit(model, *ALL, epochs=1, batch_size=64)
    assert set(variables["batch_stats"]["backbone"]) == {"distance_center", "distance_scale"}
    assert isinstance(adapters.unwrap(model, variables), networks.Nnx)
    assert predict(model, variables, 1e5 * OUTLIERS.astype(np.float32)).is_ood.all()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_of_a_kind_are_equal_whatever_their_weights(framework):
    same, again = networks.adapted()[framework], OF[framework]
    assert same == again
    assert hash(same) == hash(again)
    variables = jax.tree.map(lambda x: 2.0 * x, same.init(jax.random.key(0), UNIT))
    own = adapters.unwrap(same, variables)
    make = {"nnx": adapters.from_nnx, "equinox": adapters.from_equinox}
    doubled = make[framework](own) if framework in make else adapters.from_function(networks.function, own)
    assert doubled == same
    # Their first weights are their own all the same.
    jax.tree.map(np.testing.assert_array_equal, doubled.init(jax.random.key(0), UNIT), variables)
    assert repr(doubled) != repr(same)
    assert repr(same) == repr(again)


def test_a_function_that_reads_what_changed_is_asked_as_it_is_now():
    held = {"scale": 1.0}

    def features(params, images):
        return jax.nn.relu(images.reshape(images.shape[0], -1) @ params["kernel"]) * held["scale"]

    params = {"kernel": np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)}
    model = Classifier(adapters.from_function(features, params), SquareLogitHead(num_classes=3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
    images = np.random.default_rng(1).random((5, 4, 4, 1), np.float32)
    for scale in (1.0, 2.0, -0.5, 1.0):
        held["scale"] = scale
        expected = np.asarray(model.apply(variables, jnp.asarray(images)))
        np.testing.assert_allclose(detectors.outputs(model, variables, images).logits, expected, rtol=1e-5, atol=1e-6)
        said = predict(model, variables, images)
        np.testing.assert_allclose(said.ood_probability, jax.nn.softmax(expected)[:, -1], rtol=1e-5)
        found = guarantees.ball_certificate(model, variables, images, 0.01, steps=2)
        np.testing.assert_allclose(found.scores, scores.in_domain_probability(jnp.asarray(expected)), rtol=1e-4)
        assert (found.attacked <= found.guaranteed).all()
