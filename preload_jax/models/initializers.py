"""PyTorch's default initialisations, which the paper's networks start from."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def torch_kernel_init(key: Array, shape: Sequence[int], dtype: Any = jnp.float32) -> Array:
    """Uniform on ±1/√fan_in for a kernel whose last axis is the output (dense [in, out], convolution HWIO)."""
    bound = math.prod(shape[:-1]) ** -0.5
    return jax.random.uniform(key, tuple(shape), dtype, -bound, bound)


def torch_bias_init(fan_in: int) -> Callable[..., Array]:
    """Uniform on ±1/√fan_in."""

    def init(key: Array, shape: Sequence[int] = (), dtype: Any = jnp.float32) -> Array:
        return jax.random.uniform(key, tuple(shape), dtype, -(fan_in**-0.5), fan_in**-0.5)

    return init


def fan_out_normal_init(key: Array, shape: Sequence[int], dtype: Any = jnp.float32) -> Array:
    """Normal with standard deviation √(2 / (k·k·out_channels)), for a convolution kernel HWIO."""
    fan_out = shape[0] * shape[1] * shape[-1]
    return math.sqrt(2.0 / fan_out) * jax.random.normal(key, tuple(shape), dtype)
