"""Whether a training step fits into memory, told before it begins."""

import math
import os

import jax

from preload_jax.devices.variables import inputs_of
from preload_jax.models import Classifier
from preload_jax.training import data as training_data


def problem(model: Classifier, image_shape: tuple[int, ...], images: int) -> str | None:
    """What is wrong with a step of so many images, in one line without a remedy; None where it fits."""
    memory, needed = available(), kept(model, image_shape, images)
    if memory is None or needed <= memory:
        return None
    return (
        f"a step of {images} images of {'×'.join(map(str, image_shape))} keeps about {needed / 1e9:.1f} GB, and"
        f" there are {memory / 1e9:.1f} GB"
    )


def kept(model: Classifier, image_shape: tuple[int, ...], images: int) -> float:
    """Bytes of all that a forward pass computes on the way, which the backward pass reads; an estimate from above."""
    # Of one image, times their number: nothing is traced for a batch that is far too large.
    one = inputs_of(model, image_shape)
    variables = jax.eval_shape(model.init, jax.random.key(0), one)
    return float(images) * sum(
        math.prod(out.aval.shape) * out.aval.dtype.itemsize
        for equation in jax.make_jaxpr(model.apply)(variables, one).jaxpr.eqns
        for out in equation.outvars
    )


def available() -> float | None:
    """Bytes of the device's memory, of a CPU the host's that are free; None where nobody says."""
    if jax.default_backend() != "cpu":
        return training_data.device_memory()
    if not hasattr(os, "sysconf") or "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return None
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
