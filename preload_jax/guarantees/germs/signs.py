"""Whether an output is ≥ 0 for every input, read from the operations that make it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from preload_jax.guarantees.germs.interpreter import BODIES

# Of any number: never negative.
_ALWAYS = (
    "abs",
    "exp",
    "exp2",
    "square",
    "logistic",
    "erfc",
    "sqrt",
    "rsqrt",
    "is_finite",
    "eq",
    "ne",
    "gt",
    "ge",
    "lt",
    "le",
)
# Never negative where every operand is.
_OF_ALL = (
    "add", "add_any", "mul", "div", "min", "reduce_sum", "reduce_min", "reduce_window_sum", "reduce_window_min",
    "cumsum", "dot_general", "conv_general_dilated", "pad", "concatenate", "stack", "integer_pow", "pow", "log1p",
    "expm1", "tanh", "erf", "sign", "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice",
    "split", "rev", "tile", "copy", "copy_p", "stop_gradient", "convert_element_type", "reduce_precision", "reduce_max",
    "reduce_window_max", "optimization_barrier", "sort", "cummax", "device_put", "real", "gather", "dynamic_slice",
)  # fmt: skip


def nonnegative_outputs(function: Callable[[Any], Any], shape: tuple[int, ...]) -> list[bool]:
    """For each output of function(images [1, *shape]): whether it is proved to be ≥ 0 whatever the images.

    False says that these rules do not prove it, not that it is false.

    Example:
        >>> import jax
        >>> from preload_jax.guarantees import germs
        >>> germs.nonnegative_outputs(lambda x: (jax.nn.relu(x) + 1, x * x, x), (3,))
        [True, True, False]
    """
    traced = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((1, *shape), jnp.float32))
    return _walk(traced.jaxpr, [_is_nonnegative(value) for value in traced.consts], [False] * len(traced.jaxpr.invars))


def _is_nonnegative(value: Any) -> bool:
    try:
        return bool((np.asarray(value, np.float64) >= 0).all())
    except (TypeError, ValueError):  # Random keys, which are no numbers.
        return False


def _walk(jaxpr: Any, consts: list[bool], args: list[bool]) -> list[bool]:
    known: dict[Any, bool] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(atom: Any) -> bool:
        return _is_nonnegative(atom.val) if isinstance(atom, Literal) else known[atom]

    never: set[Any] = set()
    for eqn in jaxpr.eqns:
        args = [read(atom) for atom in eqn.invars]
        if eqn.primitive.name == "ne" and eqn.invars[0] is eqn.invars[1]:
            # How code asks for NaN.
            never.add(eqn.outvars[0])
        if eqn.primitive.name == "select_n" and not isinstance(eqn.invars[0], Literal) and eqn.invars[0] in never:
            args[2] = args[1]
        known.update(zip(eqn.outvars, _outputs(eqn, args), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _outputs(eqn: Any, args: list[bool]) -> list[bool]:
    name, params = eqn.primitive.name, eqn.params
    body = next((params[key] for key in BODIES if key in params), None)
    if body is not None and name not in ("scan", "while"):
        inner = body.jaxpr if isinstance(body, ClosedJaxpr) else body
        consts = [_is_nonnegative(value) for value in body.consts] if isinstance(body, ClosedJaxpr) else []
        return _walk(inner, consts, args)
    if name == "cond":
        branches = params["branches"]
        if params.get("branches_platforms"):
            branches = branches[-1:]
        outcomes = [_walk(b.jaxpr, [_is_nonnegative(value) for value in b.consts], args[1:]) for b in branches]
        return [all(values) for values in zip(*outcomes, strict=True)]
    return [_one(eqn, name, args)] * len(eqn.outvars)


def _one(eqn: Any, name: str, args: list[bool]) -> bool:
    if name in _ALWAYS or (name == "integer_pow" and eqn.params["y"] % 2 == 0):
        return True
    if name == "mul" and eqn.invars[0] is eqn.invars[1]:
        return True
    if name == "max":
        return any(args)
    if name == "clamp":
        return args[0] and args[2]
    if name == "select_n":
        return all(args[1:])
    return name in _OF_ALL and all(args)
