"""Training a network that sees the distance from its training data: from where it measures, and that it stays so."""

import warnings

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import attach, fit, predict
from preload_jax.errors import UserError
from preload_jax.guarantees import input_radius
from preload_jax.models import MLP, Classifier, LinearHead, SquareLogitHead, WithDistance, typical_distance
from preload_jax.training.stage import Numbers
from tests import toy

IMAGES, LABELS, OUTLIERS = (np.asarray(x) for x in jax.tree.leaves(toy.data()))
TYPICAL = typical_distance(IMAGES)


def network(**where):
    return Classifier(WithDistance(MLP(widths=(16, 16)), **where), SquareLogitHead(3, min_weight=0.2))


def constants(variables):
    stats = variables["batch_stats"]["backbone"]
    return {"center": np.asarray(stats["distance_center"]), "scale": float(stats["distance_scale"])}


def trained(model, **options):
    return fit(model, IMAGES, LABELS, OUTLIERS, **{"epochs": 2, "batch_size": 64, "learning_rate": 1e-2, **options})


def test_it_measures_from_the_training_images_unless_told_otherwise():
    found = constants(trained(network()))
    np.testing.assert_array_equal(found["center"], TYPICAL["center"])
    assert found["scale"] == pytest.approx(TYPICAL["scale"], rel=1e-6)
    elsewhere = np.full(toy.SHAPE, 0.25, np.float32)
    found = constants(trained(network(center=elsewhere, scale=3.0)))
    np.testing.assert_array_equal(found["center"], elsewhere)
    assert found["scale"] == 3.0
    # One of the two alone is kept, and the other measured.
    found = constants(trained(network(scale=3.0)))
    np.testing.assert_array_equal(found["center"], TYPICAL["center"])
    assert found["scale"] == 3.0
    found = constants(trained(network(center=elsewhere)))
    np.testing.assert_array_equal(found["center"], elsewhere)
    distances = np.linalg.norm((IMAGES / 255.0 - elsewhere).reshape(len(IMAGES), -1), axis=1)
    assert found["scale"] == pytest.approx(np.median(distances), rel=1e-6)


@pytest.mark.parametrize("where", [{}, {"scale": 3.0}, {"center": np.full(toy.SHAPE, 0.25, np.float32)}])
def test_what_init_puts_in_their_place_is_measured_and_has_no_radius(where):
    model = network(**where)
    begun = model.init(jax.random.key(0), jnp.asarray(IMAGES[:1] / 255.0))
    for variables in (begun, jax.tree.map(np.asarray, begun)):
        with pytest.raises(UserError, match="center and scale are not measured"):
            input_radius(model, variables, 0.5)
    expected = constants(trained(model))
    found = trained(model, variables=begun)
    np.testing.assert_array_equal(constants(found)["center"], expected["center"])
    assert constants(found)["scale"] == expected["scale"] > 0.0
    assert input_radius(model, found, 0.5).scale == expected["scale"]
    # What is given now takes the place, too.
    given = {"center": np.full(toy.SHAPE, 0.5, np.float32), "scale": 2.0}
    later = trained(network(**given), variables=begun)
    np.testing.assert_array_equal(constants(later)["center"], given["center"])
    assert constants(later)["scale"] == 2.0


def test_attach_measures_what_init_puts_in_their_place():
    model = Classifier(WithDistance(MLP(widths=(16, 16))), LinearHead(3))
    begun = model.init(jax.random.key(0), jnp.asarray(IMAGES[:1] / 255.0))
    attached = attach(model, begun, IMAGES, LABELS, OUTLIERS, epochs=2, batch_size=64)
    np.testing.assert_array_equal(constants(attached.variables)["center"], TYPICAL["center"])
    assert input_radius(attached.model, attached.variables, 0.5).scale == pytest.approx(TYPICAL["scale"], rel=1e-6)


def test_images_beyond_the_radius_are_ood():
    model = network()
    variables = trained(model, epochs=20)
    radius = input_radius(model, variables, 0.5)
    assert (predict(model, variables, IMAGES).label == LABELS).mean() > 0.9
    rng = np.random.default_rng(0)
    away = rng.normal(size=(50, *toy.SHAPE))
    away /= np.linalg.norm(away.reshape(50, -1), axis=1).reshape(-1, 1, 1, 1)
    far = radius.center + 1.001 * radius.radius * away
    with pytest.warns(UserWarning, match="images run from"):
        found = predict(model, variables, far.astype(np.float32))
    assert found.is_ood.all()


def test_stopped_and_gone_on_with_it_measures_from_the_same_place(tmp_path):
    whole = trained(network(), epochs=4)

    class Stopped(Exception):
        pass

    def stop(report):
        raise Stopped

    with pytest.raises(Stopped):
        trained(network(), epochs=4, checkpoint_dir=tmp_path, on_report=stop)
    chex.assert_trees_all_equal(trained(network(), epochs=4, checkpoint_dir=tmp_path), whole)


def test_fine_tuning_adds_the_distance_to_a_trained_network():
    plain = Classifier(MLP(widths=(16, 16)), LinearHead(3))
    standard = fit(plain, IMAGES, LABELS, epochs=2, batch_size=64)
    options = {"method": "preload_certified_ft", "ood_head": Numbers(epochs=1, learning_rate=1e-1)}
    first = constants(trained(network(), variables=standard, **options))
    np.testing.assert_array_equal(first["center"], TYPICAL["center"])
    # Trained further on other images, it still measures from where it did.
    begun = trained(network(), variables=standard, **options)
    later = fit(network(), 255 - IMAGES, LABELS, OUTLIERS, variables=begun, epochs=1, batch_size=64)
    np.testing.assert_array_equal(constants(later)["center"], TYPICAL["center"])


def test_attaching_to_a_network_that_sees_the_distance():
    model = Classifier(WithDistance(MLP(widths=(16, 16))), LinearHead(3))
    variables = fit(model, IMAGES, LABELS, epochs=2, batch_size=64)
    attached = attach(model, variables, IMAGES, LABELS, OUTLIERS, epochs=2, batch_size=64)
    np.testing.assert_array_equal(constants(attached.variables)["center"], TYPICAL["center"])
    assert np.isfinite(input_radius(attached.model, attached.variables, 0.5).radius)


def test_variables_of_another_network_are_refused():
    plain = Classifier(MLP(widths=(16, 16)), SquareLogitHead(3))
    variables = fit(plain, IMAGES, LABELS, OUTLIERS, epochs=1, batch_size=64)
    with pytest.raises(UserError, match=r"the variables are of another network: .* the model has .* there"):
        trained(network(), variables=variables)
    with pytest.raises(UserError, match="the variables are of another network"):
        fit(plain, IMAGES, LABELS, OUTLIERS, variables=trained(network()), epochs=1, batch_size=64)


def test_constants_that_make_no_radius_are_refused():
    model = network()
    variables = trained(model)
    for name, value in (("distance_scale", 0.0), ("distance_scale", np.nan), ("distance_center", np.nan)):
        stats = dict(variables["batch_stats"]["backbone"])
        stats[name] = np.full_like(stats[name], value)
        with pytest.raises(UserError, match="center must be finite and its scale a positive number"):
            input_radius(model, {**variables, "batch_stats": {"backbone": stats}}, 0.5)
    with pytest.raises(UserError, match="scale must be a positive number"):
        WithDistance(MLP(), scale=1e-300)


def test_the_share_beyond_reads_images_as_the_network_does():
    model = network()
    radius = input_radius(model, trained(model), 0.5)
    assert radius.share_beyond(IMAGES) == radius.share_beyond(IMAGES / 255.0)


def test_fit_warns_where_embeddings_stay_bounded():
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, images, *, train=False):
            return nn.LayerNorm()(nn.Dense(8)(images.reshape(len(images), -1)))

    with pytest.warns(UserWarning, match="embeddings stay bounded"):
        trained(Classifier(Normed(), SquareLogitHead(3)))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*embeddings stay bounded.*")
        trained(Classifier(WithDistance(Normed()), SquareLogitHead(3)))


def test_attaching_to_a_trained_network_adds_the_distance_and_measures_it():
    plain = Classifier(MLP(widths=(8,)), LinearHead(3))
    variables = fit(plain, IMAGES, LABELS, epochs=1, batch_size=64)
    model = Classifier(WithDistance(plain.backbone), plain.head)
    attached = attach(model, variables, IMAGES, LABELS, OUTLIERS, epochs=1, batch_size=64)
    stats = attached.variables["batch_stats"]["backbone"]
    expected = TYPICAL
    np.testing.assert_allclose(stats["distance_center"], expected["center"], rtol=1e-6)
    np.testing.assert_allclose(stats["distance_scale"], expected["scale"], rtol=1e-6)
