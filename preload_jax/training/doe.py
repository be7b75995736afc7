"""DOE's step: outliers made worse by a perturbation of the weights (Wang et al., 2023).

After a warm-up on the plain objective (`Plan.warmup_steps`), every step

  1. finds the direction Δ in weight space along which the OOD loss becomes most sensitive to the scale s of the
     logits: one gradient step down ‖∂L_OE(s · z)/∂s‖², at s = 1, on a copy of the network;
  2. rescales it, tensor by tensor, to ‖w‖/‖Δ‖ · Δ, and averages it over steps: P ← β P + (1 − β) Δ;
  3. takes an optimiser step on λ·L_OE at the weights w + γ P, γ drawn anew from {1e-2, 1e-3, 1e-4};
  4. takes an optimiser step on CE_in at the unperturbed weights.

The two optimiser steps count as one step of the schedule.  Only kernels (tensors of rank > 1) are perturbed.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from preload_jax import losses
from preload_jax.training.steps import (
    Batch,
    Forward,
    Hyperparameters,
    Task,
    TrainState,
    average,
    descend,
    forward,
    step_metrics,
)

# The perturbation's strengths γ.  Paper: 1e-1 is left out of DOE's own set.
STRENGTHS = (1e-2, 1e-3, 1e-4)


def init_memory(params: Any) -> dict[str, Any]:
    """The averaged perturbation before the first step: zeros, and the count of steps averaged."""
    return {"perturbation": jax.tree.map(jnp.zeros_like, params), "count": jnp.zeros((), jnp.int32)}


def worst_case_step(
    state: TrainState, batch: Batch, key: Array, *, task: Task, hyper: Hyperparameters
) -> tuple[TrainState, dict[str, Array]]:
    """DOE-FT's step after the warm-up, see above."""
    strength_key, ood_key, in_key = jax.random.split(key, 3)
    direction = average(_sensitivity_direction(state, batch, task), task.axis_name)
    memory = _average_perturbation(state.memory, _rescale(direction, state.params), decay=hyper.perturbation_decay)
    strength = jax.random.choice(strength_key, jnp.array(STRENGTHS, jnp.float32))
    offset = jax.tree.map(lambda p: strength * p, memory["perturbation"])

    def ood_loss(params: Any) -> tuple[Array, Any]:
        out = forward(params, state.batch_stats, batch, ood_key, model=task.model, train=True)
        return average(
            hyper.objective["ood_weight"] * losses.uniform_cross_entropy(_ood(out)).mean(), task.axis_name
        ), out

    perturbed = jax.tree.map(jnp.add, state.params, offset)
    (loss_ood, out), gradients = jax.value_and_grad(ood_loss, has_aux=True)(perturbed)
    # The update is computed at w + γP (weight decay sees those weights) and the perturbation is taken off after it.
    state = descend(replace(state, params=perturbed), gradients, task=task, hyper=hyper)
    state = replace(
        state,
        params=jax.tree.map(jnp.subtract, state.params, offset),
        batch_stats=average(out.batch_stats, task.axis_name),
        memory=memory,
    )

    def in_loss(params: Any) -> tuple[Array, Any]:
        out = forward(params, state.batch_stats, batch, in_key, model=task.model, train=True)
        loss = losses.mean_cross_entropy(out.logits_in, batch.labels, hyper.objective.get("class_weights"))
        return average(loss, task.axis_name), out

    (loss_in, out), gradients = jax.value_and_grad(in_loss, has_aux=True)(state.params)
    state = descend(state, gradients, task=task, hyper=hyper)
    state = replace(state, step=state.step + 1, batch_stats=average(out.batch_stats, task.axis_name))
    return state, step_metrics(loss_in + loss_ood, out.logits_in, batch.labels, axis_name=task.axis_name)


def _sensitivity_direction(state: TrainState, batch: Batch, task: Task) -> Any:
    """−∇_w ‖∂L_OE(s · z_w)/∂s‖² at s = 1, with dropout off and BN on the batch's own statistics."""
    model = without_dropout(task.model)

    def sensitivity(params: Any) -> Array:
        out = forward(params, state.batch_stats, batch, jax.random.key(0), model=model, train=True)

        def scaled_loss(scale: Array) -> Array:
            return average(losses.uniform_cross_entropy(scale * _ood(out)).mean(), task.axis_name)

        # Of the whole batch: the square of a mean over devices is not the mean of their squares.
        return jnp.square(average(jax.grad(scaled_loss)(jnp.ones(())), task.axis_name))

    return jax.tree.map(jnp.negative, jax.grad(sensitivity)(state.params))


def _ood(out: Forward) -> Array:
    if out.logits_ood is None:
        raise ValueError("DOE needs auxiliary OOD images, got none")
    return out.logits_ood


def without_dropout(model: Any) -> Any:
    """The classifier with its backbone's dropout rate set to 0; itself where the backbone has none."""
    if not hasattr(model.backbone, "dropout"):
        return model
    return model.clone(backbone=model.backbone.clone(dropout=0.0))


def _rescale(direction: Any, params: Any) -> Any:
    """‖w‖/‖Δ‖ · Δ for each kernel, zeros for every other tensor (and where Δ is zero)."""

    def rescale(d: Array, w: Array) -> Array:
        if w.ndim < 2:
            return jnp.zeros_like(w)
        norm = jnp.linalg.norm(d.reshape(-1))
        return jnp.where(norm > 0, jnp.linalg.norm(w.reshape(-1)) / jnp.where(norm > 0, norm, 1.0), 0.0) * d

    return jax.tree.map(rescale, direction, params)


def _average_perturbation(memory: dict[str, Any], new: Any, *, decay: float | Array) -> dict[str, Any]:
    """P ← β P + (1 − β) Δ; the first Δ is taken whole."""
    decay = jnp.where(memory["count"] == 0, 0.0, decay)
    perturbation = jax.tree.map(
        lambda p, d: (decay * p + (1.0 - decay) * d).astype(p.dtype), memory["perturbation"], new
    )
    return {"perturbation": perturbation, "count": memory["count"] + 1}
