"""What is an array of inputs and what are batches of them, and how batches are read."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import Classifier, LinearHead, SquareLogitHead, detectors, evaluate, fit, make_classifier, predict
from preload_jax.errors import UserError

SHAPE = (4, 4, 1)
IMAGES = np.random.default_rng(0).integers(0, 256, (10, *SHAPE), np.uint8)
LABELS = np.arange(10) % 3
MODEL = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,))
VARIABLES = MODEL.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
EXPECTED = predict(MODEL, VARIABLES, IMAGES)


class AnyRank(nn.Module):
    """Takes an image, and a batch of images as one, too."""

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.Dense(4)(images.reshape(images.shape[0], -1, 1).mean(axis=1))


@pytest.mark.parametrize(
    "given",
    [
        [IMAGES[:5], IMAGES[5:]],
        (IMAGES[:5], IMAGES[5:]),
        [IMAGES[:3], IMAGES[3:]],
        [IMAGES],
        [jnp.asarray(IMAGES[:5]), jnp.asarray(IMAGES[5:])],
        list(IMAGES),
        tuple(IMAGES),
        [{"image": IMAGES[:5]}, {"images": IMAGES[5:]}],
        [(IMAGES[:5], LABELS[:5]), (IMAGES[5:], LABELS[5:])],
    ],
)
def test_a_list_of_arrays_is_what_the_network_takes(given):
    found = predict(MODEL, VARIABLES, given)
    np.testing.assert_array_equal(found.label, EXPECTED.label)
    np.testing.assert_allclose(found.score, EXPECTED.score, rtol=1e-5)
    outputs = detectors.outputs(MODEL, VARIABLES, given)
    whole = [each[0] if isinstance(each, tuple) else each for each in outputs] if hasattr(outputs, "of_batch") else None
    logits = outputs.logits if whole is None else np.concatenate([each.logits for each in whole])
    assert len(logits) == 10
    of_set = evaluate(MODEL, VARIABLES, (IMAGES, LABELS), {"o": given})["ood"]["o"]
    assert of_set == evaluate(MODEL, VARIABLES, (IMAGES, LABELS), {"o": IMAGES})["ood"]["o"]


@pytest.mark.parametrize("rows", [np.ones((5, 7), np.float32), np.ones((7, 7), np.float32)])
def test_tables_come_in_lists_of_batches(rows):
    model = make_classifier("mlp", "linear", num_classes=3, widths=(8,))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 7)))
    assert predict(model, variables, [rows, rows]).label.shape == (2 * len(rows),)


def test_what_may_be_both_is_refused():
    model = Classifier(AnyRank(), LinearHead(3))
    variables = model.init(jax.random.key(0), jnp.zeros((1, *SHAPE)))
    given = [IMAGES[:5], IMAGES[5:]]
    for ask in (
        lambda: predict(model, variables, given),
        lambda: detectors.outputs(model, variables, given),
        lambda: evaluate(model, variables, (IMAGES, LABELS), {"o": given}),
    ):
        with pytest.raises(UserError, match=r"each of the 2 arrays \[5, 4, 4, 1\] of the list as one input, and as a"):
            ask()
    assert predict(model, variables, lambda: iter(given)).label.shape == (10,)
    assert predict(model, variables, [IMAGES[:3], IMAGES[3:]]).label.shape == (10,)


def test_two_inputs_are_no_inputs_with_labels():
    with pytest.raises(UserError, match=r"a batch is two arrays of one shape, \[4, 4, 1\]; expected inputs and labels"):
        predict(MODEL, VARIABLES, iter([[IMAGES[0], IMAGES[1]]]))


@pytest.mark.parametrize("labels", [LABELS, jnp.asarray(LABELS), list(LABELS)])
@pytest.mark.parametrize("pair", [tuple, list])
def test_inputs_with_labels_where_none_are_expected(pair, labels):
    given, why = pair((IMAGES, labels)), "are a pair of arrays, as of inputs and labels; .*leave the labels out"
    for ask, name in (
        (lambda: predict(MODEL, VARIABLES, given), "images"),
        (lambda: detectors.outputs(MODEL, VARIABLES, given), "images"),
        (lambda: evaluate(MODEL, VARIABLES, (IMAGES, LABELS), {"o": given}), "OOD set 'o': images"),
        (lambda: fit(MODEL, IMAGES, LABELS, given, epochs=1, batch_size=5), "training outliers"),
    ):
        with pytest.raises(UserError, match=f"{name} {why}"):
            ask()


@pytest.mark.parametrize("given", [{"image": IMAGES}, "x.npy", {1, 2}, b"abc", frozenset()])
def test_what_is_neither_array_nor_batches(given):
    kind = type(given).__name__
    for ask in (
        lambda: predict(MODEL, VARIABLES, given),
        lambda: detectors.outputs(MODEL, VARIABLES, given),
        lambda: evaluate(MODEL, VARIABLES, (IMAGES, LABELS), {"o": given}),
        lambda: fit(MODEL, IMAGES, LABELS, given, epochs=1),
    ):
        with pytest.raises(
            UserError, match=rf"(images|outliers|o): expected an array, or batches of arrays, not a {kind}"
        ):
            ask()
    if not isinstance(given, dict):
        with pytest.raises(UserError, match=f"in_domain: expected an array, or batches of arrays, not a {kind}"):
            evaluate(MODEL, VARIABLES, given)


def test_outliers_in_a_list_of_batches_are_batches():
    model = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,))
    for outliers in ([IMAGES[:5], IMAGES[5:]], [IMAGES], list(IMAGES)):
        found = fit(model, IMAGES, LABELS, outliers, epochs=1, batch_size=5)
        assert found["params"]["head"]["ood"]["raw_weights"].shape == (8,)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_tokens_below_zero_are_refused(dtype):
    class Tokens(nn.Module):
        @nn.compact
        def __call__(self, tokens, *, train=False):
            return nn.Embed(7, 4)(tokens).mean(axis=1)

    model, tokens = Classifier(Tokens(), SquareLogitHead(3)), np.zeros((4, 5), dtype)
    variables = model.init(jax.random.key(0), jnp.zeros((1, 5), jnp.int32))
    predict(model, variables, tokens)
    for least in (-1, -7):
        tokens[1, 2] = least
        for ask in (lambda: predict(model, variables, tokens), lambda: fit(model, tokens, LABELS[:4], tokens)):
            with pytest.raises(UserError, match=f"hold {least}; expected integers of at least 0: an embedding counts"):
                ask()
