"""A network of another framework, traced: whether it is a function of arrays and images, and returns features."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.devices import programs
from preload_jax.errors import UserError, reason

# JAX's errors where Python asks for a value that only the compiled program will know.
_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
# Operations whose results do not depend on their inputs alone.
_IMPURE = ("io_callback", "rng_uniform")


def called(network: Any, params: Any, stats: Any, images: Any, *, train: bool, key: Any) -> tuple[Any, Any]:
    """(features [n, d], statistics after it) of a network.

    Raises:
        UserError: when it returns something else, needs values to be traced, or does not take the images.
    """
    try:
        features, after = network.calls(params, stats, images, train=train, key=key)
    except UserError:
        raise
    except _NEEDS_VALUES as error:
        raise UserError(
            f"the {network.title} asks for values that are known only when it runs, in an if, a loop or NumPy"
            f" ({type(error).__name__}); use jnp.where or jax.lax.cond, and jax.numpy"
        ) from error
    except Exception as error:
        raise UserError(
            f"the {network.title} does not take images {list(images.shape)}: {reason(error)}{network.hint}"
        ) from error
    if not isinstance(features, np.ndarray | jax.Array):
        raise UserError(
            f"the {network.title} returns a {type(features).__name__}; expected one array of features [n, d]: return"
            " the embedding alone, without logits or anything else"
        )
    # Of shapes, since a program for any number of images has no length to ask for.
    if features.ndim != 2 or features.shape[0] != images.shape[0]:
        raise UserError(
            f"the {network.title} makes features of shape {list(features.shape)} of {images.shape[0]} images; expected"
            f" [n, d]: pool or flatten them{network.hint}"
        )
    if not jnp.issubdtype(features.dtype, jnp.floating):
        raise UserError(f"the {network.title} makes features of type {features.dtype}; expected floating point")
    return jnp.asarray(features), after


# Sizes of a shape are symbols where a program for any number of images is made.
@lru_cache(maxsize=64)  # Asked whenever the network is traced.
def require_pure(network: Any, shape: tuple[Any, ...], dtype: Any, train: bool) -> None:
    """Raises a UserError unless two tracings of the network, for images of a shape, give the same program."""
    first, second = (_traced(network, shape, dtype, train) for _ in range(2))
    for operation in _IMPURE:
        if f" {operation}[" in first[0]:
            raise UserError(
                f"the {network.title} has side effects ({operation}); expected a function of parameters and images"
                " alone"
            )
    if first[0] != second[0] or not _same(first[1], second[1]):
        raise UserError(
            f"the {network.title} is another each time it is asked, as with a clock, a counter or NumPy's random"
            " numbers in it; expected a function of parameters and images alone: pass what changes as a parameter"
        )


def _traced(network: Any, shape: tuple[Any, ...], dtype: Any, train: bool) -> tuple[str, list[Any]]:
    """The program as text, and all constants in it."""
    images = jax.ShapeDtypeStruct(shape, dtype)

    def run(params: Any, stats: Any, given: Any, key: Any) -> Any:
        return called(network, params, stats, given, train=train, key=key if train and network.draws else None)

    # Its shape alone: a key that is made here would be an operation of the program that is being traced around this.
    key = jax.eval_shape(lambda: jax.random.key(0))
    traced = jax.make_jaxpr(run)(network.params.shapes(), network.stats.shapes(), images, key)
    return programs.text(traced), list(programs.constants(traced.jaxpr, traced.consts))


def _same(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(
        a is b or programs.bits(a) == programs.bits(b) for a, b in zip(first, second, strict=True)
    )
