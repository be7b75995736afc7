"""What somebody's function computes now: JAX keeps what it traced first, also where the function reads other values."""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.devices import companions

# Of functions that are made anew in each tracing.
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_OURS = "preload_jax."
_COUNTER = itertools.count()


def traced(function: Callable[..., Any], *args: Any) -> Any:
    """The function's jaxpr as it is now; `jax.make_jaxpr` alone gives the first one again."""
    return jax.make_jaxpr(lambda *given: function(*given))(*args)


def digest(function: Callable[..., Any], *args: Any) -> str:
    """SHA-256 of what a function computes now of arguments of these shapes, "" where that cannot change.

    A key for programs compiled of it: it closes over weights that are constants there, and may be trained on.
    """
    return "" if _is_ours(function) else of_jaxpr(traced(function, *args))


def digest_of_model(model: Any, function: Callable[..., Any], *args: Any) -> str:
    """`digest` of what a model computes, where a function in it may change; "" for other modules.

    Those are their code, their fields and their variables: nothing is traced for them with every batch.
    """
    return of_jaxpr(traced(function, *args)) if _holds_a_function(model) else ""


def key_of_training(model: Any) -> str:
    """A key that no other training has, where a function in the model may change; "" for other modules."""
    return str(next(_COUNTER)) if _holds_a_function(model) else ""


def _holds_a_function(value: Any) -> bool:
    if isinstance(value, nn.Module):
        fields = (getattr(value, each.name, None) for each in dataclasses.fields(value) if each.name != "parent")
        return any(map(_holds_a_function, fields))
    if isinstance(value, tuple | list):
        return any(map(_holds_a_function, value))
    return bool(getattr(value, "__closure__", None) or getattr(value, "may_change", False))


def of_jaxpr(closed: Any) -> str:
    """SHA-256 of a program's operations and of all constants in it."""
    total = hashlib.sha256(text(closed).encode())
    for constant in constants(closed.jaxpr, closed.consts):
        # Nobody knows the value of a traced one: it is like no other.
        traced_now = isinstance(constant, jax.core.Tracer)
        total.update(f"traced {next(_COUNTER)}".encode() if traced_now else bits(constant))
    return total.hexdigest()


def text(closed: Any) -> str:
    """A program's operations, without what is another in each tracing."""
    return _ADDRESS.sub("", str(closed.jaxpr))


def _is_ours(function: Any) -> bool:
    """Whether it consists of the library's own modules, whose variables are arguments."""
    wraps = dataclasses.is_dataclass(function) and not isinstance(function, nn.Module)
    if wraps and type(function).__module__.startswith(_OURS):
        return all(_is_ours(getattr(function, field.name)) for field in dataclasses.fields(function))
    return companions.known(function)


def constants(jaxpr: Any, consts: Any) -> Iterator[Any]:
    """The constants of a program and of the programs in it, in order."""
    yield from consts
    for equation in jaxpr.eqns:
        yield from (var.val for var in equation.invars if hasattr(var, "val"))
        for value in equation.params.values():
            for each in value if isinstance(value, tuple | list) else (value,):
                if hasattr(each, "jaxpr") and hasattr(each, "consts"):
                    yield from constants(each.jaxpr, each.consts)
                elif hasattr(each, "eqns"):
                    yield from constants(each, ())
                elif isinstance(each, np.ndarray | jax.Array):
                    yield each


def bits(value: Any) -> bytes:
    """An array's shape, type and numbers."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.ascontiguousarray(value)
    return f"{array.shape} {array.dtype}".encode() + array.tobytes()
