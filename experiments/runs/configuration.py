"""The configuration of a run: everything that decides what it computes, saved beside its results."""

import dataclasses
import json
import math
from dataclasses import dataclass, field, replace
from typing import Any

from preload_jax import methods, own_numbers
from preload_jax.data import specs
from preload_jax.data.specs import DatasetSpec
from preload_jax.errors import UserError, unknown

# Far beyond what a test set needs.
_MOST_OOD_IMAGES = 10_000_000


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimiser of a stage."""

    name: str = "adam"
    """"sgd" (Nesterov) or "adam"; both with coupled weight decay and a cosine schedule to 0."""
    learning_rate: float = 1e-3
    """At the first step."""
    weight_decay: float = 5e-4
    """Coupled: added to the gradient."""
    momentum: float = 0.9
    """Of SGD."""


@dataclass(frozen=True)
class InitConfig:
    """PreLoad-FT's first stage, the paper's PreLoad-FT-Init: only w' and b are trained."""

    epochs: int = 10
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    ood_weight: float = 1.0


@dataclass(frozen=True)
class Config:
    """Everything that decides what a run computes; saved beside its results."""

    dataset: str
    method: str
    seed: int
    recipe: str
    outliers: str
    epochs: int
    optimizer: OptimizerConfig
    # What the data set is: shape, class names, network, augmentation.  A finished run never looks it up again.
    data: DatasetSpec
    batch_size: int = 128
    max_steps: int | None = None
    ood_weight: float = 1.0
    margin_in: float = 0.0
    margin_ood: float = 0.0
    warmup_epochs: int = 5
    perturbation_decay: float = 0.6
    init: InitConfig = field(default_factory=InitConfig)
    head_scale: str = "one"
    dropout: float = 0.3
    precision: str = "auto"
    validation: str = "test"
    # Which images those are: "ours", or "released_code" for those that the authors' code draws.
    validation_rows: str = "ours"
    # How OOD test sets are made: "ours" or "released_code", see `datasets.load_ood`.
    ood_protocol: str = "ours"
    far_distance: float = 10_000.0
    start: str | None = None
    # SHA-256 of that file, which its path does not tell; None for a folder, and in runs of earlier versions.
    start_digest: str | None = None
    # Of the user's own data (`own_digest`); None for published sets, and in runs of earlier versions.
    data_digest: str | None = None
    # The ½ of the paper's released code in PreLoad's and NC's objective, to which the tuned numbers belong.
    objective_half: bool = True
    # The even power of G(x) in the OOD class's logit.
    exponent: int = 2
    # κ of the distance feature; None for a network without it.
    distance: float | None = None
    # Floors under the OOD class's weights.
    min_weight: float = 0.0
    min_distance_weight: float | None = None
    # Numbers that only some methods have (`own_numbers`); None for the others.
    label_smoothing: float | None = None
    mixup_alpha: float | None = None
    focal_gamma: float | None = None
    mmce_weight: float | None = None
    adversarial_epsilon: float | None = None
    adversarial_steps: int | None = None
    spline_variance: float | None = None
    density_learning_rate: float | None = None
    # Of a last-layer Laplace approximation: its covariance, and δ; None for that of the largest marginal likelihood.
    covariance: str = "kron"
    prior_precision: float | None = None
    # How often MC dropout draws the network.
    samples: int = 32
    # Gaussians of each of CCU's mixtures.
    components: int = 100
    # What the recipes differ in beside the numbers above.
    oe_class_mean: bool = False
    ddu_jitter: float | None = None
    released_code_ece: bool = False
    # Fields of the network's module, as JSON has them: {"depth": 28}.
    backbone_options: dict[str, Any] = field(default_factory=dict)
    # How many images each made OOD test set has; None: as `datasets.load_ood` says.
    ood_images: int | None = None
    # Of the in-domain cross entropy: "none", "balanced", or numbers with commas between.
    class_weights: str = "none"


def scale_warmup(config: Config, *, recipe_epochs: int) -> Config:
    """DOE's warm-up for another number of epochs than the recipe's, in the recipe's proportion."""
    return replace(config, warmup_epochs=config.warmup_epochs * config.epochs // recipe_epochs)


def check(config: Config) -> Config:
    """The configuration, if every number in it makes sense.

    Raises:
        UserError: naming the option, what it was and what was expected.
    """
    _at_least("--epochs", config.epochs, 1)
    _at_least("--init.epochs", config.init.epochs, 1)
    _at_least("--batch-size", config.batch_size, 1)
    _at_least("--warmup-epochs", config.warmup_epochs, 0)
    for name, number in (("--max-steps", config.max_steps), ("--ood-images", config.ood_images)):
        if number is not None:
            _at_least(name, number, 1)
    # Their scores, and the boxes of the photo's crops, are in memory.
    if (config.ood_images or 0) > _MOST_OOD_IMAGES:
        raise UserError(f"--ood-images must be at most {_MOST_OOD_IMAGES:,}, got {config.ood_images:,}")
    for name, weight in (("--ood-weight", config.ood_weight), ("--init.ood-weight", config.init.ood_weight)):
        _finite(name, weight, low=0.0)
    for name, margin in (("--margin-in", config.margin_in), ("--margin-ood", config.margin_ood)):
        _finite(name, margin)
    for prefix, optimizer in (("--optimizer", config.optimizer), ("--init.optimizer", config.init.optimizer)):
        _one_of(f"{prefix}.name", optimizer.name, ("sgd", "adam"))
        _finite(f"{prefix}.learning-rate", optimizer.learning_rate, low=0.0)
        _finite(f"{prefix}.weight-decay", optimizer.weight_decay, low=0.0)
        _finite(f"{prefix}.momentum", optimizer.momentum, low=0.0, high=1.0)
    _finite("--perturbation-decay", config.perturbation_decay, low=0.0, high=1.0)
    _finite("--dropout", config.dropout, low=0.0, high=0.99)
    # Beyond it squared norms of the images overflow in float32.
    _finite("--far-distance", config.far_distance, low=0.0, high=1e15)
    if config.ddu_jitter is not None:
        _finite("--ddu-jitter", config.ddu_jitter, low=0.0)
    if not 2 <= config.exponent <= 16 or config.exponent % 2:
        raise UserError(f"--exponent must be even and from 2 to 16, got {config.exponent}")
    # Far beyond what is of use, and still within float32.
    _finite("--min-weight", config.min_weight, low=0.0, high=1e6)
    if config.min_distance_weight is not None:
        _finite("--min-distance-weight", config.min_distance_weight, low=0.0, high=1e6)
    if config.distance is not None:
        _finite("--distance", config.distance, low=1e-6, high=1e6)
    for name in own_numbers.RANGES:
        if (value := getattr(config, name)) is not None:
            own_numbers.check(name, value, spelled=f"--{name.replace('_', '-')}")
    if config.data.augmentation is not None:
        _finite("--augmentation.probability", config.data.augmentation.probability, low=0.0, high=1.0)
    _one_of("--covariance", config.covariance, ("kron", "full"))
    if config.prior_precision is not None:
        _finite("--prior-precision", config.prior_precision, low=1e-8, high=1e8)
    _at_least("--samples", config.samples, 1)
    _at_least("--components", config.components, 1)
    if methods.get(config.method).draws and "dropout" in config.backbone_options:
        rate = config.backbone_options["dropout"]
        raise UserError(f"--backbone.dropout is an option of its own with {config.method}: give --dropout={rate}")
    _one_of("--head-scale", config.head_scale, ("one", "inverse_width"))
    _one_of("--precision", config.precision, ("auto", "float32", "bfloat16"))
    class_weights(config)
    _one_of("--validation", config.validation, ("test", "train", "none"))
    return config


def class_weights(config: Config) -> str | tuple[float, ...] | None:
    """The weights of the classes, as the library takes them.

    Raises:
        UserError: when they are neither a known word nor a number above 0 for each class.
    """
    given, expected = config.class_weights, f"none, balanced, or {config.data.num_classes} numbers with commas between"
    if given in ("none", "balanced"):
        return None if given == "none" else given
    try:
        numbers = tuple(float(part) for part in given.split(","))
    except ValueError:
        raise UserError(f"unknown --class-weights {given!r}; expected {expected}") from None
    if len(numbers) != config.data.num_classes or not all(1e-12 <= number <= 1e12 for number in numbers):
        raise UserError(f"--class-weights are {given}; expected {expected}, each above 0")
    return numbers


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(f"{name} must be at least {least}, got {value}")


def _finite(name: str, value: float, *, low: float = -math.inf, high: float = math.inf) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        bounds = "" if low == -math.inf else f" and at least {low:g}"
        bounds += "" if high == math.inf else f" and at most {high:g}"
        raise UserError(f"{name} must be finite{bounds}, got {value}")


def _one_of(name: str, value: str, expected: tuple[str, ...]) -> None:
    if value not in expected:
        raise UserError(unknown(name, value, expected))


def usual() -> dict[str, Any]:
    """The fields that have a default, with it: what earlier versions, which lack a field, did."""
    return {
        field.name: field.default for field in dataclasses.fields(Config) if field.default is not dataclasses.MISSING
    }


def as_dict(config: Any) -> dict[str, Any]:
    """A configuration as plain nested dicts and lists: what JSON gives back is equal to it."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def from_dict(values: dict[str, Any]) -> Config:
    """The configuration that `as_dict` wrote.

    Raises:
        UserError: when a field is missing or unknown (a run of another version).
    """
    from preload_jax.data import datasets

    try:
        init, data = values["init"], values.get("data")
        return Config(
            **{
                **values,
                # Runs of earlier versions do not have it.
                "data": datasets.get(values["dataset"]) if data is None else specs.from_dict(data),
                "optimizer": OptimizerConfig(**values["optimizer"]),
                "init": InitConfig(**{**init, "optimizer": OptimizerConfig(**init["optimizer"])}),
            }
        )
    except (KeyError, TypeError) as error:
        raise UserError(
            f"the configuration was written by another version ({error}); give --overwrite to train again,"
            " or another --run-dir"
        ) from None
