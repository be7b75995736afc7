"""The front door: fit, attach, predict and evaluate on arrays, a backbone of the user's own, and wrong input."""

import subprocess
import sys

import flax.linen as nn
import jax
import numpy as np
import pytest

import preload_jax
from preload_jax import Classifier, LinearHead, SquareLogitHead, attach, evaluate, fit, guarantees, predict
from preload_jax.errors import UserError
from tests import toy

DATA = toy.data()
IMAGES, LABELS, OUTLIERS = (np.asarray(x) for x in (DATA.images, DATA.labels, DATA.outliers))


class OwnBackbone(nn.Module):
    """What a user has: any module from images to features."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.Dense(24)(images.reshape(len(images), -1))
        return nn.relu(nn.Dense(16)(nn.relu(x)))


MODEL = Classifier(OwnBackbone(), SquareLogitHead(3, initial_scale="inverse_width"))
PLAIN = Classifier(OwnBackbone(), LinearHead(3))


@pytest.fixture(scope="module")
def trained():
    return fit(MODEL, IMAGES, LABELS, OUTLIERS, epochs=12, batch_size=32, learning_rate=1e-2)


@pytest.fixture(scope="module")
def standard():
    return fit(PLAIN, IMAGES, LABELS, epochs=12, batch_size=32, learning_rate=1e-2)


def test_a_backbone_of_the_users_own_learns_and_knows_what_it_does_not_know(trained):
    near = predict(MODEL, trained, IMAGES)
    assert (near.label == LABELS).mean() > 0.95
    assert near.is_ood.mean() < 0.1
    np.testing.assert_allclose(near.probabilities.sum(axis=1) + near.ood_probability, 1.0, rtol=1e-5)
    far = predict(MODEL, trained, 1e4 * IMAGES.astype(np.float32))
    assert far.is_ood.all()
    assert far.score.max() < near.score.min()


def test_without_an_ood_class(standard):
    said = predict(PLAIN, standard, IMAGES)
    assert said.is_ood is None
    assert said.ood_probability is None
    half = float(np.median(said.score))
    np.testing.assert_array_equal(predict(PLAIN, standard, IMAGES, threshold=half).is_ood, said.score < half)
    np.testing.assert_allclose(said.probabilities.sum(axis=1), 1.0, rtol=1e-5)


def test_attach_leaves_the_network_untouched_and_certifies_it(standard):
    attached = attach(PLAIN, standard, IMAGES, LABELS, OUTLIERS, epochs=15, batch_size=32)
    for part in ("backbone", "head"):
        given, kept = standard["params"][part], dict(attached.variables["params"][part])
        kept.pop("ood", None)
        for a, b in zip(jax.tree.leaves(given), jax.tree.leaves(kept), strict=True):
            np.testing.assert_array_equal(a, b)
    said = predict(attached.model, attached.variables, IMAGES)
    assert (said.label == predict(PLAIN, standard, IMAGES).label).all()
    assert predict(attached.model, attached.variables, 1e4 * IMAGES.astype(np.float32)).is_ood.all()
    assert np.isfinite(attached.bound.log_odds).all()


class Signed(nn.Module):
    """A backbone whose features may be negative."""

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.Dense(4)(images.reshape(len(images), -1))


def test_the_bound_of_attach_holds_where_features_are_negative():
    model = Classifier(Signed(), LinearHead(3))
    given = fit(model, IMAGES, LABELS, epochs=5, batch_size=32, learning_rate=1e-2)
    attached = attach(model, given, IMAGES, LABELS, OUTLIERS, epochs=2, batch_size=32)
    most = guarantees.confidence_bound(attached.variables["params"]["head"], nonnegative=False)
    # Inputs whose embeddings are the most confident ones of all.
    dense = jax.tree.map(lambda x: np.asarray(x, np.float64), given["params"]["backbone"]["Dense_0"])
    inputs = np.linalg.lstsq(dense["kernel"].T, (most.embeddings - dense["bias"]).T, rcond=None)[0].T
    p = predict(attached.model, attached.variables, inputs.reshape(-1, *toy.SHAPE)).probabilities
    found = np.diag(np.log(p) - np.log1p(-p))
    np.testing.assert_allclose(found, most.log_odds, rtol=1e-3, atol=1e-3)
    assert (found <= attached.bound.log_odds + 1e-3).all()
    assert (most.embeddings < 0.0).any()


def test_evaluate_takes_arrays_and_batches(trained):
    ood = {"outliers": OUTLIERS, "far": 1e4 * OUTLIERS.astype(np.float32)}
    whole = evaluate(MODEL, trained, (IMAGES, LABELS), ood)
    batches = ((IMAGES[i : i + 50], LABELS[i : i + 50]) for i in range(0, len(IMAGES), 50))
    assert evaluate(MODEL, trained, batches, ood) == whole
    assert whole["in_domain"]["accuracy"] > 0.95
    assert whole["ood"]["far"]["fpr95"] == 0.0
    assert whole["ood"]["outliers"]["size"] == len(OUTLIERS)
    both = evaluate(MODEL, trained, (IMAGES, LABELS), ood, ood_positive=True)["ood"]["outliers"]
    assert both.keys() - whole["ood"]["outliers"].keys() == {"fpr95_ood_positive", "aupr_ood_positive"}
    assert both["fpr95"] == whole["ood"]["outliers"]["fpr95"]


def test_reports_come_once_an_epoch():
    epochs = []
    fit(PLAIN, IMAGES, LABELS, epochs=3, batch_size=64, on_report=lambda report: epochs.append(report.epoch))
    assert epochs == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit(MODEL, IMAGES, LABELS), "preload trains with auxiliary OOD images; give outliers"),
        (lambda: fit(MODEL, IMAGES, LABELS + 1, OUTLIERS), "labels run from 1 to 3"),
        (lambda: fit(MODEL, IMAGES / 255.0, LABELS, OUTLIERS), "training images are float"),
        (lambda: fit(MODEL, IMAGES, LABELS, OUTLIERS, batch_size=1000), "batch_size 1000 is larger than the data"),
        (lambda: fit(MODEL, IMAGES, LABELS, OUTLIERS, method="magic"), "unknown method 'magic'"),
        (lambda: attach(MODEL, {}, IMAGES, LABELS, OUTLIERS), "attach needs a classifier with a LinearHead"),
        (lambda: evaluate(MODEL, {}, []), "no in-domain images"),
        (lambda: predict(MODEL, {}, IMAGES, threshold=0.0), "threshold is for networks without an OOD class"),
    ],
)
def test_wrong_input(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_every_public_name_is_there_and_importing_is_quick():
    for name in preload_jax.__all__:
        assert getattr(preload_jax, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = preload_jax.fitt
    code = "import time; t = time.monotonic(); import preload_jax; print(time.monotonic() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.0
