"""A stage: what a method's row and numbers make together."""

import fractions
from dataclasses import replace

import chex
import jax
import numpy as np
import optax
import pytest

from preload_jax import methods
from preload_jax.errors import UserError
from preload_jax.training import stage
from preload_jax.training.optimizers import Optimizer
from preload_jax.training.plan import Plan
from preload_jax.training.stage import Numbers, Settings
from tests import toy


def stages(name, **changes):
    row = methods.get(name)
    settings = replace(Settings(row, Numbers(epochs=4), batch_size=64), **changes)
    return stage.stages(toy.model(row.head), settings, num_images=256)


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_has_the_stages_of_its_row_and_takes_a_step(name):
    planned = stages(name)
    assert [each.trainable for each in planned] == list(methods.get(name).stages)
    batch = toy.batch(32) if methods.get(name).uses_outliers else toy.batch(32)._replace(outliers=None)
    for each in planned:
        state = each.init_state(toy.loop.init_variables(each.model, toy.SHAPE, key=jax.random.key(0)))
        after, metrics = each.step(state, batch, jax.random.key(1), task=each.task, hyper=each.hyper)
        chex.assert_trees_all_equal_structs(after, state)
        chex.assert_tree_all_finite((after, metrics))
        assert int(after.step) == 1


def test_the_numbers_of_an_objective_are_those_that_it_takes():
    of = {name: stage.objective_numbers(methods.get(name), 0.3, -3.0, -1.0) for name in methods.METHODS}
    assert of["standard"] == {}
    assert of["energy_ft"] == {"ood_weight": 0.3, "margin_in": -3.0, "margin_ood": -1.0}
    for name in ("nc", "oe", "preload", "oe_ft", "doe_ft", "preload_ft"):
        assert of[name] == {"ood_weight": 0.3}
    assert of["focal"] == {"focal_gamma": 3.0}
    # Noise that a method makes itself has a λ; what its step takes is no number of the objective.
    assert of["acet"] == {"ood_weight": 0.3}
    assert stage.step_numbers(methods.get("acet")) == {"adversarial_epsilon": 0.3}
    assert of["mixup"] == {}
    assert stage.step_numbers(methods.get("mixup")) == {"mixup_alpha": 0.3}


def test_own_numbers_are_the_rows_or_those_given():
    (each,) = stages("focal")
    assert each.hyper.objective == {"focal_gamma": 3.0}
    (each,) = stages("acet", own={"adversarial_steps": 7})
    assert each.task.adversarial_steps == 7
    assert each.hyper.own == {"adversarial_epsilon": 0.3}
    for own, message in (
        ({"focal_gamma": 1.0}, "focal_gamma is for focal, the method is mixup; leave it out"),
        ({"gamma": 1.0}, "gamma is for no method, the method is mixup; leave it out"),
        ({"mixup_alpha": 0.0}, "mixup_alpha must be finite and above 0, got 0.0"),
    ):
        with pytest.raises(UserError, match=message):
            stages("mixup", own=own)


def test_the_learning_rate_falls_along_a_cosine_to_the_last_step():
    (each,) = stages("preload", numbers=Numbers(epochs=4, learning_rate=0.2))
    assert each.plan.total_steps == 16
    assert [each.learning_rate(step) for step in (0, 8, 16)] == pytest.approx([0.2, 0.1, 0.0], abs=1e-7)
    (own,) = stages("preload", numbers=Numbers(optimizer=optax.sgd(0.1)))
    assert own.learning_rate(0) is None


def test_the_warm_up_is_half_or_what_is_given_and_a_limit_shortens_it():
    for changes, expected in (
        ({}, 8),
        ({"warmup_epochs": 1}, 4),
        ({"warmup_epochs": 0}, 0),
        ({"warmup_epochs": 1, "max_steps": 8}, 2),
    ):
        (each,) = stages("doe_ft", **changes)
        assert each.plan.warmup_steps == expected


@pytest.mark.parametrize("optimizer", ["sgd", Optimizer("sgd", momentum=0.8), optax.sgd(1.0)])
def test_the_methods_limit_of_the_gradient_is_kept(optimizer):
    params = {"w": np.zeros(2, np.float32)}
    gradients = {"w": np.array([30.0, 40.0], np.float32)}
    found = {}
    for name in ("doe_ft", "oe_ft"):
        (each,) = stages(name, numbers=Numbers(optimizer=optimizer))
        with jax.numpy_dtype_promotion("standard"):
            found[name], _ = stage.steps.optimizers.updates(
                each.optimizer,
                gradients,
                stage.steps.optimizers.init(each.optimizer, params),
                params,
                weight_decay=0.0,
                learning_rate=1.0,
            )
    # DOE-FT's gradient, of norm 50, becomes one of norm 1; the others' stays.
    chex.assert_trees_all_close(found["oe_ft"]["w"], 50.0 * found["doe_ft"]["w"], rtol=1e-5)


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay", "ood_weight"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_numbers_that_make_no_sense(name, value):
    with pytest.raises(UserError, match=f"{name} must be finite and at least 0, got {value}"):
        Numbers(**{name: value})


def test_seeds_give_keys_of_their_own():
    data = [jax.random.key_data(key).tolist() for seed in (0, 1) for key in stage.keys(seed)]
    assert len({tuple(key) for key in data}) == 6


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize(
    "kind", [np.int8, np.uint8, np.int16, np.int64, np.array, jax.numpy.int32], ids=lambda kind: kind.__name__
)
def test_integers_of_any_type_are_pythons(kind):
    """Small ones would overflow in the number of steps, and arrays are no keys of compiled programs."""
    numbers = Numbers(epochs=kind(30))
    others = {"seed": kind(7), "max_steps": kind(100), "warmup_epochs": kind(2)}
    settings = Settings(methods.METHODS["doe_ft"], batch_size=kind(64), **others)
    images = np.array(6_400) if kind in (np.int8, np.uint8) else kind(6_400)  # More than eight bits hold.
    plan = Plan(images, kind(64), kind(30), max_steps_per_call=kind(50), max_steps=kind(100), warmup_steps=kind(4))
    assert plan == Plan(6_400, 64, 30, 50, 100, 4)
    assert Plan(6_400, kind(64), kind(30)).total_steps == 3_000
    given = [numbers.epochs, settings.batch_size, settings.seed, settings.max_steps, settings.warmup_epochs]
    given += [plan.num_images, plan.batch_size, plan.epochs, plan.max_steps_per_call, plan.max_steps, plan.warmup_steps]
    assert {type(number) for number in given} == {int}


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize(
    "kind", [fractions.Fraction, np.longdouble, np.float16, np.float64, np.array, jax.numpy.float32], ids=repr
)
def test_numbers_of_any_type_are_pythons(kind):
    numbers = Numbers(learning_rate=kind(0.25), weight_decay=kind(0.5), ood_weight=kind(2.0))
    settings = Settings(methods.METHODS["energy_ft"], margins=(kind(-1.0), kind(0.5)), perturbation_decay=kind(0.5))
    assert numbers == Numbers(learning_rate=0.25, weight_decay=0.5, ood_weight=2.0)
    given = [numbers.learning_rate, numbers.weight_decay, *settings.margins, settings.perturbation_decay]
    assert {type(number) for number in given} == {float}


@pytest.mark.usefixtures("unannotated")
@pytest.mark.parametrize("number", [10**400, -(10**400), fractions.Fraction(10**400)])
def test_numbers_that_no_float_holds_are_refused(number):
    with pytest.raises(UserError, match="learning_rate must be finite and at least 0, got "):
        Numbers(learning_rate=number)
    with pytest.raises(UserError, match="focal_gamma must be finite and at least 0, got "):
        Settings(methods.METHODS["focal"], own={"focal_gamma": number})
