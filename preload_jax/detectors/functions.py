"""The functions that outputs hold, a network and its last part: how JAX takes them, and whether they may change."""

from collections.abc import Callable
from typing import Any

from jax.tree_util import Partial


class OfModel:
    """A function that its model tells from others: it takes the variables as an argument."""


def may_change(*functions: Any) -> bool:
    """Whether one of the functions, where there are any, is anybody's: what it closes over may be another by now.

    In a program that was compiled of it before, that is a constant.
    """
    return any(f is not None and not isinstance(getattr(f, "func", None), OfModel) for f in functions)


def as_pytree(function: Callable[[Any], Any]) -> Any:
    """The function as an argument of compiled ones."""
    return function if isinstance(function, Partial) else Partial(function)
