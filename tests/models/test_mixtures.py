"""MC dropout and ensembles: means of probabilities in NumPy, one answer whatever the batch, what is refused."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

from preload_jax import backbones, models, predict
from preload_jax.errors import UserError
from preload_jax.models import layers, mixtures
from tests import toy

IMAGES = jnp.asarray(np.random.default_rng(0).random((5, *toy.SHAPE), np.float32))


@pytest.fixture(scope="module")
def drawn():
    model = models.MCDropout(models.MLP(widths=(16, 16), dropout=0.4), models.LinearHead(3), samples=4, seed=7)
    return model, jax.jit(model.init)(jax.random.key(0), IMAGES[:1])


def layer(x, weights):
    return x @ np.asarray(weights["kernel"], np.float64) + np.asarray(weights["bias"], np.float64)


def test_mc_dropout_is_the_mean_over_masks(drawn):
    """The masks are those that the layers draw; the rest is NumPy."""
    model, variables = drawn
    params, per_draw = variables["params"], []
    for t in range(model.samples):
        masks = {}
        with nn.intercept_methods(partial(keep, masks)):
            model.plain.apply(variables, IMAGES, rngs=model.draw(t))
        x = np.asarray(IMAGES, np.float64).reshape(len(IMAGES), -1)
        for i in (1, 2):
            x = np.maximum(layer(x, params["backbone"][f"dense{i}"]), 0.0) * masks[f"dropout{i}"]
        per_draw.append(softmax(layer(x, params["head"]["linear"]), axis=1))
    expected = np.mean(per_draw, axis=0)
    np.testing.assert_allclose(predict(model, variables, IMAGES).probabilities, expected, rtol=1e-5)
    assert np.std(per_draw, axis=0).max() > 0.01


def keep(masks, function, args, kwargs, context):
    """Notes by what a dropout layer multiplies ones."""
    if isinstance(context.module, layers.Dropout):
        ones = function(jnp.ones((1, args[0].shape[1])), **kwargs)
        masks[context.module.name] = np.asarray(ones, np.float64)
        return args[0] * ones
    return function(*args, **kwargs)


def test_an_answer_depends_on_no_batch_and_the_features_are_the_networks(drawn):
    model, variables = drawn
    whole = predict(model, variables, IMAGES).probabilities
    alone = [predict(model, variables, image[None]).probabilities[0] for image in IMAGES[::-1]]
    np.testing.assert_allclose(alone[::-1], whole, rtol=1e-6)
    both = [each.apply(variables, IMAGES, features=True) for each in (model, model.plain)]
    np.testing.assert_array_equal(both[0][1], both[1][1])
    # Training mode, and the variables, are an ordinary classifier's.
    plain = jax.jit(model.plain.init)(jax.random.key(0), IMAGES[:1])
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), variables, plain))
    rngs = {"dropout": jax.random.key(1)}
    trained = [each.apply(variables, IMAGES, train=True, rngs=rngs) for each in (model, model.plain)]
    np.testing.assert_array_equal(*trained)


SMALL = {
    "lenet": {"channels": (2, 2), "width": 8},
    "conv_net": {"channels": (4,)},
    "resnet18": {"blocks": (1,), "width": 4},
    "vit": {"patch": 4, "depth": 1, "width": 8, "heads": 2},
}


def test_every_network_has_dropout():
    assert all(hasattr(row.module, "dropout") for row in backbones.BACKBONES.values())


@pytest.mark.parametrize("backbone", SMALL)
def test_each_network_with_dropout_draws(backbone):
    small = SMALL[backbone]
    body = models.make_classifier(backbone, "linear", num_classes=3, dropout=0.5, **small).backbone
    model = models.MCDropout(body, models.LinearHead(3), samples=2)
    images = jnp.asarray(np.random.default_rng(0).random((2, 8, 8, 1), np.float32))
    variables = jax.jit(model.init)(jax.random.key(0), images)
    logits = [model.plain.apply(variables, images, rngs=rngs) for rngs in (model.draw(0), model.draw(1), None)]
    assert not np.allclose(logits[0], logits[1])
    assert not np.allclose(logits[0], logits[2])


class Part(nn.Module):
    train: bool

    @nn.compact
    def __call__(self, x):
        return layers.drop(nn.Dense(8)(x), 0.5, self.train, name="dropout")


CompiledPart = nn.jit(Part)


class InParts(nn.Module):
    """A network with a part that is compiled once, and then not called again."""

    dropout: float = 0.5

    @nn.compact
    def __call__(self, images, *, train=False):
        return CompiledPart(train, name="part")(images.reshape(len(images), -1))


def test_a_network_compiled_in_parts_draws_each_time_it_is_asked():
    model = models.MCDropout(InParts(), models.LinearHead(3), samples=2)
    variables = model.init(jax.random.key(0), IMAGES)
    first, second = (model.apply(variables, IMAGES) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, model.plain.apply(variables, IMAGES))


@pytest.mark.parametrize("head", ["linear", "square_logit"])
def test_an_ensemble_is_the_mean_of_its_networks(head):
    model = toy.model(head)
    own = [jax.jit(model.init)(jax.random.key(seed), IMAGES[:1]) for seed in range(3)]
    logits = [np.asarray(model.apply(each, IMAGES), np.float64) for each in own]
    together, variables = models.ensemble([model] * 3, own)
    found, features = together.apply(variables, IMAGES, features=True)
    expected = logsumexp([log_softmax(z, axis=1) for z in logits], axis=0) - np.log(3)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert features.shape == (5, 3 * 16)
    assert (together.head.num_classes, together.head.has_ood_class) == (3, head == "square_logit")
    for (each, back), given in zip(mixtures.members(together, variables), own, strict=True):
        assert type(each.head) is type(model.head)
        np.testing.assert_array_equal(each.apply(back, IMAGES), model.apply(given, IMAGES))


def test_log_mean_probabilities_stay_finite_where_probabilities_do_not():
    far = jnp.array([[[3e30, 0.0, -3e30]], [[3e30, 0.0, 0.0]]])
    found = np.asarray(mixtures.log_mean_probabilities(far))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.exp(found), [[1.0, 0.0, 0.0]], atol=1e-6)


def test_what_is_refused():
    head, model = models.LinearHead(3), toy.model("linear")
    for body, message in (
        (models.MLP(), "MC dropout with a dropout of 0 draws the same network each time"),
        (toy.NoisyBackbone(dropout=None), "by their dropout, and a NoisyBackbone has none; take a network of `models`"),
    ):
        with pytest.raises(UserError, match=message):
            models.MCDropout(body, head)
    with pytest.raises(UserError, match=r"this one has no layer of models\.layers\.Dropout"):
        models.MCDropout(toy.NoisyBackbone(), head).init(jax.random.key(0), IMAGES)
    with pytest.raises(UserError, match="samples must be at least 1, got 0"):
        models.MCDropout(models.MLP(dropout=0.1), head, samples=0)
    with pytest.raises(UserError, match=r"seed must be below 2\*\*32, got 4294967296"):
        models.MCDropout(models.MLP(dropout=0.1), head, seed=2**32)
    drawn = models.MCDropout(models.MLP(widths=(4,), dropout=0.1), head, samples=2)
    variables, key = drawn.init(jax.random.key(0), IMAGES), jax.random.key(1)
    with pytest.raises(UserError, match="MC dropout draws from `seed`"):
        drawn.apply(variables, IMAGES, rngs={"mc_dropout": key})
    with pytest.raises(UserError, match="dropout must be at least 0 and below 1, got 1"):
        models.MLP(dropout=1.0)
    with pytest.raises(UserError, match="an ensemble of 1 networks; give two at least"):
        models.ensemble([model], [{}])
    with pytest.raises(UserError, match="2 networks but 1 variables"):
        models.ensemble([model] * 2, [{}])
    with pytest.raises(UserError, match="network 1 of the ensemble has a LinearHead for 4 classes, the first has"):
        models.ensemble([model, toy.model("linear", num_classes=4)], [{}, {}])
    with pytest.raises(UserError, match="an ensemble is of networks with a LinearHead or a SquareLogitHead"):
        models.ensemble([models.MCDropout(models.MLP(dropout=0.1), head)] * 2, [{}, {}])
