"""Recipes: the paper's tables, the released code's values, overrides, and numbers that make no sense."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from experiments.run import train
from experiments.run.command import Args, AugmentationArgs, InitArgs, OptimizerArgs, resolve
from experiments.runs import configuration, folder, recipes, settings, tuned
from experiments.tune.search_spaces import SPACES
from preload_jax.backbones import BACKBONES
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
    config = resolve(Args(dataset=dataset, method=method))
    got = (config.optimizer.name, config.optimizer.learning_rate, config.optimizer.weight_decay)
    assert got == (optimizer, rate, decay)
    assert (config.ood_weight, config.epochs, config.batch_size) == (weight, epochs, 128)
    if method == "preload_ft":
        # PreLoad-FT-Init has the same row in the paper's tables.
        assert config.init.optimizer == config.optimizer
        assert (config.init.ood_weight, config.init.epochs) == (weight, 10)


@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist", "svhn", "cifar10", "cifar100"])
def test_rounded_the_released_values_are_the_papers(dataset):
    """Two sources, which were read independently: they differ by less than a unit of the paper's last digit."""

    def numbers(method, name):
        config = recipe(dataset, method, name)
        optimizer = config.optimizer
        return [optimizer.learning_rate, optimizer.weight_decay, config.ood_weight, config.margin_in, config.margin_ood]

    for method in ("preload", "preload_ft", "energy_ft"):
        for paper, released in zip(numbers(method, "paper"), numbers(method, "released_code"), strict=True):
            if released != paper:
                # Two digits are printed, of margins one decimal.
                unit = min(10.0 ** (np.floor(np.log10(abs(paper))) - 1), 0.1)
                assert abs(released - paper) < unit


@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist", "svhn", "cifar10", "cifar100"])
def test_the_released_values_are_out_of_the_papers_search_spaces(dataset):
    for name, space in SPACES.items():
        if name == "preload" and not dataset.startswith("cifar"):  # where it was not tuned
            continue
        found = folder.flat(configuration.as_dict(recipe(dataset, space.method, "released_code")))
        for parameter, bounds in space.ranges.items():
            assert bounds.low <= found[parameter.replace("-", "_")] <= bounds.high
    released = recipe(dataset, "preload_ft", "released_code").init
    assert released.optimizer.name == "adam"
    assert released.optimizer != recipe(dataset, "preload_ft").init.optimizer


@pytest.mark.parametrize(
    ("shape", "num_classes", "like"),
    [((28, 28, 1), 2, "fashion_mnist"), ((64, 64, 3), 50, "cifar10"), ((64, 64, 3), 51, "cifar100")],
)
def test_ones_own_images_take_the_numbers_of_the_set_most_like_them(shape, num_classes, like):
    own = own_spec("mine.npz", image_shape=shape, class_names=tuple(map(str, range(num_classes))))
    if shape[2] == 3:
        own = replace(own, backbone="wide_resnet")
    for method in ("preload", "energy_ft", "preload_ft"):
        config, expected = recipes.get(own, method), recipe(like, method)
        assert config.data == own
        assert replace(config, dataset=like, data=expected.data, outliers="random_images_300k") == expected


def test_a_network_for_a_laptop_takes_numbers_for_a_laptop():
    own = own_spec("mine.npz", image_shape=(64, 64, 3), class_names=("a", "b"))
    config = recipes.get(own, "preload")
    assert (own.backbone, config.batch_size, config.epochs) == ("conv_net", 32, 60)
    assert (config.optimizer.name, config.optimizer.learning_rate) == ("adam", 1e-3)
    assert not recipes.departures(config)


@pytest.mark.parametrize(
    ("method", "divided"), [("oe", True), ("oe_ft", True), ("doe_ft", False)], ids=["oe", "oe_ft", "doe_ft"]
)
def test_the_released_code_divides_the_outliers_loss_by_the_number_of_classes_once_more(method, divided):
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=(2, 20, 10)).astype(np.float32)
    labels = np.arange(20, dtype=np.int32) % 10
    ce, uniform = (-scipy.special.log_softmax(z.astype(np.float64), axis=1) for z in (inside, outside))
    for name, expected in (("paper", uniform.mean()), ("released_code", uniform.mean() / (10 if divided else 1))):
        (stage,) = train.stages(recipe("cifar10", method, name), num_images=1000)
        numbers = stage.hyper.objective
        found = stage.task.objective(jnp.asarray(inside), jnp.asarray(labels), jnp.asarray(outside), **numbers)
        expected = ce[np.arange(20), labels].mean() + numbers["ood_weight"] * expected
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def network(config):
    """The network of a configuration, and its first variables."""
    model = folder.build_model(config)
    images = jnp.zeros((1, *config.data.image_shape))
    return model, jax.jit(model.init)(jax.random.key(0), images)


def test_the_ood_class_starts_lower_than_in_the_released_code():
    for name, expected in (("released_code", 1.0), ("paper", 1 / 1024)):
        _, variables = network(recipe("mnist", "preload", name))
        square_weights = np.exp(np.asarray(variables["params"]["head"]["ood"]["raw_weights"], np.float64))
        np.testing.assert_allclose(np.median(square_weights), expected, rtol=0.05)


@pytest.mark.parametrize("method", ["preload", "preload_ft", "preload_certified", "preload_certified_ft"])
def test_the_certified_methods_ood_class_grows_with_embedding_and_distance_whatever_was_learned(method):
    model, variables = network(recipe("digits", method))
    head = variables["params"]["head"]
    head["ood"] = {"raw_weights": jnp.full_like(head["ood"]["raw_weights"], -80.0), "bias": jnp.zeros(())}
    images = jax.random.uniform(jax.random.key(1), (50, 8, 8, 1)) * jnp.linspace(1.0, 9.0, 50)[:, None, None, None]
    logits, features = (np.asarray(x, np.float64) for x in model.apply(variables, images, features=True))
    if "certified" not in method:
        np.testing.assert_allclose(logits[:, -1], 0.0, atol=1e-6)
        return
    # The last feature is the distance: from 0, where no training images were seen yet.
    size = np.linalg.norm(np.asarray(images).reshape(50, -1), axis=1)
    ratio = features[:, -1] / size
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=1e-5)
    assert ratio.mean() > 0
    squares = np.stack([(features[:, :-1] ** 2).sum(axis=1), features[:, -1] ** 2], axis=1)
    slopes, _, _, _ = np.linalg.lstsq(squares, logits[:, -1], rcond=None)
    np.testing.assert_allclose(squares @ slopes, logits[:, -1], rtol=1e-4)
    assert (slopes > 1e-3).all()


@pytest.mark.parametrize("dataset", datasets.DATASETS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_cell_has_a_recipe_that_survives_json(dataset, method, name):
    config = configuration.check(recipe(dataset, method, name))
    assert configuration.from_dict(configuration.as_dict(config)) == config


@pytest.mark.parametrize(("dataset", "method"), tuned.TUNED)
def test_a_tuned_recipe_is_the_papers_with_the_rows_settings(dataset, method):
    row = tuned.TUNED[dataset, method]
    found, paper = (folder.flat(configuration.as_dict(recipe(dataset, method, name))) for name in ("tuned", "paper"))
    changed = {name: found[name] for name in found if found[name] != paper[name]}
    assert changed == {**row.settings, "recipe": "tuned"}
    assert "python -m experiments." in row.source
    assert not recipes.departures(recipe(dataset, method, "tuned"))


def test_where_nothing_was_tuned_the_tuned_recipe_is_the_papers():
    for dataset, method in (("fashion_mnist", "standard"), ("digits", "preload_ft"), ("cifar10", "preload")):
        assert recipe(dataset, method, "tuned") == recipe(dataset, method)


@pytest.mark.parametrize("name", recipes.RECIPES)
@pytest.mark.parametrize(
    ("dataset", "method"),
    [("digits", "standard"), ("cifar10", "preload"), ("fashion_mnist", "oe_ft"), ("fashion_mnist", "preload_ft")],
)
def test_the_command_lines_recipe_is_the_one_that_was_looked_up(dataset, method, name):
    config = resolve(Args(dataset=dataset, method=method, recipe=name))
    assert config == recipe(dataset, method, name)
    assert not recipes.departures(config)
    if (dataset, method) not in tuned.TUNED and name == "tuned":
        assert config == resolve(Args(dataset=dataset, method=method))


@pytest.mark.parametrize(
    ("dataset", "of_methods", "mixed"),
    [
        ("fashion_mnist", {"preload_ft": "tuned", "standard": "paper", "oe": "paper"}, []),
        ("fashion_mnist", {"preload_ft": "paper", "standard": "paper", "oe": "tuned"}, ["paper", "tuned"]),
        ("fashion_mnist", {"preload_ft": "paper", "oe": "paper"}, []),
        ("fashion_mnist", {"preload_ft": "tuned", "oe": "released_code"}, ["released_code", "tuned"]),
        ("digits", {"preload_ft": "paper", "standard": "tuned"}, []),
        ("folder:photos", {"preload_ft": "paper", "preload": "tuned"}, ["paper", "tuned"]),
        ("digits", {"preload_ft": None, "preload": None}, []),
        ("digits", {"preload_ft": None, "preload": "paper"}, ["None", "paper"]),
    ],
)
def test_which_recipes_are_mixed(dataset, of_methods, mixed):
    rows = [{"dataset": dataset, "method": method, "recipe": name} for method, name in of_methods.items()]
    assert recipes.mixed(rows) == mixed


def test_a_row_with_a_setting_that_there_is_not_is_an_error():
    with pytest.raises(AssertionError, match="no setting lr"):
        tuned.apply(recipe("digits", "preload"), tuned.Row({"optimizer.lr": 1.0}, "nowhere"))


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
            r"unknown --optimizer.name 'lion'; expected one of sgd, adam",
        ),
        ({"optimizer": OptimizerArgs(learning_rate=-1.0)}, "--optimizer.learning-rate must be finite and at least 0"),
        ({"init": InitArgs(ood_weight=-1.0)}, "--init.ood-weight must be finite and at least 0"),
        ({"perturbation_decay": 2.0, "method": "doe_ft"}, "--perturbation-decay must be finite and at least 0 and at"),
        ({"far_distance": 1e16}, r"--far-distance must be finite and at least 0 and at most 1e\+15"),
        ({"head_scale": "big"}, "unknown --head-scale 'big'"),
        ({"precision": "float8"}, "unknown --precision 'float8'"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"method": "preloda"}, r"unknown method 'preloda' \(did you mean 'preload'\?\); expected one of standard, "),
        ({"recipe": "mine"}, r"unknown recipe 'mine'; expected one of paper, released_code, tuned"),
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


def test_another_augmentation_is_kept_and_handed_on():
    usual = resolve(Args(dataset="cifar10", method="standard"))
    args = Args(dataset="cifar10", method="standard", augmentation=AugmentationArgs(flip=False))
    config = configuration.from_dict(configuration.as_dict(resolve(args)))
    policy = settings.settings(config).augmentations.in_domain
    assert policy == replace(usual.data.augmentation, flip=False)
    assert settings.settings(config).augmentations.outliers == usual.data.outlier_augmentation
    assert recipes.departures(config) == ["data.augmentation.flip False (True)"]
    assert recipes.departures(usual) == []


@pytest.mark.parametrize(
    ("dataset", "asked", "message"),
    [
        ("digits", {"flip": False}, "--augmentation.flip: digits is trained without; leave it out"),
        (
            "mnist",
            {"probability": 1.5},
            "--augmentation.probability must be finite and at least 0 and at most 1, got 1.5",
        ),
    ],
)
def test_augmentations_that_make_no_sense(dataset, asked, message):
    with pytest.raises(UserError, match=message):
        resolve(Args(dataset=dataset, augmentation=AugmentationArgs(**asked)))


def test_class_weights_are_kept_and_handed_on():
    for given, expected in (("none", None), ("balanced", "balanced"), ("1,2,3,4,5,6,7,8,9,10", tuple(range(1, 11)))):
        config = configuration.check(resolve(Args(class_weights=given)))
        assert settings.settings(config).class_weights == expected
        assert configuration.from_dict(configuration.as_dict(config)) == config
        # What a finished run of an earlier version has not.
        there = configuration.as_dict(config)
        del there["class_weights"]
        assert configuration.from_dict(there).class_weights == "none"
    assert resolve(Args(class_weights="balanced")) != resolve(Args())


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_network_has_numbers_on_every_data_set(backbone):
    for spec, method, recipe in itertools.product(datasets.DATASETS.values(), METHODS, recipes.RECIPES):
        configuration.check(recipes.get(replace(spec, backbone=backbone), method, recipe=recipe))
