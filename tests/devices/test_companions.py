"""Networks whose answer about an input depends on what stands beside it are refused; others are not."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import Classifier, SquareLogitHead, adapters, detectors, evaluate, fit, make_classifier, predict
from preload_jax.devices import companions
from preload_jax.errors import UserError
from preload_jax.guarantees import far_away_limit
from preload_jax.models import MCDropout

RNG = np.random.default_rng(0)
KERNEL = RNG.normal(size=(16, 6)).astype(np.float32)
IMAGES = RNG.random((13, 4, 4, 1), np.float32)
BYTES = (255 * IMAGES).astype(np.uint8)
LABELS = np.arange(13) % 3
KEY = jax.random.key(0)


def until_large(x):
    """Doubled until all rows together are large."""
    return jax.lax.while_loop(lambda y: jnp.abs(y).sum() < 100.0, lambda y: 2.0 * y, x)


JOINING = {
    "mean of the batch": lambda x: x - x.mean(axis=0, keepdims=True),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y - y.mean(axis=0, keepdims=True), x),
    "loop that ends for all": until_large,
    "neighbours": lambda x: x + jnp.take(x, (jnp.arange(len(x)) + 1) % len(x), axis=0),
    "turned round": lambda x: x[::-1],
    "spectrum": lambda x: jnp.fft.fft(x, axis=0).real,
    "generic reduction": lambda x: x - jax.lax.reduce(x, -jnp.inf, jnp.logaddexp, (0,))[None],
    "noise by place": lambda x: x + jax.random.normal(KEY, x.shape),
}


def by_parts(x):
    return jnp.concatenate([jax.nn.relu(part) for part in jnp.array_split(x, 4)])


def padded(x):
    missing = -len(x) % 8
    return jnp.pad(x, ((0, missing), (0, 0)))[: len(x)] * 2


def sorted_by_expert(x):
    order = jnp.argsort(x[:, 0])
    return (2 * x[order])[jnp.argsort(order)]


ALONE = {
    "chunks": lambda x: jax.lax.map(lambda row: row / (1 + jnp.abs(row).max()), x, batch_size=4),
    "parts": by_parts,
    "padded": padded,
    "sorted and back": sorted_by_expert,
    "scaled and back": lambda x: jax.nn.softmax(x - jax.lax.stop_gradient(x.max())),
    "one by one": lambda x: jax.lax.fori_loop(0, len(x), lambda i, out: out.at[i].set(2 * x[i]), jnp.zeros_like(x)),
    "huge": lambda x: 1e30 * x,
}


def flat(images):
    return images.reshape(len(images), -1)


def model_of(function):
    def features(params, images):
        return function(flat(images) @ params["kernel"])

    return Classifier(adapters.from_function(features, {"kernel": KERNEL}), SquareLogitHead(num_classes=3))


def of(model):
    return model, model.init(KEY, jnp.asarray(IMAGES[:1]))


@pytest.mark.parametrize("images", [IMAGES, IMAGES[:1], IMAGES[:2], BYTES], ids=["all", "one", "two", "bytes"])
@pytest.mark.parametrize("function", JOINING.values(), ids=JOINING)
def test_networks_that_join_rows_are_refused(function, images):
    with pytest.raises(UserError, match=r"answers differently about the same input .* treats each row alone"):
        predict(*of(model_of(function)), images, batch_size=12)


@pytest.mark.parametrize("function", ALONE.values(), ids=ALONE)
def test_networks_that_treat_rows_alone_are_not(function):
    model, variables = of(model_of(function))
    together, alone = (predict(model, variables, images, batch_size=12).score for images in (IMAGES, IMAGES[:1]))
    np.testing.assert_allclose(together[:1], alone, rtol=1e-5)


USES = {
    "predict": lambda model, variables: predict(model, variables, IMAGES),
    "evaluate": lambda model, variables: evaluate(model, variables, (IMAGES, LABELS)),
    "detectors.outputs": lambda model, variables: detectors.outputs(model, variables, IMAGES),
    "far_away_limit": lambda model, variables: far_away_limit(model, variables, IMAGES - 0.5),
    "fit": lambda model, variables: fit(model, BYTES, LABELS, BYTES, epochs=1, batch_size=4),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_wherever_they_are_asked_and_before_they_are_trained(use):
    with pytest.raises(UserError, match=r"'reduce_sum' at .*test_companions.py:\d+"):
        use(*of(model_of(JOINING["mean of the batch"])))


class Balanced(nn.Module):
    """Tells how its experts are used, in training, as a mean over the batch."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = flat(images)
        gates = jax.nn.softmax(nn.Dense(4)(x))
        self.sow("losses", "balance", gates.mean(axis=0))
        return nn.relu(nn.Dense(8)(x) * gates.max(axis=-1, keepdims=True))


class SidesAsRows(nn.Module):
    """Without its axis of channels Linen takes the batch for a side of one image."""

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.relu(flat(nn.Conv(4, (3, 3))(images[..., 0])))


def test_a_mean_that_no_answer_sees_is_allowed():
    model, variables = of(Classifier(Balanced(), SquareLogitHead(num_classes=3)))
    predict(model, {"params": variables["params"]}, IMAGES)


def test_a_convolution_over_images_is_refused():
    with pytest.raises(UserError, match="answers differently about the same input"):
        predict(*of(Classifier(SidesAsRows(), SquareLogitHead(num_classes=3))), IMAGES)


def test_a_network_is_asked_once_and_the_librarys_own_never(monkeypatch):
    asked = []
    monkeypatch.setattr(companions, "require_alone", lambda *given: asked.append(given))
    model, variables = of(model_of(lambda x: 3 * x))
    for _ in range(3):
        predict(model, variables, IMAGES)
    assert len(asked) == 1
    own = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,), dropout=0.5)
    for network in (own, MCDropout(own.backbone, own.head)):
        assert companions.known(network)
        predict(*of(network), IMAGES)
    assert len(asked) == 1
    assert not companions.known(model)


def test_what_is_not_finite_must_be_the_same():
    x = np.array([1.0, np.nan, np.inf])
    assert companions.alike(x, np.array([1.001, np.nan, np.inf]), close=1e-2)
    assert not companions.alike(x, np.array([1.1, np.nan, np.inf]), close=1e-2)
    assert not companions.alike(x, np.array([1.0, 0.0, np.inf]), close=1e-2)
    assert not companions.alike(x, np.array([1.0, np.nan, -np.inf]), close=1e-2)
