"""The front door: fit, attach, predict and evaluate on arrays, a backbone of the user's own, and wrong input."""

import itertools
import subprocess
import sys
import warnings

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.metrics import roc_auc_score

import preload_jax
from preload_jax import Classifier, LinearHead, SquareLogitHead, attach, detectors, evaluate, fit, guarantees, predict
from preload_jax.devices import forward
from preload_jax.errors import UserError
from preload_jax.models import WithDistance
from preload_jax.training.stage import Numbers
from tests import toy

DATA = toy.data()
IMAGES, LABELS, OUTLIERS = ALL = tuple(np.asarray(x) for x in (DATA.images, DATA.labels, DATA.outliers))


class FixedNorm(nn.Module):
    """Batch norm that takes a batch's own moments when it is asked, too."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = images.reshape(images.shape[0], -1)
        return nn.Dense(4)(nn.BatchNorm(use_running_average=False)(x))


def test_batch_norm_that_obeys_no_train_is_told():
    words = r"changes its variables when it is asked .*; let train decide, as in nn.BatchNorm\(use_running_average=not"
    with pytest.raises(UserError, match=words):
        fit(Classifier(FixedNorm(), SquareLogitHead(3)), *ALL, epochs=1, batch_size=32)


@pytest.mark.parametrize("form", ["array", "batches"])
def test_the_warning_of_range_points_at_the_caller(form):
    model = toy.model()
    variables = model.init(jax.random.key(0), jnp.zeros((1, *toy.SHAPE)))
    images, labels = IMAGES.astype(np.float32), LABELS
    for call in (
        lambda: predict(model, variables, images if form == "array" else lambda: iter([images])),
        lambda: evaluate(model, variables, (images, labels) if form == "array" else [(images, labels)]),
    ):
        with pytest.warns(UserWarning, match="images run from 21 to 229; networks here are made for") as said:
            call()
        assert [each.filename for each in said] == [__file__]


class OwnBackbone(nn.Module):
    """What a user has: any module from images to features."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.Dense(24)(images.reshape(len(images), -1))
        return nn.relu(nn.Dense(16)(nn.relu(x)))


class Maps(nn.Module):
    """Leaves out the pooling."""

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.Conv(5, (3, 3))(images)


class Whole(nn.Module):
    """Makes one vector of all images."""

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.Dense(8)(images.reshape(1, -1))


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


def test_energy_ft_is_evaluated_by_its_own_score(standard):
    variables = fit(
        PLAIN,
        *ALL,
        method="energy_ft",
        variables=standard,
        margin_in=-8.0,
        margin_ood=-1.0,
        ood_weight=1.0,
        epochs=4,
        batch_size=32,
    )
    ood = {"outliers": OUTLIERS}
    found = evaluate(PLAIN, variables, (IMAGES, LABELS), ood, score="negative_energy")["ood"]["outliers"]
    energies = [predict(PLAIN, variables, x, score="negative_energy").score for x in (IMAGES, OUTLIERS)]
    is_in = np.arange(len(IMAGES) + len(OUTLIERS)) < len(IMAGES)
    assert found["auroc"] == pytest.approx(roc_auc_score(is_in, np.concatenate(energies)), abs=1e-5)
    # Trained apart, beyond what it was before.
    assert found["auroc"] > 0.9
    before = evaluate(PLAIN, standard, (IMAGES, LABELS), ood, score="negative_energy")["ood"]["outliers"]
    assert found["auroc"] > before["auroc"]
    assert energies[0].mean() - energies[1].mean() > 1.0


def test_ddu_is_evaluated_by_its_own_score(standard):
    _, features = forward.predict(PLAIN, standard, IMAGES, features=True)
    gaussians = detectors.fit("ddu", detectors.Outputs(features), LABELS)
    ood = {"far": 1e4 * IMAGES.astype(np.float32)}
    found = evaluate(PLAIN, standard, (IMAGES, LABELS), ood, score=gaussians)
    assert found["ood"]["far"]["fpr95"] == 0.0
    # Far away the network itself is as sure as it can be.
    assert evaluate(PLAIN, standard, (IMAGES, LABELS), ood)["ood"]["far"]["fpr95"] > 0.9
    np.testing.assert_allclose(
        predict(PLAIN, standard, IMAGES, score=gaussians).score,
        detectors.score(gaussians, detectors.Outputs(features)),
        rtol=1e-5,
    )


def test_preload_ft_trains_the_ood_class_alone_and_then_everything(standard):
    states = []
    variables = fit(
        MODEL,
        *ALL,
        method="preload_ft",
        variables=standard,
        epochs=2,
        batch_size=32,
        ood_head=Numbers(epochs=3, learning_rate=1e-1, weight_decay=0.0),
        on_report=lambda report: states.append(jax.tree.map(np.array, report.state.params)),
    )
    assert len(states) == 3 + 2
    for state in states[:3]:
        head = {"linear": state["head"]["linear"]}
        chex.assert_trees_all_equal(
            (state["backbone"], head), (standard["params"]["backbone"], standard["params"]["head"])
        )
    weights = [state["head"]["ood"]["raw_weights"] for state in states]
    assert all((a != b).any() for a, b in itertools.pairwise(weights))
    for part in ("backbone", "head"):
        kernels = [jax.tree.leaves(state[part])[-1] for state in (states[2], states[-1])]
        assert (kernels[0] != kernels[1]).any()
    chex.assert_trees_all_equal(variables["params"], states[-1])
    said = predict(MODEL, variables, IMAGES)
    assert (said.label == LABELS).mean() > 0.9
    assert said.is_ood.mean() < 0.2


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_any_transformation_of_optax_trains(name):
    total = 2 * (len(IMAGES) // 32)
    moments = optax.scale_by_adam() if name == "adam" else optax.trace(0.9, nesterov=True)
    schedule = optax.cosine_decay_schedule(1e-2, total)
    given = optax.chain(optax.add_decayed_weights(5e-4), moments, optax.scale_by_learning_rate(schedule))
    numbers = {"epochs": 2, "batch_size": 32}
    ours = fit(MODEL, *ALL, optimizer=name, learning_rate=1e-2, weight_decay=5e-4, **numbers)
    chex.assert_trees_all_close(fit(MODEL, *ALL, optimizer=given, **numbers), ours, rtol=1e-4, atol=1e-6)


def test_variables_without_batch_statistics_are_taken():
    bare = {"params": PLAIN.init(jax.random.key(0), jnp.zeros((1, *toy.SHAPE)))["params"]}
    assert fit(PLAIN, IMAGES, LABELS, variables=bare, epochs=1)["batch_stats"] == {}


def test_reports_come_once_an_epoch():
    epochs = []
    fit(PLAIN, IMAGES, LABELS, epochs=3, batch_size=64, on_report=lambda report: epochs.append(report.epoch))
    assert epochs == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit(MODEL, IMAGES, LABELS), "preload trains with auxiliary OOD images; give outliers"),
        (lambda: fit(PLAIN, *ALL, method="preload"), "preload trains a square-logit head, the network has a linear he"),
        (lambda: fit(MODEL, *ALL, method="oe"), "oe trains a linear head, the network has a square-logit head"),
        (lambda: fit(PLAIN, *ALL, method="nc"), "nc trains a none-class head, the network has a linear head"),
        (
            lambda: fit(Classifier(Maps(), SquareLogitHead(3)), *ALL),
            r"features of shape \[2, 4, 4, 5\] of 2 images; expe",
        ),
        (
            lambda: fit(Classifier(Whole(), SquareLogitHead(3)), *ALL),
            r"features of shape \[1, 8\] of 2 images; expected",
        ),
        (lambda: fit(MODEL, *ALL, learning_rate=-1.0), "learning_rate must be finite and at least 0, got -1.0"),
        (lambda: fit(MODEL, *ALL, learning_rate=float("nan")), "learning_rate must be finite and at least 0, got nan"),
        (lambda: fit(MODEL, *ALL, weight_decay=-1.0), "weight_decay must be finite and at least 0, got -1.0"),
        (lambda: fit(MODEL, *ALL, ood_weight=float("inf")), "ood_weight must be finite and at least 0, got inf"),
        (lambda: fit(MODEL, *ALL, margin_in=-3.0), "margin_in is for energy_ft, the method is preload; leave it out"),
        (lambda: fit(MODEL, *ALL, warmup_epochs=1), "warmup_epochs is for doe_ft, the method is preload; leave it out"),
        (lambda: fit(MODEL, *ALL, ood_head=Numbers()), "ood_head is for preload_ft and preload_certified_ft"),
        (lambda: fit(PLAIN, *ALL, method="energy_ft", variables={}), "energy_ft needs margin_in and margin_ood"),
        (lambda: fit(PLAIN, *ALL, method="ddu"), r'ddu trains nothing: fit\(..., method="standard"\), and score with'),
        (lambda: fit(MODEL, *ALL, method="preload_ft"), "preload_ft starts from a trained network; give variables"),
        (lambda: fit(PLAIN, *ALL, method="oe_ft"), "oe_ft starts from a trained network; give variables"),
        (lambda: fit(MODEL, *ALL, optimizer="lion"), "unknown optimizer 'lion'"),
        (
            lambda: fit(MODEL, *ALL, optimizer=optax.adam(1e-3), learning_rate=1e-3),
            "an Optax transformation has its own learning rate and weight decay; leave out those given",
        ),
        (lambda: fit(PLAIN, IMAGES, LABELS, ood_weight=0.5), "ood_weight is λ of the outliers, and standard uses none"),
        (lambda: evaluate(PLAIN, {}, (IMAGES, LABELS), score="entropy"), "unknown score 'entropy'; expected one of"),
        (
            lambda: predict(PLAIN, {}, IMAGES, score="in_domain_probability"),
            "the score in_domain_probability is of the OOD class, and the network has none",
        ),
        (lambda: fit(MODEL, IMAGES, LABELS + 1, OUTLIERS), "labels run from 1 to 3"),
        (lambda: fit(MODEL, IMAGES / 255.0, LABELS, OUTLIERS), "training images are float"),
        (lambda: fit(MODEL, IMAGES, LABELS, OUTLIERS, batch_size=1000), "batch_size 1000 is larger than the data"),
        (lambda: fit(MODEL, IMAGES, LABELS, OUTLIERS, method="magic"), "unknown method 'magic'"),
        (lambda: attach(MODEL, {}, IMAGES, LABELS, OUTLIERS), "attach needs a Classifier with a LinearHead"),
        (lambda: evaluate(MODEL, {}, []), "no in-domain images"),
        (lambda: predict(MODEL, {}, IMAGES, threshold=0.0), "threshold is for networks without an OOD class"),
    ],
)
def test_wrong_input(call, message):
    with pytest.raises(UserError, match=message):
        call()


NESTED_OTHERWISE = {
    "flat": lambda v: {"params": {**v["params"]["backbone"], "out": v["params"]["head"]["linear"]}},
    "without a head": lambda v: {"params": {"backbone": v["params"]["backbone"]}},
    "a head that is an array": lambda v: {"params": {**v["params"], "head": np.zeros(3)}},
    "a head alone": lambda v: {"params": {"head": v["params"]["head"]}},
    "statistics that are an array": lambda v: {**v, "batch_stats": {"backbone": np.zeros(3)}},
    "another kernel": lambda v: {
        "params": {
            **v["params"],
            "head": {"linear": {"kernel": np.zeros((3, 2), np.float32), "bias": np.zeros(2, np.float32)}},
        }
    },
}


@pytest.mark.parametrize("nested", NESTED_OTHERWISE)
@pytest.mark.parametrize("form", ["array", "batches"])
@pytest.mark.parametrize("distance", [None, 1.0])
def test_variables_that_do_not_fit_are_refused_before_anything_is_warned_of(standard, nested, form, distance):
    given = NESTED_OTHERWISE[nested](standard)
    # Of the first class alone, which is warned of where the variables fit.
    data = (IMAGES, 0 * LABELS) if form == "array" else ([(IMAGES, 0 * LABELS)], None)
    model = Classifier(PLAIN.backbone if distance is None else WithDistance(PLAIN.backbone), PLAIN.head)
    grown = Classifier(model.backbone, SquareLogitHead(3))
    numbers = {"epochs": 1, "batch_size": 32}
    for call in (
        lambda: attach(model, given, *data, OUTLIERS, **numbers),
        lambda: fit(model, *data, variables=given, **numbers),
        lambda: fit(grown, *data, OUTLIERS, variables=given, method="preload_ft", **numbers),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserError, match=r"params/|batch_stats/|in \"/head/linear\""):
                call()


def test_importing_is_quick():
    code = "import sys, preload_jax; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = preload_jax.fitt
