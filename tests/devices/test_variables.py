"""Variables of another network: Flax ignores those that it does not look for, so we look."""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import freeze

from preload_jax import attach, detectors, evaluate, fit, guarantees, make_classifier, models, predict, weights
from preload_jax.devices.variables import require_own
from preload_jax.errors import UserError
from preload_jax.formats import save_program

SHAPE = (4, 4, 1)
IMAGES = np.random.default_rng(0).random((6, *SHAPE), np.float32)
DIRECTIONS = IMAGES - 0.5


def made(head="square_logit", num_classes=3, **options):
    model = make_classifier("mlp", head, num_classes=num_classes, **options)
    return model, model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))


MODEL, OWN = made(widths=(8,))
# Of the same width where they meet: every array that the model looks for is there, in its shape.
DEEPER = made(widths=(8, 8))[1]

USES = {
    "predict": lambda v: predict(MODEL, v, IMAGES),
    "evaluate": lambda v: evaluate(MODEL, v, (IMAGES, np.zeros(6, int))),
    "detectors.outputs": lambda v: detectors.outputs(MODEL, v, IMAGES),
    "far_away_limit": lambda v: guarantees.far_away_limit(MODEL, v, DIRECTIONS),
    "ray_certificate": lambda v: guarantees.ray_certificate(MODEL, v, DIRECTIONS),
    "embedding_behaviour": lambda v: guarantees.embedding_behaviour(MODEL, v, DIRECTIONS),
    "nonnegative_embeddings": lambda v: guarantees.nonnegative_embeddings(MODEL, v, SHAPE),
    "confidence_profile": lambda v: guarantees.confidence_profile(MODEL, v, DIRECTIONS, num_classes=3),
}


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (DEEPER, "params/backbone/dense2/bias is an array .8., the model has nothing there"),
        (made("linear", widths=(8,))[1], "params/head/ood/bias is missing, the model has an array .. there"),
        ({**OWN, "params": {"backbone": {}, "head": {}}}, "params/backbone/dense1/bias is missing"),
        (None, "the variables are a NoneType"),
        ([OWN], "the variables are a list"),
        ({}, "the variables are a dict; expected"),
        ({**OWN, "batch_stats": None}, "hold 'batch_stats', a NoneType; expected collections of arrays alone"),
        ({**OWN, "opt_state": (1, 2)}, "hold 'opt_state', a tuple"),
        ({**OWN, "step": 3}, "hold 'step', a int"),
        (made(widths=(8,), num_classes=4)[1], 'do not fit the network; .*"/head/linear"'),
    ],
)
def test_those_of_another_network_are_refused(use, variables, message):
    with pytest.raises(UserError, match=message):
        use(variables)


OTHER_TYPES = {
    "int32": (lambda x: np.array(x, np.int32), "params/backbone/dense1/bias is int32, the model has float32 there"),
    "bool": (lambda x: np.array(x) > 0, "dense1/bias is bool, the model has float32 there; give its own"),
    "complex64": (lambda x: np.array(x, np.complex64), "dense1/bias is complex64, the model has float32 there"),
    "text": (lambda x: np.array(x).astype(str), "dense1/bias is <U32, the model has float32 there"),
    "big-endian": (lambda x: np.array(x).astype(">f4"), "of another byte order than this machine's; give x.astype"),
    "masked": (lambda x: np.ma.masked_array(np.array(x), np.array(x) > 0), "a masked array was given"),
}
WITH_TYPES = {
    **USES,
    "fit": lambda v: fit(MODEL, IMAGES, np.arange(6) % 3, IMAGES, variables=v, epochs=1, batch_size=3),
    "weights.save": lambda v: weights.save("/none/a.safetensors", MODEL, v, image_shape=SHAPE),
}


@pytest.mark.parametrize("use", WITH_TYPES.values(), ids=WITH_TYPES)
@pytest.mark.parametrize(("cast", "message"), OTHER_TYPES.values(), ids=OTHER_TYPES)
def test_those_of_another_kind_of_numbers_are_refused(use, cast, message):
    with pytest.raises(UserError, match=message):
        use(jax.tree.map(cast, OWN))


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_another_precision_is_taken_and_trained_in_the_models(dtype):
    given = jax.tree.map(lambda x: np.asarray(x).astype(dtype), OWN)
    found, expected = predict(MODEL, given, IMAGES), predict(MODEL, OWN, IMAGES)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-2)
    trained = fit(MODEL, IMAGES, np.arange(6) % 3, IMAGES, variables=given, epochs=1, batch_size=3)
    assert {leaf.dtype for leaf in jax.tree.leaves(trained)} == {np.dtype(np.float32)}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_its_own_do(use):
    use({**OWN, "batch_stats": {}, "intermediates": {"x": jnp.ones(3)}})


def test_statistics_belong_to_a_network_too():
    center = models.typical_distance(IMAGES)
    model = models.Classifier(models.WithDistance(models.MLP(widths=(8,)), **center), models.SquareLogitHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    require_own(model, variables, SHAPE)
    with pytest.raises(UserError, match="batch_stats/backbone/distance_center is an array"):
        require_own(MODEL, {**variables, "params": OWN["params"]}, SHAPE)


def test_images_of_another_shape_are_refused():
    with pytest.raises(UserError, match=r"images of shape .n, 9, 9, 1. do not fit the network; .*/backbone/dense1"):
        require_own(MODEL, OWN, (9, 9, 1))

    class Picky(nn.Module):
        @nn.compact
        def __call__(self, images):
            assert images.shape[1:] == SHAPE, "too large"
            return nn.Dense(2, name="dense")(images.reshape(len(images), -1))

    with pytest.raises(UserError, match=r"does not take images of shape .n, 9, 9, 1.: AssertionError: too large"):
        require_own(Picky(), {"params": {}}, (9, 9, 1))


def test_the_distances_constants_may_be_in_the_fields_alone():
    model = models.Classifier(
        models.WithDistance(models.MLP(widths=(8,)), **models.typical_distance(IMAGES)), models.LinearHead(3)
    )
    require_own(model, {"params": made("linear", widths=(8,))[1]["params"]}, SHAPE)


class InTraining(nn.Module):
    """A backbone with a layer that only training has, and dropout."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.Dense(8, name="dense")(images.reshape(len(images), -1))
        if train:
            x = nn.Dropout(0.5, deterministic=False)(x + 0.0 * nn.Dense(8, name="auxiliary")(x))
        return nn.relu(x)


def test_what_training_alone_has_is_a_networks_own():
    model = models.Classifier(InTraining(), models.LinearHead(3))
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    variables = model.init(keys, jnp.zeros((1, *SHAPE)), train=True)
    assert "auxiliary" in variables["params"]["backbone"]
    require_own(model, variables, SHAPE)
    predict(model, variables, IMAGES)
    with pytest.raises(UserError, match="params/backbone/dense/bias is missing"):
        require_own(model, {"params": {**variables["params"], "backbone": {"other": jnp.ones(2)}}}, SHAPE)


def test_a_distance_without_constants_anywhere_is_refused():
    model = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,), distance=1.0)
    variables = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    with pytest.raises(UserError, match="batch_stats/backbone/distance_center is missing"):
        predict(model, {"params": variables["params"]}, IMAGES)


class Holding(nn.Module):
    """A backbone whose field cannot be hashed, or not, and which draws random numbers where it is told to."""

    held: Any = None
    draws: str = ""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = images.reshape(len(images), -1)
        if self.draws:
            x = x + jax.random.normal(self.make_rng(self.draws), x.shape)
        return nn.relu(nn.Dense(8)(x))


FIRST = {name: jax.random.key(0) for name in ("params", "noise", "dropout")}


@pytest.mark.parametrize(("held", "kind"), [([8], "list"), ({}, "dict"), (np.ones(2), "ndarray")])
def test_a_field_that_cannot_be_hashed_is_named(held, kind):
    model = models.Classifier(Holding(held), models.LinearHead(3))
    variables = model.init(FIRST, jnp.zeros((1, *SHAPE)))
    labels, images = np.arange(6) % 3, (255 * IMAGES).astype(np.uint8)
    for use in (
        lambda: predict(model, variables, IMAGES),
        lambda: fit(model, images, labels, epochs=1, batch_size=2),
        lambda: guarantees.far_away_limit(model, variables, DIRECTIONS),
    ):
        with pytest.raises(UserError, match=f"cannot compile the network: its backbone.held is a {kind}; give fields"):
            use()


@pytest.mark.parametrize("draws", ["noise", "dropout"])
def test_random_numbers_when_it_is_asked_are_refused(draws):
    model = models.Classifier(Holding(draws=draws), models.LinearHead(3))
    variables = model.init(FIRST, jnp.zeros((1, *SHAPE)))
    with pytest.raises(UserError, match=f'draws random numbers when it is asked .*"{draws}"'):
        predict(model, variables, IMAGES)
    with pytest.raises(UserError, match=f'(draws random numbers|does not run in training mode) .*"{draws}"'):
        fit(model, (255 * IMAGES).astype(np.uint8), np.arange(6) % 3, epochs=1, batch_size=2)


def test_a_collection_that_the_network_reads_is_missed(tmp_path):
    class Scaled(nn.Module):
        @nn.compact
        def __call__(self, images, *, train=False):
            scale = self.variable("constants", "scale", jnp.ones, ())
            return nn.relu(nn.Dense(8)(images.reshape(len(images), -1) * scale.value))

    model = models.Classifier(Scaled(), models.LinearHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    assert predict(model, variables, IMAGES).label.shape == (6,)
    with pytest.raises(UserError, match=r'variables lack something that the network reads; .*"constants"'):
        predict(model, {"params": variables["params"]}, IMAGES)
    with pytest.raises(UserError, match="keeps variables in constants; files keep params and batch_stats"):
        weights.save(tmp_path / "a.safetensors", model, variables, image_shape=SHAPE)
    with pytest.raises(UserError, match="keeps variables in constants; files keep params and batch_stats"):
        save_program(tmp_path / "a.program", model, variables, image_shape=SHAPE)
    assert list(tmp_path.iterdir()) == []


class Normalised(nn.Module):
    """A backbone with batch norm."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.Dense(8)(images.reshape(len(images), -1))
        return nn.relu(nn.BatchNorm(use_running_average=not train)(x))


def test_statistics_that_are_missing_are_not_made_up():
    linear = models.Classifier(Normalised(), models.LinearHead(3))
    variables = linear.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    images, labels = (255 * IMAGES).astype(np.uint8), np.arange(6) % 3
    with pytest.raises(UserError, match="batch_stats/backbone/BatchNorm_0/mean is missing"):
        attach(linear, {"params": variables["params"]}, images, labels, images, epochs=1, batch_size=2)


def test_frozen_variables_are_trained_on():
    linear = models.Classifier(Normalised(), models.LinearHead(3))
    variables = linear.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    images, labels = (255 * IMAGES).astype(np.uint8), np.arange(6) % 3
    options = {"epochs": 1, "batch_size": 2, "optimizer": "sgd"}
    one, two = (fit(linear, images, labels, variables=v, **options) for v in (variables, freeze(variables)))
    chex.assert_trees_all_equal(one, two)


def test_layers_of_training_alone_are_not_trained():
    model = models.Classifier(InTraining(), models.LinearHead(3))
    with pytest.raises(UserError, match="does not run in training mode with what it has in evaluation"):
        fit(model, (255 * IMAGES).astype(np.uint8), np.arange(6) % 3, epochs=1, batch_size=2)


def test_boxed_parameters_are_their_contents():
    class Partitioned(nn.Module):
        @nn.compact
        def __call__(self, images, *, train=False):
            kernel = nn.with_partitioning(nn.initializers.ones, ("a", "b"))
            return nn.relu(nn.Dense(8, kernel_init=kernel)(images.reshape(len(images), -1)))

    model = models.Classifier(Partitioned(), models.LinearHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    require_own(model, nn.meta.unbox(variables), SHAPE)
    images, labels = (255 * IMAGES).astype(np.uint8), np.arange(6) % 3
    one, two = (
        fit(model, images, labels, variables=v, epochs=1, batch_size=2) for v in (variables, nn.meta.unbox(variables))
    )
    chex.assert_trees_all_equal(one, two)
    require_own(model, variables, SHAPE)
