"""`jit` with the compiler options that the networks need to be fast on a CPU."""

from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.errors import JaxRuntimeError

# JAX 0.10 gives convolutions to the YNNPACK library on CPUs, by default.  It runs those with fewer than 128 output
# channels on one core, and weight gradients several times slower than Eigen does, which earlier releases used: half of
# the time of a WideResNet's training step.  Dot products and reductions are faster with the library and stay there.
_CPU_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT,LIBRARY_FUSION_TYPE_REDUCE"}


@cache
def compiler_options() -> dict[str, str]:
    """The options for the default backend; none where it is no CPU, or where this release of XLA lacks the library."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(jnp.negative, compiler_options=_CPU_OPTIONS)(0.0)
    except (JaxRuntimeError, ValueError):  # an unknown option, or an unknown value of it
        return {}
    return _CPU_OPTIONS


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Callable[..., Any]:
    """`jax.jit` with `compiler_options()`, which are looked up at the first call: importing starts no backend.

    For whole calls from the host alone: JAX takes compiler options at the outermost `jit` only.  For another device
    than the default one, `jax.jit(call.__wrapped__, **call.options)` is the same without them.
    """
    if function is None:
        return partial(jit, **options)

    @cache
    def compiled() -> Callable[..., Any]:
        return jax.jit(function, compiler_options=compiler_options(), **options)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled()(*args, **kwargs)

    call.options = options  # type: ignore[attr-defined]
    call.lower = lambda *args, **kwargs: compiled().lower(*args, **kwargs)  # type: ignore[attr-defined]
    return call
