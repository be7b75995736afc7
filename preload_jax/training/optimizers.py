"""The paper's optimisers: SGD with Nesterov momentum and Adam, both with coupled weight decay and a cosine schedule."""

from dataclasses import dataclass
from typing import Any

import jax
import optax
from jaxtyping import Array

from preload_jax.errors import UserError, unknown

OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True)
class Optimizer:
    """The static part of the optimiser; learning rate and weight decay are numbers given at each step.

    Attributes:
        name: "sgd" (Nesterov) or "adam" (β = 0.9, 0.999; ε = 1e-8).
        momentum: of SGD.
        clip_norm: the gradient's 2-norm is limited to it before weight decay is added; None for no limit.
    """

    name: str = "sgd"
    momentum: float = 0.9
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise UserError(unknown("optimizer", self.name, OPTIMIZERS))

    def direction(self, weight_decay: float | Array) -> optax.GradientTransformation:
        """The update before it is multiplied by −learning rate.

        Weight decay is coupled: weight_decay · w is added to the gradient before momentum or Adam's moments see it,
        as torch's SGD and Adam do (not AdamW).
        """
        clip = optax.identity() if self.clip_norm is None else optax.clip_by_global_norm(self.clip_norm)
        moments = optax.trace(self.momentum, nesterov=True) if self.name == "sgd" else optax.scale_by_adam()
        return optax.chain(clip, optax.add_decayed_weights(weight_decay), moments)


def init(optimizer: Optimizer | optax.GradientTransformation, params: Any) -> Any:
    """The optimiser's state before the first step."""
    if not isinstance(optimizer, Optimizer):
        return optimizer.init(params)
    # One program for all zeros, instead of one for each shape.
    return jax.jit(optimizer.direction(0.0).init)(params)


def updates(
    optimizer: Optimizer | optax.GradientTransformation,
    gradients: Any,
    opt_state: Any,
    params: Any,
    *,
    weight_decay: Any,
    learning_rate: Any,
) -> tuple[Any, Any]:
    """What is added to the parameters, and the optimiser's state after it.

    An Optax transformation brings its own learning rate and weight decay; the two given here are `Optimizer`'s.
    """
    if not isinstance(optimizer, Optimizer):
        return optimizer.update(gradients, opt_state, params)
    direction, opt_state = optimizer.direction(weight_decay).update(gradients, opt_state, params)
    scale = optax.scale_by_learning_rate(learning_rate)
    return scale.update(direction, scale.init(params))[0], opt_state
