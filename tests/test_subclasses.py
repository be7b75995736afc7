"""A subclass of the library's own may compute anything of the same parameters: nothing is promised by its parent."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import Classifier, LinearHead, SquareLogitHead, attach, bayes, guarantees, recalibration
from preload_jax.errors import UserError
from preload_jax.models import MLP, CCUHead, LaplaceHead, WithDistance, features_nonnegative
from preload_jax.models.classifier import grows, is_builtin

SHAPE = (6, 6, 1)
IMAGES = np.random.default_rng(0).integers(0, 256, (40, *SHAPE), np.uint8)
LABELS = np.arange(40) % 3
UNITS = np.random.default_rng(1).normal(size=(3, *SHAPE)).astype(np.float32)


class Reversed(LinearHead):
    def __call__(self, features):
        return 3.0 * super().__call__(features)[:, ::-1]


class Squared(SquareLogitHead):
    def __call__(self, features):
        return super().__call__(features).at[:, 0].add(50.0)


class Hot(Classifier):
    def __call__(self, images, *, train=False, features=False):
        logits, embedding = super().__call__(images, train=train, features=True)
        return (100 * logits, embedding) if features else 100 * logits


class Near(WithDistance):
    def __call__(self, images, *, train=False):
        return super().__call__(images, train=train).at[:, -1].multiply(0.0)


class Sharp(LaplaceHead):
    def __call__(self, features):
        return 100 * super().__call__(features)


class Dense(CCUHead):
    pass


class Joined(MLP):
    def __call__(self, images, train=False):
        embedding = super().__call__(images, train=train)
        return embedding - embedding.mean(axis=0, keepdims=True)


class JoiningHead(LinearHead):
    def __call__(self, features):
        return super().__call__(features - features.mean(axis=0, keepdims=True))


def body():
    return MLP(widths=(8,))


def variables_of(model):
    return jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, *SHAPE)))


LINEAR = [Classifier(body(), Reversed(3)), Hot(body(), LinearHead(3))]
SQUARE = [Classifier(body(), Squared(3)), Hot(body(), SquareLogitHead(3))]


@pytest.mark.parametrize("model", LINEAR)
def test_what_replaces_a_head_refuses_one_of_ones_own(model):
    variables = variables_of(model)
    with pytest.raises(UserError, match=r"attach needs a Classifier with a LinearHead, got (Reversed|Hot)"):
        attach(model, variables, IMAGES, LABELS, IMAGES)


def test_a_posterior_is_of_the_librarys_heads():
    for model in (LINEAR[0], Classifier(body(), Sharp(3))):
        with pytest.raises(UserError, match=r"the head is a (Reversed|Sharp)"):
            bayes.fit_laplace(model, variables_of(model), IMAGES)


@pytest.mark.parametrize("model", [*LINEAR, *SQUARE])
def test_nothing_is_proved_by_a_heads_parameters(model):
    variables, images = variables_of(model), IMAGES[:2].astype(np.float32) / 255
    with pytest.raises(UserError, match=r"expected a Classifier with .*, got (Reversed|Squared|Hot)$"):
        guarantees.ball_certificate(model, variables, images, epsilon=0.1)
    with pytest.raises(UserError, match=r"expected a Classifier with .*, got (Reversed|Squared|Hot)$"):
        guarantees.ray_certificate(model, variables, UNITS, confidence=0.5)
    with pytest.raises(UserError, match=r"expected a Classifier of .*, got (Reversed|Squared|Hot)$"):
        recalibration.at_temperature(model, variables, 2.0)


@pytest.mark.parametrize(
    "model",
    [
        Classifier(Near(body()), SquareLogitHead(3)),
        Classifier(WithDistance(body()), Squared(3)),
        Hot(WithDistance(body()), SquareLogitHead(3)),
    ],
)
def test_no_radius_is_of_another_distance_or_head(model):
    with pytest.raises(UserError, match="expected a classifier of a WithDistance and a SquareLogitHead, got "):
        guarantees.input_radius(model, variables_of(model), 0.5)
    with pytest.raises(UserError, match=r"expected a WithDistance$|expected a Classifier with "):
        guarantees.ray_certificate(model, variables_of(model), UNITS, confidence=0.5)


def test_limits_are_those_of_the_operations():
    variables = variables_of(LINEAR[0])
    own, library = (
        guarantees.far_away_limit(each, variables, UNITS) for each in (LINEAR[0], Classifier(body(), LinearHead(3)))
    )
    np.testing.assert_array_equal(own.winner, 2 - library.winner)
    for head in (Sharp(3), Dense(3)):
        model = Classifier(body(), head)
        with pytest.raises(UserError, match=f"has a {type(head).__name__}, whose limit is not known"):
            guarantees.far_away_limit(model, variables_of(model), UNITS)


@pytest.mark.parametrize("model", [Classifier(Joined((8,)), LinearHead(3)), Classifier(body(), JoiningHead(3))])
def test_rows_that_a_subclass_joins_are_seen(model):
    with pytest.raises(UserError, match="row"):
        guarantees.far_away_limit(model, variables_of(model), UNITS)


def test_what_is_known_of_a_class_is_not_known_of_its_subclasses():
    assert is_builtin(WithDistance(body()))
    assert grows(WithDistance(body()))
    assert features_nonnegative(WithDistance(body()))
    for backbone in (Near(body()), Joined((8,)), nn.remat(MLP)((8,))):
        assert not is_builtin(backbone)
        assert not grows(backbone)
        assert features_nonnegative(backbone) is None
