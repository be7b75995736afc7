"""Whether a training step fits into memory, told before it begins."""

import functools
import math
import os
from typing import Any

import jax

from preload_jax.devices.variables import inputs_of
from preload_jax.models import Classifier
from preload_jax.training import data as training_data

# Images of the pass that is looked at.
_TRACED = 2
# Arrays of the weights' size that training holds at least: themselves, their gradients, and a momentum.
_COPIES = 3


def problem(model: Classifier, image_shape: tuple[int, ...], images: int) -> str | None:
    """What is wrong with a step of so many images, in one line without a remedy; None where it fits."""
    memory, needed = available(), kept(model, image_shape, images)
    if memory is None or needed <= memory:
        return None
    return (
        f"a step of {images} images of {'×'.join(map(str, image_shape))} keeps about {needed / 1e9:.1f} GB, and"
        f" there are {memory / 1e9:.1f} GB"
    )


def problem_of_weights(variables: Any) -> str | None:
    """What is wrong with a network of these shapes, in one line without a remedy; None where its training may fit."""
    count = sum(math.prod(each.shape) for each in jax.tree.leaves(variables))
    needed = float(_COPIES * sum(math.prod(each.shape) * each.dtype.itemsize for each in jax.tree.leaves(variables)))
    memory = available()
    if memory is None or needed <= memory:
        return None
    return (
        f"the network has {count:,} weights, whose training keeps at least {needed / 1e9:.1f} GB, and there are"
        f" {memory / 1e9:.1f} GB"
    )


def kept(model: Classifier, image_shape: tuple[int, ...], images: int) -> float:
    """Bytes of all that a forward pass computes on the way, which the backward pass reads; an estimate from above."""
    # Of two images, times their number: nothing is traced for a batch that is far too large.
    return (
        float(images)
        / _TRACED
        * sum(
            math.prod(out.aval.shape) * out.aval.dtype.itemsize
            for equation in forward_jaxpr(model, image_shape).jaxpr.eqns
            for out in equation.outvars
        )
    )


@functools.lru_cache(maxsize=1)
def forward_jaxpr(model: Classifier, image_shape: tuple[int, ...]) -> Any:
    """The jaxpr of a forward pass over two images; traced once for all who ask before a training begins."""
    images = inputs_of(model, image_shape, count=_TRACED)
    variables = jax.eval_shape(model.init, jax.random.key(0), images)
    return jax.make_jaxpr(model.apply)(variables, images)


def available() -> float | None:
    """Bytes of the device's memory, of a CPU the host's that are free; None where nobody says."""
    if jax.default_backend() != "cpu":
        return training_data.device_memory()
    if not hasattr(os, "sysconf") or "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return None
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
