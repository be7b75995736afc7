"""Whether an output is ≥ 0 for every input, read from the operations that make it."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from preload_jax.devices import programs
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
    "expm1", "tanh", "erf", "sign", "transpose", "slice", "split", "rev", "tile", "copy", "copy_p", "stop_gradient",
    "convert_element_type", "reduce_precision", "reduce_max", "reduce_window_max", "optimization_barrier", "sort",
    "cummax", "device_put", "real", "gather", "dynamic_slice",
)  # fmt: skip
# Of integers, too: what makes no new ones.
_MOVES = (
    "min", "max", "clamp", "select_n", "reduce_min", "reduce_max", "reduce_window_min", "reduce_window_max", "pad",
    "concatenate", "stack", "transpose", "slice", "split", "rev", "tile", "copy", "copy_p", "stop_gradient",
    "optimization_barrier", "sort", "cummax", "device_put", "gather", "dynamic_slice", "sign",
)  # fmt: skip


def nonnegative_outputs(function: Callable[[Any], Any], inputs: jax.ShapeDtypeStruct) -> list[bool]:
    """For each output of a function of inputs of this shape and type: whether it is proved to be ≥ 0 for all of them.

    False says that these rules do not prove it, not that it is false.

    Example:
        >>> import jax
        >>> from preload_jax.guarantees import germs
        >>> inputs = jax.ShapeDtypeStruct((1, 3), "float32")
        >>> germs.nonnegative_outputs(lambda x: (jax.nn.relu(x) + 1, x * x, x), inputs)
        [True, True, False]
    """
    traced = programs.traced(function, inputs)
    outputs = _walk(traced.jaxpr, [_sign(value) for value in traced.consts], [_Sign.ANY] * len(traced.jaxpr.invars))
    return [output != _Sign.ANY for output in outputs]


class _Sign(IntEnum):
    """What is known of a value: false where nothing is."""

    ANY = 0
    NONNEGATIVE = 1
    ZERO = 2  # so that a choice by it always falls on the same case


def _sign(value: Any) -> _Sign:
    if np.iscomplexobj(value):
        return _Sign.ANY
    try:
        return _Sign(int((np.asarray(value, np.float64) >= 0).all()))
    except (TypeError, ValueError):  # Random keys, which are no numbers.
        return _Sign.ANY


def _walk(jaxpr: Any, consts: list[_Sign], args: list[_Sign]) -> list[_Sign]:
    known: dict[Any, _Sign] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(atom: Any) -> _Sign:
        return _sign(atom.val) if isinstance(atom, Literal) else known[atom]

    for eqn in jaxpr.eqns:
        known.update(zip(eqn.outvars, _outputs(eqn, [read(atom) for atom in eqn.invars]), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _outputs(eqn: Any, args: list[_Sign]) -> list[_Sign]:
    name, params = eqn.primitive.name, eqn.params
    body = next((params[key] for key in BODIES if key in params), None)
    if body is not None and name not in ("scan", "while"):
        inner = body.jaxpr if isinstance(body, ClosedJaxpr) else body
        consts = [_sign(value) for value in body.consts] if isinstance(body, ClosedJaxpr) else []
        return _walk(inner, consts, args)
    if name == "cond":
        branches = params["branches"]
        if params.get("branches_platforms"):
            branches = branches[-1:]
        outcomes = [_walk(b.jaxpr, [_sign(value) for value in b.consts], args[1:]) for b in branches]
        return [min(values) for values in zip(*outcomes, strict=True)]
    if name == "ne" and eqn.invars[0] is eqn.invars[1]:
        # How code asks for NaN.
        return [_Sign.ZERO]
    if name in ("broadcast_in_dim", "reshape", "squeeze", "expand_dims"):
        return args[:1]
    if name == "select_n" and args[0] == _Sign.ZERO:
        return [args[1]]
    if name == "gather" and (params.get("fill_value") is not None and params["fill_value"] < 0):
        return [_Sign.ANY]
    if any(jnp.issubdtype(atom.aval.dtype, jnp.complexfloating) for atom in [*eqn.invars, *eqn.outvars]):
        # Complex numbers have no sign, but for their absolute values.
        return [_Sign(int(name == "abs"))] * len(eqn.outvars)
    signed = any(jnp.issubdtype(var.aval.dtype, jnp.signedinteger) for var in eqn.outvars)
    if signed and name not in _MOVES:
        return [_Sign.ANY] * len(eqn.outvars)  # Integers wrap around.
    return [_Sign(_is_nonnegative(eqn, name, args))] * len(eqn.outvars)


def _is_nonnegative(eqn: Any, name: str, args: list[_Sign]) -> bool:
    if name in _ALWAYS or (name == "integer_pow" and eqn.params["y"] % 2 == 0):
        return True
    if name == "mul" and eqn.invars[0] is eqn.invars[1]:
        return True
    if name == "max":
        return any(args)
    if name == "clamp":
        return bool(args[0] and args[2])
    if name == "select_n":
        return all(args[1:])
    return name in _OF_ALL and all(args)
