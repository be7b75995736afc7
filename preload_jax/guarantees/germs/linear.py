"""Operations that are linear in each operand: they act on the coefficients of each power alike."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from preload_jax.guarantees.germs import arithmetic, germ
from preload_jax.guarantees.germs.germ import EXACT, UNKNOWN, Eventually, Germ


def bind(eqn: Any, args: list[Any], dtype: Any) -> list[Any]:
    """The operation itself, in the interpreter's precision instead of its own."""
    outputs = eqn.primitive.bind(*args, **in_precision(eqn.params, dtype))
    return list(outputs) if eqn.primitive.multiple_results else [outputs]


def in_precision(params: dict[str, Any], dtype: Any) -> dict[str, Any]:
    changed = dict(params)
    for name in ("new_dtype", "preferred_element_type", "dtype"):
        if params.get(name) is not None and jnp.issubdtype(params[name], jnp.floating):
            changed[name] = jnp.dtype(dtype)
    if "precision" in params:
        # GPUs and TPUs would otherwise round float32 products to tf32 or bfloat16.
        changed["precision"] = (lax.Precision.HIGHEST, lax.Precision.HIGHEST)
    return changed


def structural(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    """Moves elements, or joins those of several operands; what is no float is a constant, such as an index."""
    shapes = [var.aval.shape for var in eqn.outvars]
    unknown: Any = EXACT
    operands = []
    for arg in args:
        if isinstance(arg, Germ) or jnp.issubdtype(jnp.result_type(getattr(arg, "value", arg)), jnp.floating):
            operands.append(germ.of_constant(arg))
        elif isinstance(arg, Eventually):
            unknown = jnp.maximum(unknown, jnp.where(jnp.all(arg.known), EXACT, UNKNOWN))
            operands.append(arg.value)
        else:
            operands.append(arg)
    germs = [x for x in operands if isinstance(x, Germ)]
    floor = max(x.floor for x in germs)
    order = germ.highest_order([unknown, *(x.order for x in germs)])
    powers = [p for p in germ.powers_of(*germs) if p > floor]
    wild = any(x.wild for x in germs)
    parts: dict[int, list[Any]] = {}
    for p in powers:
        values = [germ.coefficient(x, p, ctx.dtype) if isinstance(x, Germ) else x for x in operands]
        parts[p] = bind(eqn, values, ctx.dtype)
    errors = {p: _moved(ctx, eqn, operands, p) for p in powers}
    return [
        germ.make(
            {p: parts[p][i] for p in powers},
            order,
            {p: errors[p][i] for p in powers},
            shape=shape,
            floor=floor,
            wild=wild,
            divisor=len(germs) == 1 and germs[0].divisor,
        )
        for i, shape in enumerate(shapes)
    ]


def _moved(ctx: Any, eqn: Any, operands: list[Any], power: int) -> list[Any]:
    """The rounding errors of each output: moved as the elements are where they have errors of their own."""
    levels = [x.noise.get(power, germ.ZERO) if isinstance(x, Germ) else x for x in operands]
    own = [level for level, x in zip(levels, operands, strict=True) if isinstance(x, Germ)]
    if not any(np.shape(level) for level in own):
        return [germ.highest_order(own)] * len(eqn.outvars)
    full = [
        jnp.broadcast_to(level, x.shape).astype(ctx.dtype) if isinstance(x, Germ) else level
        for level, x in zip(levels, operands, strict=True)
    ]
    return bind(eqn, full, ctx.dtype)


def summing(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    """A sum of elements of one operand."""
    (x,) = args
    shape = eqn.outvars[0].aval.shape
    if eqn.primitive.name == "reduce_window_sum":
        count = math.prod(eqn.params["window_dimensions"])
    elif eqn.primitive.name == "cumsum":
        count = x.shape[eqn.params["axis"]]
    else:
        count = max(math.prod(x.shape) // max(math.prod(shape), 1), 1)
    return [arithmetic.summing(lambda term: bind(eqn, [term], ctx.dtype)[0], x, gain=math.sqrt(count), shape=shape)]


def dot_general(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    a, b = args
    shape = eqn.outvars[0].aval.shape
    (contract_a, contract_b), _ = eqn.params["dimension_numbers"]
    if isinstance(a, Germ) and isinstance(b, Germ):
        return [_bilinear(ctx, eqn, a, b, math.prod(a.shape[i] for i in contract_a))]
    constant, axes = (b, contract_b) if isinstance(a, Germ) else (a, contract_a)
    return [_with_constant(ctx, eqn, args, gain=_gain(constant, axes), shape=shape)]


def conv_general_dilated(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    x, kernel = args
    shape = eqn.outvars[0].aval.shape
    spec = eqn.params["dimension_numbers"].rhs_spec
    taps = tuple(spec[1:])
    if isinstance(x, Germ) and isinstance(kernel, Germ):
        return [_bilinear(ctx, eqn, x, kernel, math.prod(kernel.shape[i] for i in taps))]
    gain = _gain(kernel, taps) if isinstance(x, Germ) else math.sqrt(math.prod(kernel.shape)) * germ.largest(x)
    return [_with_constant(ctx, eqn, args, gain=gain, shape=shape)]


def _gain(constant: Any, axes: tuple[int, ...]) -> Any:
    """Of independent errors: the largest root of a sum of squares."""
    return jnp.sqrt(jnp.max(jnp.sum(constant.astype(jnp.float32) ** 2, axis=axes), initial=0.0))


def _with_constant(ctx: Any, eqn: Any, args: list[Any], *, gain: Any, shape: tuple[int, ...]) -> Germ:
    place = next(i for i, arg in enumerate(args) if isinstance(arg, Germ))

    def apply(term: Any) -> Any:
        return bind(eqn, [term if i == place else arg for i, arg in enumerate(args)], ctx.dtype)[0]

    return arithmetic.summing(apply, args[place], gain=gain, shape=shape)


def _bilinear(ctx: Any, eqn: Any, a: Germ, b: Germ, count: int) -> Germ:
    def combine(first: Any, second: Any) -> Any:
        return bind(eqn, [first, second], ctx.dtype)[0]

    shape = jax.eval_shape(combine, *(jax.ShapeDtypeStruct(x.shape, ctx.dtype) for x in (a, b))).shape
    return arithmetic.product(a, b, combine, shape=shape, gain=math.sqrt(count))
