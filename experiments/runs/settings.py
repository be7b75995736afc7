"""What the library trains with, from a run's configuration."""

from typing import Any

from experiments.runs.configuration import Config, InitConfig, class_weights
from preload_jax import methods
from preload_jax.training.augment import Augmentations
from preload_jax.training.optimizers import Optimizer
from preload_jax.training.stage import Numbers, Settings, Stage


def settings(config: Config) -> Settings:
    """Method and numbers, as `training.fit.fit` takes them."""
    row = methods.get(config.method)
    return Settings(
        row,
        _numbers(config),
        ood_head=_numbers(config.init),
        batch_size=config.batch_size,
        max_steps=config.max_steps,
        margins=(config.margin_in, config.margin_ood),
        warmup_epochs=config.warmup_epochs,
        perturbation_decay=config.perturbation_decay,
        prior_precision=config.prior_precision,
        objective=_objective(config, row),
        own={name: value for name, _ in row.own if (value := getattr(config, name)) is not None},
        augmentations=augmentations(config),
        seed=config.seed,
        class_weights=class_weights(config),
    )


def _numbers(given: Config | InitConfig) -> Numbers:
    optimizer = given.optimizer
    return Numbers(
        given.epochs,
        Optimizer(optimizer.name, optimizer.momentum),
        optimizer.learning_rate,
        optimizer.weight_decay,
        given.ood_weight,
    )


def _objective(config: Config, row: methods.Method) -> str:
    """The method's, or the form of it that the configuration asks for."""
    if config.oe_class_mean:
        return "outlier_exposure_class_mean"
    if row.objective == "extra_class" and not config.objective_half:
        return "extra_class_whole"
    return row.objective


def augmentations(config: Config) -> Augmentations:
    """The data set's augmentation of in-domain and OOD images."""
    spec = config.data
    return Augmentations(spec.augmentation, spec.outlier_augmentation)


def compute_dtype(precision: str) -> Any:
    """The backbone's training precision: "auto" is bfloat16 on accelerators and float32 on the CPU."""
    import jax
    import jax.numpy as jnp

    if precision == "auto":
        precision = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    return {"float32": jnp.float32, "bfloat16": jnp.bfloat16}[precision]


def title(stage: Stage, dataset: str) -> str:
    """What a stage is called while it is in hand."""
    row = stage.method
    if len(row.stages) == 1:
        return f"{dataset} {row.name}"
    part = {"ood_head": "OOD class", "all": "all weights"}[stage.trainable]
    return f"{dataset} {row.name}, stage {stage.index + 1}/{len(row.stages)}: {part}"
