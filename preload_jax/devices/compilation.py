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

# For a program that runs once, or once an epoch, LLVM's optimisation takes longer than it saves.  Level 1 takes half as
# long as the default for initial weights, with the same bits for all networks of the library; level 0 has other bits.
_RARE_OPTIONS = {"xla_backend_optimization_level": "1"}


@cache
def compiler_options(*, rare: bool = False) -> dict[str, str]:
    """The options for the default backend; none where it is no CPU, or where this release of XLA lacks the options.

    Args:
        rare: of a program that runs rarely.
    """
    if jax.default_backend() != "cpu":
        return {}
    wanted = _RARE_OPTIONS if rare else _CPU_OPTIONS
    try:
        jax.jit(jnp.negative, compiler_options=wanted)(0.0)
    except (JaxRuntimeError, ValueError):  # an unknown option, or an unknown value of it
        return {}
    return wanted


def jit(function: Callable[..., Any] | None = None, *, rare: bool = False, **options: Any) -> Callable[..., Any]:
    """`jax.jit` with `compiler_options()`, which are looked up at the first call: importing starts no backend.

    For whole calls from the host alone: JAX takes compiler options at the outermost `jit` only.  For another device
    than the default one, `jax.jit(call.__wrapped__, **call.options)` is the same without them.

    Args:
        function: to compile; None makes a decorator.
        rare: compiles in less time what runs once, or once an epoch.
        options: of `jax.jit`.
    """
    if function is None:
        return partial(jit, rare=rare, **options)

    @cache
    def compiled() -> Callable[..., Any]:
        return jax.jit(function, compiler_options=compiler_options(rare=rare), **options)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled()(*args, **kwargs)

    call.options = options  # type: ignore[attr-defined]
    call.lower = lambda *args, **kwargs: compiled().lower(*args, **kwargs)  # type: ignore[attr-defined]
    return call
