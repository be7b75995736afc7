"""What a run will take, roughly and before it begins, so that nobody waits for days or lacks the memory."""

import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.training import memory
from preload_jax.training.stage import Stage

# A step is a forward pass, and a backward pass of about twice its arithmetic.
_PASSES = 3
# Convolutions and the rest of a step reach some half of the speed of a matrix product on a CPU.
_EFFICIENCY = 0.5
_LONG = 12 * 3600.0
_SIZE = 1024


def warnings(stages: Sequence[Stage], image_shape: tuple[int, ...], *, several_days: float = _LONG) -> list[str]:
    """One line for memory and one for time, where either will be a trouble; estimates within a factor of about three.

    Args:
        stages: of the run.
        image_shape: of one image.
        several_days: seconds from which time is a trouble.
    """
    if not stages:
        return []
    stage = stages[-1]
    images = stage.settings.batch_size * (1 + stage.method.sees_ood)
    flops = _forward(stage.model, (images, *image_shape))
    found = []
    if (problem := memory.problem(stage.model, image_shape, images)) is not None:
        found.append(f"{problem}: give a smaller --batch-size, smaller images or another --backbone")
    if jax.default_backend() == "cpu" and math.isfinite(flops):
        steps = sum(each.plan.total_steps for each in stages)
        step = _PASSES * flops / (_EFFICIENCY * _flops_per_second())
        if step * steps > several_days:
            found.append(
                f"on this machine a step takes about {step:.2g} s, so the {steps:,} steps take about"
                f" {_long(step * steps)}: give fewer --epochs, --max-steps or another --backbone, or use an accelerator"
            )
    return found


def _forward(model: Any, shape: tuple[int, ...]) -> float:
    """Floating-point operations of a forward pass."""
    images = jax.ShapeDtypeStruct(shape, jnp.float32)
    variables = jax.eval_shape(model.init, jax.random.key(0), images)
    cost = jax.jit(model.apply).lower(variables, images).cost_analysis() or {}
    return float(cost.get("flops", math.nan))


def _flops_per_second() -> float:
    """Of a matrix product, measured in a tenth of a second."""
    matrix = jnp.asarray(np.ones((_SIZE, _SIZE), np.float32))
    multiply = jax.jit(jnp.matmul)
    multiply(matrix, matrix).block_until_ready()
    start = time.perf_counter()
    multiply(matrix, matrix).block_until_ready()
    return 2.0 * _SIZE**3 / (time.perf_counter() - start)


def _long(seconds: float) -> str:
    return f"{seconds / 86400:.1f} days" if seconds >= 2 * 86400 else f"{seconds / 3600:.0f} hours"
