"""Inputs that are no uint8 images: tables, normalised images, tokens; the front door takes them, or says why not."""

import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import (
    Classifier,
    LinearHead,
    SquareLogitHead,
    attach,
    detectors,
    evaluate,
    fit,
    guarantees,
    make_classifier,
    predict,
)
from preload_jax.data.specs import Augmentation
from preload_jax.errors import UserError
from preload_jax.models import WithDistance
from preload_jax.training.augment import Augmentations, Rays
from tests import toy

RNG = np.random.default_rng(0)
CLASSES = RNG.integers(0, 3, 240)
TABLE = (RNG.normal(size=(240, 5)) + 4.0 * np.eye(5)[CLASSES]).astype(np.float32)
ELSEWHERE = (4.0 * RNG.normal(size=(200, 5))).astype(np.float32)
MLP = make_classifier("mlp", "square_logit", num_classes=3, widths=(16,))
NUMBERS = {"epochs": 25, "batch_size": 32, "learning_rate": 1e-2}


class Bag(nn.Module):
    """Tokens [n, length] → the mean of their embeddings → features."""

    @nn.compact
    def __call__(self, tokens, *, train=False):
        return nn.relu(nn.Dense(16)(nn.Embed(50, 8)(tokens).mean(axis=1)))


PARITY = np.arange(200) % 2
TOKENS = RNG.integers(0, 10, (200, 6)) + 10 * PARITY[:, None]
OTHER_TOKENS = RNG.integers(20, 50, (150, 6))
TEXT = Classifier(Bag(), SquareLogitHead(2))


@pytest.fixture(scope="module")
def of_table():
    return fit(MLP, TABLE, CLASSES, ELSEWHERE, **NUMBERS)


@pytest.fixture(scope="module")
def of_text():
    return fit(TEXT, TOKENS, PARITY, OTHER_TOKENS, **NUMBERS)


def test_a_table_is_learned_and_far_away_is_ood(of_table):
    assert np.mean(predict(MLP, of_table, TABLE).label == CLASSES) > 0.95
    assert predict(MLP, of_table, 1e6 * TABLE).is_ood.all()
    results = evaluate(MLP, of_table, (TABLE, CLASSES), {"elsewhere": ELSEWHERE})
    assert results["in_domain"]["accuracy"] > 0.95
    assert results["ood"]["elsewhere"]["auroc"] > 0.9


def test_a_table_has_every_guarantee_and_any_detector(of_table):
    limits = guarantees.far_away_limit(MLP, of_table, RNG.normal(size=(20, 5)))
    assert (limits.winner == 3).all()
    outputs = detectors.outputs(MLP, of_table, TABLE)
    assert detectors.score(detectors.fit("knn", outputs, k=5), outputs).shape == (240,)


def test_the_type_of_floating_point_does_not_matter(of_table):
    for dtype in (np.float64, ">f4"):
        other = fit(MLP, TABLE.astype(dtype), CLASSES, ELSEWHERE.astype(dtype), **NUMBERS)
        np.testing.assert_array_equal(predict(MLP, other, TABLE).score, predict(MLP, of_table, TABLE).score)


def test_images_of_floats_train_as_the_same_images_of_uint8():
    data, model = toy.data(), toy.model()
    images, labels, outliers = (np.asarray(x) for x in (data.images, data.labels, data.outliers))
    ours = fit(model, images, labels, outliers, epochs=2)
    as_floats = fit(model, *(np.float32(x) / np.float32(255) for x in (images,)), labels,
                    np.float32(outliers) / np.float32(255), epochs=2)  # fmt: skip
    np.testing.assert_allclose(predict(model, as_floats, images).score, predict(model, ours, images).score, rtol=1e-4)


def test_normalised_images_can_be_flipped_and_cropped():
    data = toy.data()
    images, outliers = (np.asarray(x, np.float32) / 128 - 1 for x in (data.images, data.outliers))
    policy = Augmentation(flip=True, pad=1, mode="reflect", probability=0.5)
    augmentations = Augmentations(in_domain=policy, rays=Rays(share=0.5))
    variables = fit(toy.model(), images, np.asarray(data.labels), outliers, augmentations=augmentations, **NUMBERS)
    assert np.mean(predict(toy.model(), variables, images).label == np.asarray(data.labels)) > 0.8


def test_streamed_tables_train_to_the_bit_as_those_on_the_device(of_table):
    streamed, placed = (
        fit(MLP, TABLE, CLASSES, ELSEWHERE, data_placement=placement, **NUMBERS) for placement in ("host", "device")
    )
    for given in (streamed, placed):
        np.testing.assert_array_equal(predict(MLP, given, TABLE).score, predict(MLP, of_table, TABLE).score)


def test_tokens_go_to_the_network_as_they_are(of_text):
    for dtype in (np.int64, np.uint8, np.int16):
        predictions = predict(TEXT, of_text, TOKENS.astype(dtype))
        assert np.mean(predictions.label == PARITY) == 1.0
        assert predictions.is_ood.mean() < 0.1
    assert predict(TEXT, of_text, OTHER_TOKENS).is_ood.mean() > 0.9


def test_tokens_get_an_ood_class_beside_a_trained_network():
    plain = Classifier(Bag(), LinearHead(2))
    variables = fit(plain, TOKENS, PARITY, **NUMBERS)
    attached = attach(plain, variables, TOKENS, PARITY, OTHER_TOKENS, epochs=20, batch_size=32)
    assert np.isfinite(attached.bound.log_odds).all()
    before = predict(plain, variables, TOKENS).probabilities
    after = predict(attached.model, attached.variables, TOKENS)
    inside = after.probabilities / after.probabilities.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(inside, before, rtol=1e-5)


CROPS = Augmentations(in_domain=Augmentation(1.0, True, 0, "edge"))
FAR = Classifier(WithDistance(Bag()), SquareLogitHead(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: predict(TEXT, v, TOKENS.astype(np.float32)), "images of type float32; the network takes integers"),
        (lambda v: predict(TEXT, v, TOKENS + 50), "answers NaN for 200 of 200 images"),
        (lambda v: predict(TEXT, v, TOKENS + 2**40), "inputs run from 1099511627776 to .*; expected integers of 32"),
        (lambda v: fit(TEXT, TOKENS, PARITY, np.float32(OTHER_TOKENS)), "training outliers of type float32"),
        (lambda v: fit(MLP, TOKENS, PARITY, OTHER_TOKENS), "training images of type int64; expected uint8"),
        (lambda v: fit(MLP, TABLE, CLASSES, ELSEWHERE[:, :4]), r"outliers of shape \[4\]; expected \[5\]"),
        (lambda v: fit(MLP, TABLE, CLASSES, ELSEWHERE[:, None]), "expected the same number of axes"),
        (lambda v: fit(MLP, TABLE[:, 0], CLASSES, ELSEWHERE), r"training images are float32 \[240\]"),
        (lambda v: fit(MLP, TABLE > 0, CLASSES, ELSEWHERE), "training images of type bool"),
        (lambda v: fit(MLP, TABLE / 0.0 * 0.0, CLASSES, ELSEWHERE), "training images hold NaN"),
        (lambda v: fit(MLP, np.uint8(TABLE.clip(0)), CLASSES, ELSEWHERE), "images are uint8 and outliers float32"),
        (lambda v: fit(MLP, TABLE, CLASSES, ELSEWHERE, augmentations=CROPS), "flips and crops are for images"),
        (
            lambda v: fit(TEXT, TOKENS, PARITY, OTHER_TOKENS, augmentations=Augmentations(rays=Rays())),
            "rays start",
        ),
        (lambda v: detectors.outputs(TEXT, v, TOKENS, keep_images=True), "integers, such as tokens, have none"),
        (lambda v: guarantees.far_away_limit(TEXT, v, RNG.normal(size=(3, 6))), "no ray leads through them"),
        (lambda v: fit(FAR, TOKENS, PARITY, OTHER_TOKENS), "a distance between integers"),
    ],
)
def test_what_does_not_fit_is_refused(of_text, call, message):
    with pytest.raises(UserError, match=message), np.errstate(all="ignore"):
        call(of_text)


def test_outliers_of_another_scale_are_told():
    with pytest.warns(UserWarning, match="scale them alike"):
        fit(MLP, TABLE, CLASSES, 1e3 * ELSEWHERE, epochs=1)
    with pytest.warns(UserWarning, match="scale them alike"):
        fit(MLP, TABLE, CLASSES, lambda: iter([1e3 * ELSEWHERE]), epochs=1)


PICTURES = RNG.integers(0, 256, (48, 4, 4, 1), np.uint8)
OF_PICTURES = np.arange(48) % 3


def warned(call):
    """The warnings of a call, all of which are to point at this file."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert {each.filename for each in found} <= {__file__}
    return [str(each.message) for each in found]


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("attached", [False, True])
def test_images_of_another_scale_are_told_once_a_call(attached, in_batches):
    linear = make_classifier("mlp", "linear", num_classes=3, widths=(16,))
    variables = linear.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))

    def of(images, outliers):
        numbers = {"epochs": 1, "batch_size": 16}
        given = ([(images[:24], OF_PICTURES[:24]), (images[24:], OF_PICTURES[24:])], None, lambda: iter([outliers] * 2))
        given = given if in_batches else (images, OF_PICTURES, outliers)
        said = warned(lambda: attach(linear, variables, *given, **numbers) if attached else fit(MLP, *given, **numbers))
        # Of networks that have learned nothing.
        return [each for each in said if "called OOD" not in each and "which is chance" not in each]

    floats = PICTURES.astype(np.float32)
    ends = "; networks here are made for [0, 1] (uint8 is divided by 255). Scale them. If your network is made for such"
    ends = f"{ends} numbers, give it all images like these, in evaluation, too"
    said = of(floats, floats)
    assert said == [f"training images run from 0 to 255{ends}", f"training outliers run from 0 to 255{ends}"]
    of_few = (
        "uint8 and at most 15, and the network sees them divided by 255; scale them to 0 … 255, or give floating point"
    )
    said = of(PICTURES // 16, PICTURES)
    assert said[0] == f"training images are {of_few} in [0, 1]"
    assert "as the network sees them; scale them alike" in said[1]
    assert len(said) == 2
    assert of(PICTURES, PICTURES) == []


class Divides(nn.Module):
    """A network for 0 … 255 that was trained on images as they are."""

    by: float = 255.0

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.relu(nn.Dense(8)(images.reshape(images.shape[0], -1) / self.by))


def by_level(by):
    """A network that knows two levels of grey of images that it divides by a number, on uint8 images' own scale."""
    model = Classifier(Divides(by), LinearHead(2))
    kernel = np.zeros((16, 8), np.float32)
    kernel[:, 0] = 1.0 / 16
    head = {"kernel": np.zeros((8, 2), np.float32), "bias": np.array([0.5, 0.0], np.float32)}
    head["kernel"][0, 1] = 1.0
    backbone = {"Dense_0": {"kernel": kernel, "bias": np.zeros(8, np.float32)}}
    return model, {"params": {"backbone": backbone, "head": {"linear": head}}}


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("share_of_the_first", [0.5, 0.9])
def test_attach_tells_a_network_that_knows_no_more_than_chance(share_of_the_first, in_batches):
    labels = (np.arange(100) >= 100 * share_of_the_first).astype(np.int32)
    images = np.where(labels == 1, 200, 50).astype(np.uint8)[:, None, None, None] * np.ones((4, 4, 1), np.uint8)

    def said(by, images, labels):
        given = (images, labels) if not in_batches else ([(images, labels)], None)
        model, variables = by_level(by)
        told = warned(lambda: attach(model, variables, *given, images[::-1], epochs=1, batch_size=8))
        return [each for each in told if "which is chance" in each]

    (twice,) = said(255.0, images, labels)
    assert twice == (
        f"the network is right about {100 * share_of_the_first:.0f} % of 100 training images, which is chance. It sees"
        " uint8 images divided by 255: does it divide by 255 itself, too? Or are the labels in another order?"
    )
    assert said(1.0, images, labels) == []
    (of_numbers,) = said(255.0, (images / 255).astype(np.float32), labels)
    assert "Are the images scaled as they were when it was trained?" in of_numbers
    assert said(255.0, images.astype(np.float32), labels) == []
    # Of labels in another order, of one class alone, and of a few images.
    assert "Or are the labels in another order?" in said(1.0, images, 1 - labels)[0]
    assert said(1.0, images, np.zeros_like(labels)) == []
    assert said(255.0, images[-10:], labels[-10:]) == []


def test_classes_without_an_image_are_told():
    model = make_classifier("mlp", "linear", num_classes=5, widths=(4,))
    said = warned(lambda: fit(model, PICTURES, OF_PICTURES, epochs=1, batch_size=16))
    assert said == ["2 of 5 classes have no training image: 3, 4. Is num_classes right?"]


@pytest.mark.parametrize("in_batches", [False, True])
def test_channels_first_is_told(in_batches):
    images, labels = np.zeros((16, 3, 8, 8), np.uint8), np.arange(16) % 3
    given = ([(images, labels)],) if in_batches else (images, labels)
    with pytest.warns(UserWarning, match="channels first"):
        fit(make_classifier("mlp", "linear", num_classes=3, widths=(4,)), *given, epochs=1, batch_size=8)


def test_a_token_network_called_directly_takes_integers_and_no_bytes(of_text):
    logits = TEXT.apply(of_text, jnp.asarray(TOKENS, jnp.int32))
    assert logits.shape == (200, 3)
    with pytest.raises(TypeError, match="divide uint8 by 255"):
        TEXT.apply(of_text, jnp.asarray(TOKENS, jnp.uint8))
