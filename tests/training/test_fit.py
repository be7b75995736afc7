"""Fitting that is stopped and goes on to the bit, what it refuses, how it is cut into calls, and its last look."""

import itertools
import warnings
from dataclasses import replace
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from preload_jax import Classifier, LinearHead, adapters, digests, fit, make_classifier, methods
from preload_jax.errors import UserError
from preload_jax.formats import checkpoints
from preload_jax.training import fit as fitting
from preload_jax.training import loop, run
from preload_jax.training.stage import Numbers, Settings
from tests import toy

IMAGES, LABELS, OUTLIERS = (np.asarray(x) for x in jax.tree.leaves(toy.data()))
METHODS = {
    "standard": {"epochs": 4},
    "preload": {"epochs": 4},
    "preload_ft": {"epochs": 2, "ood_head": Numbers(epochs=2, learning_rate=1e-1)},
    "doe_ft": {"epochs": 4, "warmup_epochs": 2},
}


@pytest.fixture(autouse=True)
def every_epoch_saved(monkeypatch):
    """However short epochs are."""
    monkeypatch.setattr(run, "SECONDS_BETWEEN_EPOCHS_SAVED", 0.0)


class Stopped(Exception):
    """What the caller's report raises."""


@pytest.fixture(scope="module")
def standard():
    return fit(toy.model("linear"), IMAGES, LABELS, epochs=2, batch_size=64)


def train(name, standard, *, stop_at=None, labels=LABELS, **options):
    """The variables, and how many reports came; it is stopped in one of them."""
    row, reports = methods.get(name), itertools.count(1)
    last = 0

    def on_report(report):
        nonlocal last
        last = next(reports)
        if last == stop_at:
            raise Stopped

    variables = standard if row.starts_from else None
    given = {"batch_size": 64, "learning_rate": 1e-2, **METHODS[name], **options}
    model = given.pop("model", None) or toy.model(row.head)
    outliers = OUTLIERS if row.uses_outliers else None
    return fit(model, IMAGES, labels, outliers, method=name, variables=variables, on_report=on_report, **given), last


@pytest.mark.parametrize(("name", "stops"), [("preload", (3,)), ("preload_ft", (2, 2)), ("doe_ft", (2, 2))], ids=str)
def test_stopped_and_gone_on_with_it_gives_the_same_bits(name, stops, standard, tmp_path):
    whole, reports = train(name, standard)
    assert reports == 4
    for stop_at in stops:
        with pytest.raises(Stopped):
            train(name, standard, stop_at=stop_at, checkpoint_dir=tmp_path)
    variables, rest = train(name, standard, checkpoint_dir=tmp_path)
    # The epoch in whose report it was stopped is not kept: it is repeated.
    assert rest == reports - sum(stop - 1 for stop in stops)
    chex.assert_trees_all_equal(variables, whole)
    # A finished one is read, and trains no more.
    again, rest = train(name, standard, checkpoint_dir=tmp_path)
    assert rest == 0
    chex.assert_trees_all_equal(again, whole)


def test_functions_made_anew_are_the_same_training(standard, tmp_path):
    """As in another process: their addresses are others, in the optimiser and in a backbone of one's own."""

    def given():
        own = Classifier(Activated(lambda x: jax.nn.relu(x)), LinearHead(3))
        return {"model": own, "optimizer": optax.adam(1e-2), "learning_rate": None, "checkpoint_dir": tmp_path}

    with pytest.raises(Stopped):
        train("standard", standard, stop_at=2, **given())
    _, rest = train("standard", standard, **given())
    assert rest == 3
    with pytest.raises(UserError, match="the checkpoint does not fit the model: opt_state"):
        train("standard", standard, **{**given(), "optimizer": optax.sgd(1e-2)})


class Activated(nn.Module):
    """A layer and a function."""

    function: Any

    @nn.compact
    def __call__(self, images, *, train=False):
        return self.function(nn.Dense(8, name="dense")(images.reshape(len(images), -1)))


@pytest.fixture
def begun(standard, tmp_path):
    """A folder with a training that was stopped."""
    with pytest.raises(Stopped):
        train("preload", standard, stop_at=2, checkpoint_dir=tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 2e-2}, "settings was .* learning_rate=0.01.* is .*learning_rate=0.02"),
        ({"seed": 1}, "settings was .* seed=0.* is .*seed=1"),
        ({"labels": (LABELS + 1) % 3}, r"labels was \d+, is \d+"),
        ({"model": make_classifier("mlp", "square_logit", num_classes=3, widths=(16, 8))}, "model was "),
    ],
)
def test_another_training_is_refused(change, message, begun, standard):
    before = checkpoints.load(begun)
    with pytest.raises(UserError, match=f"the stored training is another: {message}.*Set it as it was, or keep this"):
        train("preload", standard, checkpoint_dir=begun, **change)
    after = checkpoints.load(begun)
    assert digests.of_tree(after.tree, notes=after.notes) == digests.of_tree(before.tree, notes=before.notes)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (lambda: jax.default_prng_impl("rbg"), "jax_default_prng_impl was 'threefry2x32', is 'rbg'"),
        (lambda: toy.enable_x64(True), "jax_enable_x64 was False, is True"),
        (lambda: jax.default_matmul_precision("float32"), "jax_default_matmul_precision was None, is 'float32'"),
    ],
    ids=["prng", "x64", "precision"],
)
def test_settings_of_jax_that_change_numbers_are_refused(setting, message, begun, standard):
    with setting(), pytest.raises(UserError, match=message):
        train("preload", standard, checkpoint_dir=begun)


def test_what_changes_rounding_alone_is_said_and_it_goes_on(begun, standard, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_other=1")
    with pytest.warns(UserWarning, match="XLA_FLAGS was .*, is '--xla_cpu_other=1'"):
        _, reports = train("preload", standard, checkpoint_dir=begun)
    assert reports == 3


def test_a_damaged_state_costs_an_epoch_and_is_said(standard, tmp_path):
    whole, _ = train("preload", standard)
    with pytest.raises(Stopped):
        train("preload", standard, stop_at=4, checkpoint_dir=tmp_path)
    newest = max(tmp_path.iterdir(), key=lambda path: int(path.name))
    largest = max((newest / "state" / "d").iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="is damaged"):
        variables, reports = train("preload", standard, checkpoint_dir=tmp_path)
    assert reports == 2
    chex.assert_trees_all_equal(variables, whole)


@pytest.mark.parametrize(("backbone", "on_cpu"), [("lenet", 1), ("mlp", 200), ("wide_resnet", 1)])
def test_steps_of_a_call_on_a_cpu(backbone, on_cpu):
    model = make_classifier(backbone, "square_logit", num_classes=10)
    settings = Settings(methods.get("preload"), Numbers(epochs=2))
    (stage,) = fitting.plan_stages(model, settings, image_shape=(28, 28, 1), num_images=400 * 128)
    # Convolutions in a compiled loop are many times slower there; elsewhere an epoch is one call.
    assert stage.plan.steps_from(0) == (on_cpu if jax.default_backend() == "cpu" else 400)


def test_a_call_streams_no_more_than_it_may_hold():
    settings = Settings(methods.get("preload"), Numbers(epochs=2))
    shape = (32, 32, 3)
    (stage,) = fitting.plan_stages(
        toy.model(), settings, image_shape=shape, num_images=400 * 128, streamed=(shape, shape)
    )
    # 64 MiB are 85 steps of 256 such images; 80 of them divide the epoch.
    assert stage.plan.steps_from(0) == 80


def test_the_last_of_two_stages_counts_its_steps_from_the_first():
    settings = Settings(methods.get("preload_ft"), Numbers(epochs=2), ood_head=Numbers(epochs=3), batch_size=64)
    first, second = fitting.plan_stages(toy.model(), settings, image_shape=toy.SHAPE, num_images=256)
    assert (first.trainable, second.trainable) == ("ood_head", "all")
    assert (first.plan.total_steps, first.steps_before) == (12, 0)
    assert (second.plan.total_steps, second.steps_before) == (8, 12)
    limited = fitting.plan_stages(toy.model(), replace(settings, max_steps=5), image_shape=toy.SHAPE, num_images=256)
    assert [stage.plan.total_steps for stage in limited] == [5, 5]


def bias_of_the_ood_class(variables, value):
    head = variables["params"]["head"]
    ood = {**head["ood"], "bias": jnp.asarray(value, jnp.float32)}
    return {**variables, "params": {**variables["params"], "head": {**head, "ood": ood}}}


def test_it_warns_where_the_training_images_themselves_are_called_ood():
    model = toy.model()
    variables = loop.init_variables(model, toy.SHAPE, key=jax.random.key(0))
    said = []
    fitting.warn_if_all_ood(model, bias_of_the_ood_class(variables, 1e3), IMAGES, warn=said.append)
    (message,) = said
    assert message == (
        "training ended with 100 % of its own training images called OOD. Train longer, give the OOD class a smaller"
        " ood_weight, or look at the scale of the images, which [0, 1] is made for"
    )
    fitting.warn_if_all_ood(model, bias_of_the_ood_class(variables, -1e3), IMAGES, warn=said.append)
    assert len(said) == 1
    of_ones = make_classifier("mlp", "square_logit", num_classes=3, initial_scale="one", widths=model.backbone.widths)
    fitting.warn_if_all_ood(of_ones, bias_of_the_ood_class(variables, 1e3), IMAGES, warn=said.append)
    assert 'Train longer, start w\' lower (initial_scale="inverse_width"), give' in said.pop()
    linear = toy.model("linear")
    fitting.warn_if_all_ood(
        linear, loop.init_variables(linear, toy.SHAPE, key=jax.random.key(0)), IMAGES, warn=said.append
    )
    assert len(said) == 1


@pytest.mark.parametrize("as_placed", [np.asarray, jnp.asarray])
def test_images_of_every_class_are_asked_about_where_they_are_sorted(as_placed):
    model = toy.model()
    variables = loop.init_variables(model, toy.SHAPE, key=jax.random.key(0))
    dark, bright = np.zeros((1_000, *toy.SHAPE), np.uint8), np.full((3_000, *toy.SHAPE), 255, np.uint8)
    logits = np.asarray(model.apply(variables, jnp.asarray([dark[0], bright[0]], jnp.float32) / 255.0))
    # Where the OOD class has to be for it to win on bright images alone.
    gaps = logits[:, :-1].max(axis=1) - logits[:, -1]
    assert gaps[1] < gaps[0]
    bias = float(variables["params"]["head"]["ood"]["bias"]) + gaps.mean()
    said = []
    images = as_placed(np.concatenate([dark, bright]))
    fitting.warn_if_all_ood(model, bias_of_the_ood_class(variables, bias), images, warn=said.append)
    assert [message.partition(" %")[0] for message in said] == ["training ended with 75"]


def test_the_defaults_of_fit_work_together(standard):
    # A few epochs with no number given learn the classes and do not call everything OOD.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make_classifier("mlp", "square_logit", num_classes=3)
        variables = fit(model, IMAGES, LABELS, OUTLIERS, epochs=20, batch_size=32)
    logits = model.apply(variables, jnp.asarray(IMAGES, jnp.float32) / 255.0)
    assert (np.asarray(logits).argmax(axis=1) == LABELS).mean() > 0.9


class Counting(nn.Module):
    """A backbone with a collection of its own."""

    @nn.compact
    def __call__(self, images, *, train=False):
        self.variable("counts", "calls", lambda: jnp.zeros(()))
        return nn.relu(nn.Dense(4)(images.reshape(len(images), -1)))


def test_collections_that_training_does_not_know_are_refused():
    model = Classifier(Counting(), LinearHead(3))
    with pytest.raises(UserError, match="the network keeps variables in counts; training knows params and batch_stats"):
        fitting.check_features(model, (4, 4, 1))


def scaled_by(held):
    kernel = np.random.default_rng(0).normal(size=(int(np.prod(IMAGES.shape[1:])), 6)).astype(np.float32)

    def features(params, images):
        return jax.nn.relu(held["scale"] * images.reshape(images.shape[0], -1) @ params["kernel"])

    return Classifier(adapters.from_function(features, {"kernel": kernel}), LinearHead(3))


def test_a_function_that_changed_between_two_trainings_is_trained_as_it_is_now():
    held, numbers = {"scale": 1.0}, {"epochs": 1, "batch_size": 16}
    model = scaled_by(held)
    before = fit(model, IMAGES, LABELS, **numbers)
    held["scale"] = 3.0
    found, expected = (fit(each, IMAGES, LABELS, **numbers) for each in (model, scaled_by({"scale": 3.0})))
    chex.assert_trees_all_equal(found, expected)
    with pytest.raises(AssertionError):
        chex.assert_trees_all_close(found, before)
