"""Recipes: the paper's tables, the released code's values, overrides, and numbers that make no sense."""

from dataclasses import replace

import pytest

from experiments.run.command import Args, InitArgs, OptimizerArgs, resolve
from experiments.runs import configuration, recipes
from preload_jax.data import datasets
from preload_jax.data.specs import own_spec
from preload_jax.errors import UserError
from preload_jax.methods import METHODS


def recipe(dataset, method, name="paper"):
    return recipes.get(datasets.get(dataset), method, recipe=name)


@pytest.mark.parametrize(
    ("dataset", "method", "optimizer", "rate", "decay", "weight", "epochs"),
    [
        ("mnist", "standard", "adam", 1e-3, 5e-4, 1.0, 100),
        ("fashion_mnist", "oe", "adam", 1e-3, 5e-4, 0.5, 100),
        ("svhn", "nc", "sgd", 1e-1, 5e-4, 1.0, 100),
        ("svhn", "preload", "sgd", 1e-1, 5e-4, 1.0, 100),
        ("cifar10", "preload", "sgd", 7.3e-2, 7.6e-4, 1.0, 100),
        ("cifar100", "preload", "sgd", 4.5e-1, 1.2e-4, 1.0, 100),
        ("cifar10", "oe_ft", "sgd", 1e-3, 5e-4, 0.5, 10),
        ("cifar100", "doe_ft", "sgd", 1e-3, 5e-4, 1.0, 10),
        ("mnist", "energy_ft", "adam", 1e-3, 5e-4, 0.1, 10),
        ("mnist", "preload_ft", "adam", 4.1e-3, 3.1e-4, 8.0e-1, 10),
        ("fashion_mnist", "preload_ft", "adam", 6.0e-3, 2.5e-4, 2.6e-2, 10),
        ("svhn", "preload_ft", "sgd", 2.9e-2, 2.8e-6, 2.2e-1, 10),
        ("cifar10", "preload_ft", "sgd", 6.1e-2, 1.8e-6, 2.0e-2, 10),
        ("cifar100", "preload_ft", "sgd", 6.3e-3, 1.1e-4, 2.3e-2, 10),
    ],
)
def test_the_papers_tables(dataset, method, optimizer, rate, decay, weight, epochs):
    config = recipe(dataset, method)
    got = (config.optimizer.name, config.optimizer.learning_rate, config.optimizer.weight_decay)
    assert got == (optimizer, rate, decay)
    assert (config.ood_weight, config.epochs, config.batch_size) == (weight, epochs, 128)
    assert (config.warmup_epochs, config.perturbation_decay, config.dropout) == (5, 0.6, 0.3)
    assert (config.validation, config.far_distance, config.max_steps) == ("test", 1e4, None)
    if method == "preload_ft":
        # PreLoad-FT-Init has the same row in the paper's tables.
        assert config.init.optimizer == config.optimizer
        assert (config.init.ood_weight, config.init.epochs) == (weight, 10)


@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist", "svhn", "cifar10", "cifar100"])
def test_rounded_the_released_values_are_the_papers(dataset):
    for method in ("preload", "preload_ft", "energy_ft"):
        paper, released = recipe(dataset, method), recipe(dataset, method, "released_code")
        numbers = [
            (
                config.optimizer.learning_rate,
                config.optimizer.weight_decay,
                config.ood_weight,
                config.margin_in,
                config.margin_ood,
            )
            for config in (paper, released)
        ]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.04)


@pytest.mark.parametrize(
    ("dataset", "margin_in", "margin_ood"),
    [
        ("mnist", -3.6, -25.0),
        ("fashion_mnist", -0.064, -4.0),
        ("svhn", -5.7, -12.3),
        ("cifar10", -9.9, -5.7),
        ("cifar100", -14.5, -10.3),
        ("digits", -10.0, -4.0),  # our own
    ],
)
def test_margins(dataset, margin_in, margin_ood):
    config = recipe(dataset, "energy_ft")
    assert (config.margin_in, config.margin_ood) == (margin_in, margin_ood)


@pytest.mark.parametrize(
    ("dataset", "tuned", "init"),
    [
        ("mnist", (4.0514e-3, 3.1064e-4, 0.79681), (6.9247e-2, 4.6938e-5, 0.12460)),
        ("fashion_mnist", (5.9739e-3, 2.4644e-4, 0.025651), (1.9896e-2, 4.8602e-4, 0.012899)),
        ("svhn", (2.9249e-2, 2.8464e-6, 0.22348), (3.1596e-3, 2.8239e-4, 0.022376)),
        ("cifar10", (6.1191e-2, 1.7688e-6, 0.019557), (5.1164e-3, 1.4751e-4, 0.024840)),
        ("cifar100", (6.2893e-3, 1.1419e-4, 0.022592), (1.5751e-2, 1.8836e-6, 0.012846)),
    ],
)
def test_the_released_codes_values_of_preload_ft(dataset, tuned, init):
    config = recipe(dataset, "preload_ft", "released_code")
    for stage, expected in ((config, tuned), (config.init, init)):
        assert (stage.optimizer.learning_rate, stage.optimizer.weight_decay, stage.ood_weight) == expected
    assert config.init.optimizer.name == "adam"


def test_the_released_codes_other_values():
    for dataset, rate, decay in (("cifar10", 7.3521e-2, 7.5692e-4), ("cifar100", 4.4977e-1, 1.1859e-4)):
        optimizer = recipe(dataset, "preload", "released_code").optimizer
        assert (optimizer.learning_rate, optimizer.weight_decay) == (rate, decay)
    margins = {
        "mnist": (-3.6221, -25.048),
        "fashion_mnist": (-0.064259, -4.0295),
        "svhn": (-5.6758, -12.315),
        "cifar10": (-9.8971, -5.7418),
        "cifar100": (-14.494, -10.346),
    }
    for dataset, expected in margins.items():
        config = recipe(dataset, "energy_ft", "released_code")
        assert (config.margin_in, config.margin_ood) == expected


@pytest.mark.parametrize(
    ("shape", "num_classes", "like"),
    [((28, 28, 1), 2, "fashion_mnist"), ((64, 64, 3), 50, "cifar10"), ((64, 64, 3), 51, "cifar100")],
)
def test_ones_own_images_take_the_numbers_of_the_set_most_like_them(shape, num_classes, like):
    own = own_spec("mine.npz", image_shape=shape, class_names=tuple(map(str, range(num_classes))))
    for method in ("preload", "energy_ft", "preload_ft"):
        config, expected = recipes.get(own, method), recipe(like, method)
        assert config.data == own
        assert replace(config, dataset=like, data=expected.data, outliers="random_images_300k") == expected


def test_what_the_released_code_does_otherwise():
    released = recipe("cifar10", "preload_ft", "released_code")
    assert released.init.optimizer == configuration.OptimizerConfig("adam", 5.1164e-3, 1.4751e-4)
    assert released.init.ood_weight == 0.024840
    assert (released.ddu_jitter, released.released_code_ece, released.head_scale) == (0.1, True, "one")
    paper = recipe("cifar10", "preload_ft")
    assert (paper.ddu_jitter, paper.released_code_ece, paper.head_scale) == (None, False, "inverse_width")
    assert recipe("cifar10", "oe", "released_code").oe_class_mean
    assert recipe("cifar10", "oe_ft", "released_code").oe_class_mean
    assert not recipe("cifar10", "doe_ft", "released_code").oe_class_mean
    assert not recipe("cifar10", "oe").oe_class_mean


@pytest.mark.parametrize("dataset", datasets.DATASETS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_cell_has_a_recipe_that_survives_json(dataset, method, name):
    config = configuration.check(recipe(dataset, method, name))
    assert configuration.from_dict(configuration.as_dict(config)) == config


def test_an_override_wins_and_the_rest_is_the_recipes():
    args = Args(
        dataset="cifar10",
        method="preload_ft",
        ood_weight=0.7,
        optimizer=OptimizerArgs(learning_rate=0.01),
        init=InitArgs(epochs=3, optimizer=OptimizerArgs(name="adam")),
    )
    config, plain = resolve(args), recipe("cifar10", "preload_ft")
    expected = replace(
        plain,
        ood_weight=0.7,
        optimizer=replace(plain.optimizer, learning_rate=0.01),
        init=replace(plain.init, epochs=3, optimizer=replace(plain.init.optimizer, name="adam")),
    )
    assert config == expected


def test_warm_up_keeps_its_proportion():
    assert resolve(Args(method="doe_ft")).warmup_epochs == 5
    assert resolve(Args(method="doe_ft", epochs=4)).warmup_epochs == 2
    assert resolve(Args(method="doe_ft", epochs=4, warmup_epochs=1)).warmup_epochs == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ood_weight": -1.0}, "--ood-weight must be finite and at least 0, got -1.0"),
        ({"ood_weight": float("inf")}, "--ood-weight must be finite and at least 0, got inf"),
        ({"margin_in": float("nan")}, "--margin-in must be finite, got nan"),
        ({"margin_ood": float("-inf")}, "--margin-ood must be finite, got -inf"),
        ({"epochs": 0}, "--epochs must be at least 1, got 0"),
        ({"init": InitArgs(epochs=0)}, "--init.epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "--batch-size must be at least 1, got 0"),
        (
            {"optimizer": OptimizerArgs(name="lion")},
            r"unknown --optimizer.name 'lion'; expected one of \['sgd', 'adam'\]",
        ),
        ({"optimizer": OptimizerArgs(learning_rate=-1.0)}, "--optimizer.learning-rate must be finite and at least 0"),
        ({"init": InitArgs(ood_weight=-1.0)}, "--init.ood-weight must be finite and at least 0"),
        ({"perturbation_decay": 2.0, "method": "doe_ft"}, "--perturbation-decay must be finite and at least 0 and at"),
        ({"far_distance": 1e16}, r"--far-distance must be finite and at least 0 and at most 1e\+15"),
        ({"head_scale": "big"}, "unknown --head-scale 'big'"),
        ({"precision": "float8"}, "unknown --precision 'float8'"),
        ({"seed": -1}, "seed must be between 0 and 4294967295, got -1"),
        ({"method": "preloda"}, r"unknown method 'preloda'; expected one of \['standard'"),
        ({"recipe": "mine"}, r"unknown recipe 'mine'; expected one of \['paper', 'released_code'\]"),
        ({"dataset": "fashoin_mnist"}, r"unknown dataset 'fashoin_mnist' \(did you mean 'fashion_mnist'\?\)"),
    ],
)
def test_numbers_that_make_no_sense(change, message):
    with pytest.raises(UserError, match=message):
        resolve(Args(**change))


def test_a_configuration_of_another_version():
    values = configuration.as_dict(recipe("digits", "preload"))
    with pytest.raises(UserError, match="written by another version"):
        configuration.from_dict({**values, "momentum": 1})
    with pytest.raises(UserError, match="written by another version"):
        configuration.from_dict({name: value for name, value in values.items() if name != "optimizer"})
