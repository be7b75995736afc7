"""The paper's optimisers: SGD with Nesterov momentum and Adam, both with coupled weight decay and a cosine schedule."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True)
class Optimizer:
    """What of the optimiser shapes the compiled step; learning rate and weight decay are numbers given at each call.

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
            raise ValueError(f"unknown optimizer {self.name!r}; expected one of {list(OPTIMIZERS)}")

    def direction(self, weight_decay: float | Array) -> optax.GradientTransformation:
        """The update before it is multiplied by −learning rate.

        Weight decay is coupled: weight_decay · w is added to the gradient before momentum or Adam's moments see it,
        as torch's SGD and Adam do (not AdamW).
        """
        clip = optax.identity() if self.clip_norm is None else optax.clip_by_global_norm(self.clip_norm)
        moments = optax.trace(self.momentum, nesterov=True) if self.name == "sgd" else optax.scale_by_adam()
        return optax.chain(clip, optax.add_decayed_weights(weight_decay), moments)


def cosine(step: Int[Array, ""], *, learning_rate: float | Array, total_steps: int) -> Float[Array, ""]:
    """½ · learning_rate · (1 + cos(π · step / total_steps)): from the learning rate to 0, a new value every step."""
    return 0.5 * learning_rate * (1.0 + jnp.cos(jnp.pi * step.astype(float) / total_steps))


def apply(params: Any, direction: Any, *, learning_rate: Array) -> Any:
    """params − learning_rate · direction, in the parameters' own types whatever type the learning rate has."""
    # Types are mixed on purpose: in the wider of them, then rounded once.
    with jax.numpy_dtype_promotion("standard"):
        return jax.tree.map(lambda p, d: (p - learning_rate * d).astype(p.dtype), params, direction)
