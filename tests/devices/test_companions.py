"""Networks whose answer about an input depends on what stands beside it are refused; others are not."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import (
    Classifier,
    LinearHead,
    SquareLogitHead,
    adapters,
    detectors,
    evaluate,
    fit,
    make_classifier,
    models,
    predict,
)
from preload_jax.devices import companions
from preload_jax.errors import UserError
from preload_jax.guarantees import far_away_limit
from preload_jax.models import ensemble, layers

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
    "two halves": lambda x: jnp.concatenate([normed(half) for half in jnp.array_split(x, 2)]),
    "pairs": lambda x: x.reshape(-1, 2, x.shape[1]).cumsum(axis=1).reshape(x.shape) if len(x) % 2 == 0 else x.cumsum(0),
    "groups of three": lambda x: jnp.concatenate([normed(part) for part in jnp.array_split(x, max(1, len(x) // 3))]),
    "other weights for the second half": lambda x: jnp.where(2 * np.arange(len(x))[:, None] < len(x), x, 2 * x),
    "other weights for odd places": lambda x: jnp.where(np.arange(len(x))[:, None] % 2 == 0, x, 2 * x),
    "one half less the other": lambda x: x - jnp.roll(x, len(x) // 2, axis=0),
    "experts that are full": lambda x: with_room(x, 1 + len(x) // 8),
    "divided by the largest": lambda x: x / jnp.abs(x).max(),
    "divided by a quantile": lambda x: x / jnp.quantile(jnp.abs(x), 0.99),
    "in eight bits": lambda x: jnp.round(x / (jnp.abs(x).max() / 127.0)) * jnp.abs(x).max() / 127.0,
    "experts with much room": lambda x: with_room(x, 3 * len(x) // 4),
    "by the size of the batch": lambda x: 100 * x / len(x),
    "a little of the mean": lambda x: x + 1e-3 * x.mean(axis=0, keepdims=True),
    "beside a large constant": lambda x: jnp.concatenate([normed(x), jnp.full((len(x), 1), 50.0)], axis=1),
}

# Images of uint8 are never far enough.
JOINING_FAR_INPUTS = {
    "scaled where large": lambda x: jnp.where(x.max() > 1e4, x / 255.0, x),
    "a branch for all": lambda x: jax.lax.cond(jnp.abs(x).max() > 1e4, lambda y: 0 * y, lambda y: y, x),
    "clipped by the norm of all": lambda x: x / jnp.maximum(1.0, jnp.linalg.norm(x) / 1e4),
    "less the largest of all": lambda x: jax.nn.softmax(x - x.max()),
}


def normed(x):
    return (x - x.mean(axis=0, keepdims=True)) / (x.std(axis=0, keepdims=True) + 1e-3)


def with_room(x, room):
    """Two experts, each of which drops what comes when it is full."""
    chosen = jax.nn.one_hot((x[:, 0] > x[:, 1]).astype(jnp.int32), 2)
    place = (jnp.cumsum(chosen, axis=0) * chosen).sum(axis=1)
    return jnp.where((place <= room)[:, None], x, 0.0)


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
    "in eight bits by row": lambda x: jnp.round(x / jnp.abs(x).max(1, keepdims=True) * 127) / 127,
    "a loop for each row": jax.vmap(lambda row: until_large(row)),
    "a loop that the size does not end": lambda x: jax.lax.fori_loop(0, len(x) * 0 + 3, lambda _, y: 2 * y, x),
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


@pytest.mark.parametrize("images", [IMAGES, IMAGES[:1]], ids=["all", "one"])
@pytest.mark.parametrize("function", JOINING_FAR_INPUTS.values(), ids=JOINING_FAR_INPUTS)
def test_networks_that_join_rows_where_one_is_far_are_refused(function, images):
    with pytest.raises(UserError, match="answers differently about the same input"):
        predict(*of(model_of(function)), images, batch_size=12)
    predict(*of(model_of(function)), BYTES, batch_size=12)


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


class Within(nn.Module):
    """Batch norm that stays in training mode, with a place for dropout."""

    dropout: float = 0.1

    @nn.compact
    def __call__(self, images, *, train=False):
        return layers.Dropout(self.dropout)(nn.relu(normed(nn.Dense(8)(flat(images)))), train=train)


class MCDropout(nn.Module):
    """A user's own, of the library's name."""

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.relu(normed(nn.Dense(8)(flat(images))))


@pytest.mark.parametrize("kind", ["member", "MCDropout", "of its name"])
def test_within_the_librarys_own_they_are_refused_too(kind):
    if kind == "member":
        each = Classifier(MCDropout(), LinearHead(3))
        model, variables = ensemble([each, each], [of(each)[1], of(each)[1]])
    elif kind == "MCDropout":
        model, variables = of(models.MCDropout(Within(), LinearHead(3), samples=3))
    else:
        model, variables = of(Classifier(MCDropout(), LinearHead(3)))
    assert not companions.known(model)
    with pytest.raises(UserError, match="answers differently about the same input"):
        predict(model, variables, IMAGES)


def gated():
    """A network with a gate at 0, behind which it looks at the mean of the batch."""

    def features(params, images):
        x = flat(images) @ params["kernel"]
        return jax.nn.relu(x + params["gate"] * x.mean(axis=0, keepdims=True))

    params = {"kernel": KERNEL, "gate": np.zeros((1, 6), np.float32)}
    return of(Classifier(adapters.from_function(features, params), SquareLogitHead(num_classes=3)))


def test_other_weights_are_asked_anew():
    model, variables = gated()
    predict(model, variables, IMAGES)
    network = variables["params"]["backbone"]["network"]
    opened = {"params": {**variables["params"], "backbone": {"network": {**network, "gate": network["gate"] + 1}}}}
    with pytest.raises(UserError, match="answers differently about the same input"):
        predict(model, opened, IMAGES)


def test_a_gate_is_opened_before_training():
    model, _ = gated()
    with pytest.raises(UserError, match="answers differently about the same input"):
        fit(model, BYTES, LABELS, BYTES, epochs=1, batch_size=4)


@pytest.mark.parametrize("value", [0, 1])
def test_equal_inputs_are_asked_about_beside_others(value):
    model, variables = of(model_of(lambda x: jax.nn.relu(normed(x[:, :3])) + 4))
    with pytest.raises(UserError, match="answers differently about the same input"):
        predict(model, variables, np.full_like(IMAGES[:4], value), batch_size=4)


def test_a_loop_that_never_ends_for_zeros_is_not_given_any():
    """Nor is a batch filled up with zeros."""
    model, variables = of(model_of(ALONE["a loop for each row"]))
    images = np.maximum(IMAGES, 0.1)
    assert predict(model, variables, images, batch_size=12).label.shape == (13,)
    assert predict(model, variables, np.maximum(BYTES, 1), batch_size=12).label.shape == (13,)


@pytest.mark.parametrize("offset", [0.0, 1e3, -1e5])
def test_an_offset_of_all_logits_hides_nothing(offset):
    model = Classifier(
        adapters.from_function(lambda p, x: normed(flat(x) @ p["kernel"]), {"kernel": KERNEL}), LinearHead(3)
    )
    variables = of(model)[1]
    variables["params"]["head"]["linear"]["bias"] += offset
    with pytest.raises(UserError, match="answers differently about the same input"):
        predict(model, variables, IMAGES, batch_size=12)


def test_weights_that_were_changed_in_place_are_asked_anew():
    model, variables = gated()
    variables = jax.tree.map(np.array, variables)
    predict(model, variables, IMAGES)
    variables["params"]["backbone"]["network"]["gate"][...] = 1.0
    with pytest.raises(UserError, match="answers differently about the same input"):
        predict(model, variables, IMAGES)


def test_what_is_asked_counts():
    model, variables = of(Classifier(Aside(), SquareLogitHead(num_classes=3)))
    detectors.outputs(model, variables, IMAGES)
    with pytest.raises(UserError, match="answers differently about the same input"):
        detectors.outputs(model, variables, IMAGES, maps=True)


class Aside(nn.Module):
    """One of its layers joins rows, and no logit sees it."""

    @nn.compact
    def __call__(self, images, *, train=False):
        Centred()(flat(images))
        return nn.relu(nn.Dense(8)(flat(images)))


class Centred(nn.Module):
    @nn.compact
    def __call__(self, x):
        return normed(x)


def test_one_far_input_does_not_hide_the_others():
    function = lambda x: jax.nn.relu(x - jnp.median(x, axis=0, keepdims=True))  # noqa: E731
    images = IMAGES[:12].copy()
    images[0] *= 1e6
    with pytest.raises(UserError, match="answers differently about the same input"):
        predict(*of(model_of(function)), images, batch_size=12)


def test_a_network_is_asked_once_and_the_librarys_own_never(monkeypatch):
    asked = []
    monkeypatch.setattr(companions, "require_alone", lambda *given, **_: asked.append(given))
    model, variables = of(model_of(lambda x: 3 * x))
    for _ in range(3):
        predict(model, variables, IMAGES)
    assert len(asked) == 1
    own = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,), dropout=0.5)
    for network in (own, models.MCDropout(own.backbone, own.head)):
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
