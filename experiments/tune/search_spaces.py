"""The paper's tuning table: what is searched, how and where, for the methods that it tuned."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from experiments.runs.configuration import Config


@dataclass(frozen=True)
class Range:
    """Values between two bounds, uniform or (`log`) uniform in the logarithm."""

    low: float
    high: float
    log: bool = True


@dataclass(frozen=True)
class Space:
    """How a method is tuned.

    Attributes:
        method: what is trained.
        strategy: "bayesian" (tree-structured Parzen estimator) or "random".
        ranges: by parameter, spelled as an option of experiments.run.
        apply: configuration, parameters → configuration.
        stages: how many of the method's stages are trained.
    """

    method: str
    strategy: str
    ranges: dict[str, Range]
    apply: Callable[[Config, dict[str, float]], Config]
    stages: int


def _all_weights(config: Config, values: dict[str, float]) -> Config:
    optimizer = replace(
        config.optimizer,
        learning_rate=values["optimizer.learning-rate"],
        weight_decay=values["optimizer.weight-decay"],
    )
    return replace(config, optimizer=optimizer, ood_weight=values.get("ood-weight", config.ood_weight))


def _first_stage(config: Config, values: dict[str, float]) -> Config:
    optimizer = replace(
        config.init.optimizer,
        learning_rate=values["init.optimizer.learning-rate"],
        weight_decay=values["init.optimizer.weight-decay"],
    )
    return replace(config, init=replace(config.init, optimizer=optimizer, ood_weight=values["init.ood-weight"]))


def _margins(config: Config, values: dict[str, float]) -> Config:
    return replace(config, margin_in=values["margin-in"], margin_ood=values["margin-ood"])


# The paper's Bayesian optimisation is that of W&B's sweeps, a Gaussian process; Optuna's TPE takes its place.
SPACES: dict[str, Space] = {
    "preload": Space(
        "preload",
        "bayesian",
        {"optimizer.learning-rate": Range(1e-3, 5e-1), "optimizer.weight-decay": Range(1e-5, 1e-3)},
        _all_weights,
        stages=1,
    ),
    "energy_ft": Space(
        "energy_ft",
        "random",
        {"margin-in": Range(-30.0, 0.0, log=False), "margin-ood": Range(-30.0, 0.0, log=False)},
        _margins,
        stages=1,
    ),
    "preload_ft_init": Space(
        "preload_ft",
        "random",
        {
            "init.ood-weight": Range(1e-2, 1.0),
            "init.optimizer.learning-rate": Range(1e-4, 1e-1),
            "init.optimizer.weight-decay": Range(1e-6, 1.0),
        },
        _first_stage,
        stages=1,
    ),
    "preload_ft": Space(
        "preload_ft",
        "random",
        {
            "ood-weight": Range(1e-2, 1.0),
            "optimizer.learning-rate": Range(1e-4, 1e-1),
            "optimizer.weight-decay": Range(1e-6, 1e-3),
        },
        _all_weights,
        stages=2,
    ),
}


def suggest(space: Space, trial: Any) -> dict[str, float]:
    """An Optuna trial's values of every parameter."""
    return {name: trial.suggest_float(name, r.low, r.high, log=r.log) for name, r in space.ranges.items()}


def options(values: dict[str, float]) -> list[str]:
    """The values as options of experiments.run."""
    return [f"--{name}={value:.5g}" for name, value in values.items()]
