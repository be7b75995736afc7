"""The paper's hyper-parameters as data, and the configuration of a run that they and the command line make.

`RECIPES` has three: "paper", what the paper's text says (misprints corrected), "released_code", what the authors'
released code does, and "tuned", the paper's with the numbers of `tuned.TUNED` where there are some.
`docs/paper_and_code.md` lists the differences.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from experiments.runs import configuration, folder, tuned
from experiments.runs.configuration import Config, InitConfig, OptimizerConfig
from preload_jax import backbones, methods
from preload_jax.data.specs import DATASETS, DatasetSpec
from preload_jax.errors import UserError, unknown
from preload_jax.integers import require_seed

RECIPES = ("paper", "released_code", "tuned")


# Epochs from scratch and of fine-tuning.
_SCRATCH_EPOCHS, _FINE_TUNING_EPOCHS = 100, 10

# (learning rate, weight decay) of PreLoad, where the paper tuned it.
_PRELOAD = {
    "paper": {"cifar10": (7.3e-2, 7.6e-4), "cifar100": (4.5e-1, 1.2e-4)},
    "released_code": {"cifar10": (7.3521e-2, 7.5692e-4), "cifar100": (4.4977e-1, 1.1859e-4)},
}
# (learning rate, weight decay, λ) of PreLoad-FT.
_PRELOAD_FT = {
    "paper": {
        "mnist": (4.1e-3, 3.1e-4, 8.0e-1),
        # The paper prints a weight decay of 2.5e-3; the sweep's own value is 2.4644e-4.
        "fashion_mnist": (6.0e-3, 2.5e-4, 2.6e-2),
        "svhn": (2.9e-2, 2.8e-6, 2.2e-1),
        "cifar10": (6.1e-2, 1.8e-6, 2.0e-2),
        "cifar100": (6.3e-3, 1.1e-4, 2.3e-2),
    },
    "released_code": {
        "mnist": (4.0514e-3, 3.1064e-4, 0.79681),
        "fashion_mnist": (5.9739e-3, 2.4644e-4, 0.025651),
        "svhn": (2.9249e-2, 2.8464e-6, 0.22348),
        "cifar10": (6.1191e-2, 1.7688e-6, 0.019557),
        "cifar100": (6.2893e-3, 1.1419e-4, 0.022592),
    },
}
# (learning rate, weight decay, λ) of PreLoad-FT-Init.  Paper: the same as PreLoad-FT, with its optimiser.
_RELEASED_INIT = {
    "mnist": (6.9247e-2, 4.6938e-5, 0.12460),
    "fashion_mnist": (1.9896e-2, 4.8602e-4, 0.012899),
    "svhn": (3.1596e-3, 2.8239e-4, 0.022376),
    "cifar10": (5.1164e-3, 1.4751e-4, 0.024840),
    "cifar100": (1.5751e-2, 1.8836e-6, 0.012846),
}
# (m_in, m_ood) of Energy-FT.
_MARGINS = {
    "paper": {
        "mnist": (-3.6, -25.0),
        # The paper prints +0.064; the sweep's own value is negative.
        "fashion_mnist": (-0.064, -4.0),
        "svhn": (-5.7, -12.3),
        "cifar10": (-9.9, -5.7),
        "cifar100": (-14.5, -10.3),
    },
    "released_code": {
        "mnist": (-3.6221, -25.048),
        "fashion_mnist": (-0.064259, -4.0295),
        "svhn": (-5.6758, -12.315),
        "cifar10": (-9.8971, -5.7418),
        "cifar100": (-14.494, -10.346),
    },
}


def get(spec: DatasetSpec, method: str, *, seed: int = 0, recipe: str = "paper") -> Config:
    """A recipe's configuration for a data set and a method.

    A data set that the paper does not have takes the numbers of the one most like it (`nearest`).  Where nothing was
    tuned, "tuned" is "paper", so that both share the runs that others start from.

    Raises:
        UserError: for an unknown method or recipe, or a seed that is not in 0 … 2³² − 1.
    """
    row = methods.get(method)
    if recipe not in RECIPES:
        raise UserError(unknown("recipe", recipe, RECIPES))
    require_seed(seed)
    found = tuned.TUNED.get((nearest(spec), method)) if recipe == "tuned" else None
    if recipe == "tuned" and found is None:
        recipe = "paper"
    released = recipe == "released_code"
    own: dict[str, Any] = dict(row.own)
    base = Config(
        dataset=spec.name,
        data=spec,
        method=method,
        seed=seed,
        recipe=recipe,
        outliers=spec.default_outliers,
        epochs=_FINE_TUNING_EPOCHS if row.fine_tunes else _SCRATCH_EPOCHS,
        optimizer=_optimizer(spec.backbone, fine_tuned=row.fine_tunes),
        ood_weight=row.ood_weight,
        distance=row.distance,
        min_weight=row.min_weight,
        min_distance_weight=row.min_distance_weight,
        **own,
        # Released code: DOE's own OE term is right, that of OE and OE-FT is divided by K once more.
        oe_class_mean=released and "oe_class_mean" in row.options,
        ddu_jitter=0.1 if released else None,
        released_code_ece=released,
        validation_rows="released_code" if released else "ours",
        ood_protocol="released_code" if released else "ours",
        # The paper does not say how w' starts.  From the released code's exp(w') ≈ 1 the OOD class's logit is about d
        # times the others', and a short training never predicts anything else; see docs/paper_and_code.md.
        head_scale="one" if released else "inverse_width",
    )
    backbone = backbones.get(spec.backbone)
    if backbone.small_images:
        return _digits(replace(base, batch_size=32) if backbone.small_batches else base)
    papers = _as_the_paper_tuned(base, nearest(spec), "released_code" if released else "paper")
    return papers if found is None else tuned.apply(papers, found)


# Of the data set's description, what training depends on.
_OF_DATA = ("data.backbone", "data.image_shape", "data.augmentation", "data.outlier_augmentation")


def departures(config: Config) -> list[str]:
    """The settings of its method that a configuration has other than its recipe's, as "name value (recipe value)"."""
    usual = get(DATASETS.get(config.dataset, config.data), config.method, seed=config.seed, recipe=config.recipe)
    here, there = (folder.flat(configuration.as_dict(each)) for each in (config, usual))
    return [
        f"{name} {here.get(name)} ({there.get(name)})"
        for name in {**here, **there}
        if here.get(name) != there.get(name)
        and name not in ("dataset", "start", "start_digest", "data_digest")
        and config.method in methods.with_option(name.partition(".")[0])
        and (not name.startswith("data.") or name.startswith(_OF_DATA))
    ]


def mixed(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """The recipes of a data set's results; none where all may be of one, as "paper" is "tuned" where nothing was tuned.

    A data set of one's own may take the numbers of any: there a row of its method is enough.
    """
    possible, found = set(RECIPES), set()
    for result in results:
        recipe, dataset, method = result.get("recipe"), result["dataset"], result["method"]
        has_row = any(of == method and (name == dataset or dataset not in DATASETS) for name, of in tuned.TUNED)
        possible &= {"paper", "tuned"} if recipe == "paper" and not has_row else {recipe}
        found.add(str(recipe))
    return [] if possible or len(found) < 2 else sorted(found)


def origin(config: Config) -> dict[str, Any]:
    """What results keep of how they came about: what is not the recipe's, and the outliers that training saw."""
    outliers = config.outliers if methods.get(config.method).uses_outliers else None
    return {"not_as_recipe": departures(config), "outliers": outliers}


def nearest(spec: DatasetSpec) -> str:
    """The paper's data set whose numbers a data set takes: itself, or the one with its network and most like it."""
    if spec.name in _PRELOAD_FT["paper"]:
        return spec.name
    if spec.backbone == "lenet":
        return "fashion_mnist"
    return "cifar10" if spec.num_classes <= 50 else "cifar100"


def _optimizer(backbone: str, *, fine_tuned: bool) -> OptimizerConfig:
    row = backbones.get(backbone)
    return OptimizerConfig(row.optimizer, row.learning_rates[fine_tuned])


def _as_the_paper_tuned(config: Config, dataset: str, recipe: str) -> Config:
    """The values that the paper tuned for a method and data set."""
    optimizer, method = config.optimizer, methods.get(config.method).tuned_as
    if method == "preload" and dataset in _PRELOAD[recipe]:
        rate, decay = _PRELOAD[recipe][dataset]
        return replace(config, optimizer=replace(optimizer, learning_rate=rate, weight_decay=decay))
    if method == "energy_ft":
        margin_in, margin_ood = _MARGINS[recipe][dataset]
        return replace(config, margin_in=margin_in, margin_ood=margin_ood)
    if method == "preload_ft":
        rate, decay, weight = _PRELOAD_FT[recipe][dataset]
        optimizer = replace(optimizer, learning_rate=rate, weight_decay=decay)
        init = InitConfig(optimizer=optimizer, ood_weight=weight)
        if recipe == "released_code":
            # Released code: Adam for w' and b on every data set, with its own sweep's values.
            rate, decay, init_weight = _RELEASED_INIT[dataset]
            init = InitConfig(optimizer=OptimizerConfig("adam", rate, decay), ood_weight=init_weight)
        return replace(config, optimizer=optimizer, ood_weight=weight, init=init)
    return config


def _digits(config: Config) -> Config:
    """Our own choices for the embedded digits and other small images, which the paper does not have."""
    small = tuned.apply(config, tuned.SMALL_IMAGES)
    return replace(small, epochs=_FINE_TUNING_EPOCHS) if methods.get(config.method).fine_tunes else small
