"""What a run will take, roughly and before it begins, so that nobody waits for days or lacks the memory."""

import math
import os
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.training import data as training_data
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
    images = stage.settings.batch_size * (1 + stage.method.uses_outliers)
    flops, kept = _forward(stage.model, (images, *image_shape))
    found = []
    memory = _memory()
    if memory is not None and kept > memory:
        found.append(
            f"a step of {images} images of {'×'.join(map(str, image_shape))} keeps about {kept / 1e9:.1f} GB, and"
            f" there are {memory / 1e9:.1f} GB: give a smaller --batch-size, smaller images or another --backbone"
        )
    if jax.default_backend() == "cpu" and math.isfinite(flops):
        steps = sum(each.plan.total_steps for each in stages)
        step = _PASSES * flops / (_EFFICIENCY * _flops_per_second())
        if step * steps > several_days:
            found.append(
                f"on this machine a step takes about {step:.2g} s, so the {steps:,} steps take about"
                f" {_long(step * steps)}: give fewer --epochs, --max-steps or another --backbone, or use an accelerator"
            )
    return found


def _forward(model: Any, shape: tuple[int, ...]) -> tuple[float, float]:
    """Floating-point operations of a forward pass, and bytes of what it computes on the way."""
    images = jax.ShapeDtypeStruct(shape, jnp.float32)
    variables = jax.eval_shape(model.init, jax.random.key(0), images)
    cost = jax.jit(model.apply).lower(variables, images).cost_analysis() or {}
    kept = sum(
        math.prod(out.aval.shape) * out.aval.dtype.itemsize
        for equation in jax.make_jaxpr(model.apply)(variables, images).jaxpr.eqns
        for out in equation.outvars
    )
    return float(cost.get("flops", math.nan)), float(kept)


def _memory() -> float | None:
    """Bytes of the device's memory, of a CPU the host's that are free; None where nobody says."""
    if jax.default_backend() != "cpu":
        return training_data.device_memory()
    if not hasattr(os, "sysconf") or "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return None
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))


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
