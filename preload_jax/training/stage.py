"""A stage of training: what a method's row, a network and some numbers make together.

A run has one stage, or two for PreLoad-FT (the OOD class alone, then everything).  This is the one place where they are
put together, and where the names in a row of `methods` become functions.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
import optax

from preload_jax import losses, methods, own_numbers
from preload_jax.checks import require_number
from preload_jax.errors import UserError
from preload_jax.integers import keep, require_integer, require_seed
from preload_jax.methods import Method
from preload_jax.models import Classifier
from preload_jax.training import adversarial, class_weights, densities, doe, mixup, noise, steps
from preload_jax.training.augment import Augmentations
from preload_jax.training.class_weights import ClassWeights
from preload_jax.training.optimizers import Optimizer
from preload_jax.training.plan import Plan

# Name → function, of all that `losses` has.
OBJECTIVES: dict[str, Callable[..., Any]] = {
    name: function
    for file in (losses.calibration, losses.noise, losses.objectives)
    for name, function in vars(file).items()
    if getattr(function, "__module__", None) == file.__name__ and not name.startswith("_")
}
# Of the methods' own numbers those that a compiled program is made for.
_STATIC = ("adversarial_steps",)
# Of each: the step, and parameters → what it carries along beside parameters and moments.
STEPS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "gradient": (steps.gradient_step, lambda params: {}),
    "worst_case": (doe.worst_case_step, doe.init_memory),
    "mixup": (mixup.mixup_step, lambda params: {}),
    "noise": (noise.noise_step, lambda params: {}),
    "adversarial": (adversarial.adversarial_step, lambda params: {}),
    "densities": (densities.densities_step, densities.init_memory),
}


@dataclass(frozen=True)
class Numbers:
    """What one stage is trained with.

    Attributes:
        epochs: passes over the training images.
        optimizer: "adam" or "sgd" (Nesterov), an `Optimizer`, or any Optax transformation, which then has the learning
            rate and weight decay in it.
        learning_rate: at the first step; it falls to 0 along a cosine.
        weight_decay: coupled: added to the gradient.
        ood_weight: λ.
    """

    epochs: int = 10
    optimizer: str | Optimizer | optax.GradientTransformation = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    ood_weight: float = 1.0

    def __post_init__(self) -> None:
        keep(self, "epochs", require_integer("epochs", self.epochs, at_least=1))
        for name in ("learning_rate", "weight_decay", "ood_weight"):
            keep(self, name, require_number(name, getattr(self, name), at_least=0.0))


@dataclass(frozen=True)
class Settings:
    """Everything that decides a training, beside the network and the data.

    Attributes:
        method: a row of `methods`.
        numbers: of the only stage, or of the second.
        ood_head: of PreLoad-FT's first stage, in which w' and b alone are trained.
        batch_size: in-domain images a step, and as many outliers.
        max_steps: ends each stage, its schedule included, after so many steps.
        margins: m_in and m_ood of Energy-FT.
        warmup_epochs: of DOE-FT, before its perturbation begins; None: half of the epochs.
        perturbation_decay: β of DOE-FT.
        prior_precision: of a last-layer Laplace approximation; None: that of the largest marginal likelihood.
        objective: name of another objective than the method's.
        own: the method's own numbers, by name, where they are not the usual ones (`own_numbers`).
        augmentations: on the device.
        class_weights: of the in-domain cross entropy: "balanced", a number for each class, or None.
        seed: fixes initial weights, order, augmentation and dropout.
    """

    method: Method
    numbers: Numbers = Numbers()
    ood_head: Numbers = Numbers(learning_rate=1e-1, weight_decay=0.0)
    batch_size: int = 128
    max_steps: int | None = None
    margins: tuple[float, float] = (0.0, 0.0)
    warmup_epochs: int | None = None
    perturbation_decay: float = 0.6
    prior_precision: float | None = None
    objective: str | None = None
    own: Mapping[str, float | int] = field(default_factory=dict)
    augmentations: Augmentations = field(default_factory=Augmentations)
    seed: int = 0
    # Not in its text: by that a stored training is known, and those of earlier versions do not have it.
    class_weights: ClassWeights = field(default=None, repr=False)

    def __post_init__(self) -> None:
        class_weights.checked(self.class_weights, None)
        keep(self, "batch_size", require_integer("batch_size", self.batch_size, at_least=1))
        keep(self, "seed", require_seed(self.seed))
        for name, at_least in (("max_steps", 1), ("warmup_epochs", 0)):
            if getattr(self, name) is not None:
                keep(self, name, require_integer(name, getattr(self, name), at_least=at_least))
        margins = zip(("margin_in", "margin_ood"), self.margins, strict=True)
        keep(self, "margins", tuple(require_number(name, value) for name, value in margins))
        keep(self, "perturbation_decay", require_number("perturbation_decay", self.perturbation_decay))
        if not isinstance(self.own, Mapping):
            raise UserError(f"own is {self.own!r}; expected numbers by name, such as {{'focal_gamma': 2.0}}")
        for name in self.own:
            if name not in dict(self.method.own):
                of = methods.with_option(name) if name in own_numbers.RANGES else ("no method",)
                raise UserError(f"{name} is for {' and '.join(of)}, the method is {self.method.name}; leave it out")
        keep(self, "own", {name: own_numbers.check(name, value) for name, value in self.own.items()})
        if not isinstance(self.augmentations, Augmentations):
            raise UserError(f"augmentations are a {type(self.augmentations).__name__}; expected an Augmentations")


@dataclass(frozen=True)
class Stage:
    """One stage, ready to be carried out.

    Attributes:
        model: the classifier, in training precision.
        settings: of the whole training.
        index: which of the method's stages it is, from 0.
        num_images: how many training images there are.
        steps_per_call: steps that one compiled call takes at most.
        steps_before: steps of the stages before it.
    """

    model: Classifier
    settings: Settings
    index: int
    num_images: int
    steps_per_call: int = 10_000
    steps_before: int = 0

    @property
    def method(self) -> Method:
        return self.settings.method

    @property
    def own(self) -> dict[str, float | int]:
        """The method's own numbers."""
        return {**dict(self.method.own), **self.settings.own}

    @property
    def trainable(self) -> str:
        return self.method.stages[self.index]

    @property
    def numbers(self) -> Numbers:
        return self.settings.ood_head if self.trainable == "ood_head" else self.settings.numbers

    @cached_property
    def plan(self) -> Plan:
        epochs, warmup = self.numbers.epochs, self.settings.warmup_epochs
        plan = Plan(
            num_images=self.num_images,
            batch_size=self.settings.batch_size,
            epochs=epochs,
            max_steps=self.settings.max_steps,
            max_steps_per_call=self.steps_per_call,
        )
        if "warmup_epochs" not in self.method.options:
            return plan
        # A share of the steps, so that a limit of steps shortens it, too.
        return replace(plan, warmup_steps=(epochs // 2 if warmup is None else warmup) * plan.total_steps // epochs)

    @property
    def optimizer(self) -> Optimizer | optax.GradientTransformation:
        """With the method's limit of the gradient's norm."""
        given, limit = self.numbers.optimizer, self.method.clip_norm
        if isinstance(given, str):
            given = Optimizer(given)
        if isinstance(given, Optimizer):
            return Optimizer(given.name, given.momentum, limit)
        return given if limit is None else _clipped(given, limit)

    @cached_property
    def task(self) -> steps.Task:
        return steps.Task(
            model=self.model,
            objective=OBJECTIVES[self.settings.objective or self.method.objective],
            optimizer=self.optimizer,
            total_steps=self.plan.total_steps,
            trainable=self.trainable,
            adversarial_steps=int(self.own.get("adversarial_steps", 0)),
        )

    @property
    def step(self) -> Callable[..., Any]:
        return STEPS[self.method.step][0]

    @property
    def hyper(self) -> steps.Hyperparameters:
        return steps.Hyperparameters(
            learning_rate=self.numbers.learning_rate,
            weight_decay=self.numbers.weight_decay,
            objective=objective_numbers(self.method, self.numbers.ood_weight, *self.settings.margins, own=self.own),
            perturbation_decay=self.settings.perturbation_decay,
            own=step_numbers(self.method, own=self.own),
        )

    def hyper_of(self, labels: Any) -> steps.Hyperparameters:
        """`hyper`, with the class weights that training labels make, [n], or None where they come in batches.

        Raises:
            UserError: see `class_weights.numbers`.
        """
        given = self.settings.class_weights
        if given is None:
            return self.hyper
        num_classes = self.model.head.num_classes
        class_weights.checked(given, num_classes)
        weights = class_weights.numbers(given, labels, num_classes)
        if np.ptp(weights) == 0.0:  # A common factor changes nothing but rounding.
            return self.hyper
        return self.hyper._replace(objective={**self.hyper.objective, "class_weights": weights})

    def learning_rate(self, step: int) -> float | None:
        """Of a step, counted from 0; None where the optimiser brings its own."""
        if not isinstance(self.optimizer, Optimizer):
            return None
        return float(optax.cosine_decay_schedule(self.numbers.learning_rate, self.plan.total_steps)(step))

    def init_state(self, variables: Mapping[str, Any]) -> steps.TrainState:
        """The state at the stage's first step, see `steps.init_state`."""
        return steps.init_state(variables, task=self.task, init_memory=STEPS[self.method.step][1])


def objective_numbers(
    method: Method,
    ood_weight: float,
    margin_in: float,
    margin_ood: float,
    *,
    own: Mapping[str, float | int] | None = None,
) -> dict[str, Any]:
    """What a method's objective takes by name; `own`: the method's own numbers, the usual ones if None."""
    own = dict(method.own) if own is None else own
    numbers: dict[str, Any] = {name: value for name, value in own.items() if name in _takes(method)}
    if method.sees_ood:
        numbers["ood_weight"] = ood_weight
    margins = {"margin_in": margin_in, "margin_ood": margin_ood} if "margin_in" in method.options else {}
    return {**numbers, **margins}


def step_numbers(method: Method, *, own: Mapping[str, float | int] | None = None) -> dict[str, Any]:
    """Of a method's own numbers those that its step takes by name and that are traced."""
    own = dict(method.own) if own is None else own
    return {name: value for name, value in own.items() if name not in (*_takes(method), *_STATIC)}


def _takes(method: Method) -> tuple[str, ...]:
    """The names of what a method's objective takes."""
    return tuple(inspect.signature(OBJECTIVES[method.objective]).parameters)


def _clipped(optimizer: optax.GradientTransformation, limit: float) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(limit), optimizer)


def stages(model: Classifier, settings: Settings, *, num_images: int, steps_per_call: int = 10_000) -> Sequence[Stage]:
    """The stages that training has, in order; none for a method that trains nothing."""
    planned: list[Stage] = []
    for index in range(len(settings.method.stages)):
        before = planned[-1].steps_before + planned[-1].plan.total_steps if planned else 0
        planned.append(Stage(model, settings, index, num_images, steps_per_call, before))
    return planned


def keys(seed: int) -> jax.Array:
    """Keys for the initial weights, a new OOD head, and training (folded with the stage's number)."""
    return jax.random.split(jax.random.key(seed), 3)
