"""Operations that are linear in each operand: they act on the coefficients of each power alike."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from preload_jax.guarantees.germs import arithmetic, compare, germ
from preload_jax.guarantees.germs.germ import EXACT, UNKNOWN, Eventually, Germ

# They add what they move to what is there.
_ADDING = ("scatter", "scatter-add", "scatter_add")


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
    hidden = iter(germ.without_hidden_infinities(*(x for x in operands if isinstance(x, Germ))))
    operands = [next(hidden) if isinstance(x, Germ) else x for x in operands]
    germs = [x for x in operands if isinstance(x, Germ)]
    floor = max(x.floor for x in germs)
    powers = [p for p in germ.powers_of(*germs) if p > floor]
    wild = any(x.wild for x in germs)
    parts: dict[int, list[Any]] = {}
    for p in powers:
        values = [germ.coefficient(x, p, ctx.dtype) if isinstance(x, Germ) else x for x in operands]
        parts[p] = bind(eqn, values, ctx.dtype)
    errors = {
        p: _moved(ctx, eqn, operands, [x.noise.get(p, germ.ZERO) if isinstance(x, Germ) else x for x in operands])
        for p in powers
    }
    orders = _moved(ctx, eqn, operands, [x.order if isinstance(x, Germ) else x for x in operands])
    return [
        germ.make(
            {p: parts[p][i] for p in powers},
            jnp.maximum(jnp.where(jnp.isnan(orders[i]), UNKNOWN, orders[i]), unknown),
            {p: errors[p][i] for p in powers},
            shape=shape,
            floor=floor,
            wild=wild,
            divisor=len(germs) == 1 and germs[0].divisor,
        )
        for i, shape in enumerate(shapes)
    ]


def _moved(ctx: Any, eqn: Any, operands: list[Any], levels: list[Any]) -> list[Any]:
    """The rounding errors, or orders, of each output: moved as the elements are where they have some of their own."""
    own = [level for level, x in zip(levels, operands, strict=True) if isinstance(x, Germ)]
    if not any(np.shape(level) for level in own) or eqn.primitive.name in _ADDING:
        return [germ.highest_order([jnp.max(level, initial=EXACT) for level in own])] * len(eqn.outvars)
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
        largest = partial(compare.largest_of_windows, params=eqn.params)
    elif eqn.primitive.name == "cumsum":
        count = x.shape[eqn.params["axis"]]
        largest = partial(lax.cummax, axis=eqn.params["axis"], reverse=eqn.params["reverse"])
    else:
        count = max(math.prod(x.shape) // max(math.prod(shape), 1), 1)
        largest = partial(germ.largest_along, axes=eqn.params["axes"], shape=x.shape)

    def total(term: Any) -> Any:
        return bind(eqn, [term], ctx.dtype)[0]

    return [arithmetic.summing(total, x, gain=math.sqrt(count), shape=shape, largest=largest)]


def dot_general(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    a, b = args
    shape = eqn.outvars[0].aval.shape
    (contract_a, contract_b), (batch_a, batch_b) = eqn.params["dimension_numbers"]
    free_a, free_b = (
        [i for i in range(len(np.shape(x))) if i not in (*contract, *batch)]
        for x, contract, batch in ((a, contract_a, batch_a), (b, contract_b, batch_b))
    )

    def spread(levels: Any, contract: Any, batch: Any, free: list[int], before: int, after: int) -> Any:
        """Of an operand, the largest along what is added up, laid out as the result is: batch, free of a, free of b."""
        rest = [i for i in range(levels.ndim) if i not in contract]
        levels = jnp.max(levels, axis=tuple(contract), initial=EXACT)
        levels = jnp.transpose(levels, [rest.index(i) for i in (*batch, *free)])
        sizes = levels.shape
        return levels.reshape(*sizes[: len(batch)], *[1] * before, *sizes[len(batch) :], *[1] * after)

    first = partial(spread, contract=contract_a, batch=batch_a, free=free_a, before=0, after=len(free_b))
    second = partial(spread, contract=contract_b, batch=batch_b, free=free_b, before=len(free_a), after=0)
    if isinstance(a, Germ) and isinstance(b, Germ):
        return [_bilinear(ctx, eqn, a, b, math.prod(a.shape[i] for i in contract_a), (first, second))]
    constant, axes = (b, contract_b) if isinstance(a, Germ) else (a, contract_a)
    gain = _gain(constant, axes)
    return [_with_constant(ctx, eqn, args, gain=gain, shape=shape, largest=first if isinstance(a, Germ) else second)]


def conv_general_dilated(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    x, kernel = args
    shape = eqn.outvars[0].aval.shape
    spec = eqn.params["dimension_numbers"].rhs_spec
    taps = tuple(spec[1:])
    if isinstance(x, Germ) and isinstance(kernel, Germ):
        return [_bilinear(ctx, eqn, x, kernel, math.prod(kernel.shape[i] for i in taps), (_of_all, _of_all))]
    gain = _gain(kernel, taps) if isinstance(x, Germ) else math.sqrt(math.prod(kernel.shape)) * germ.largest(x)
    return [_with_constant(ctx, eqn, args, gain=gain, shape=shape, largest=_of_all)]


def _of_all(levels: Any) -> Any:
    """The largest: that of a patch would be tighter, and is not needed by the networks that are known."""
    return jnp.max(levels, initial=EXACT)


def _gain(constant: Any, axes: tuple[int, ...]) -> Any:
    """Of independent errors: the largest root of a sum of squares."""
    return jnp.sqrt(jnp.max(jnp.sum(constant.astype(jnp.float32) ** 2, axis=axes), initial=0.0))


def _with_constant(
    ctx: Any, eqn: Any, args: list[Any], *, gain: Any, shape: tuple[int, ...], largest: Callable[[Any], Any]
) -> Germ:
    place = next(i for i, arg in enumerate(args) if isinstance(arg, Germ))

    def apply(term: Any) -> Any:
        return bind(eqn, [term if i == place else arg for i, arg in enumerate(args)], ctx.dtype)[0]

    return arithmetic.summing(apply, args[place], gain=gain, shape=shape, largest=largest)


def _bilinear(ctx: Any, eqn: Any, a: Germ, b: Germ, count: int, largest: Any) -> Germ:
    def combine(first: Any, second: Any) -> Any:
        return bind(eqn, [first, second], ctx.dtype)[0]

    shape = jax.eval_shape(combine, *(jax.ShapeDtypeStruct(x.shape, ctx.dtype) for x in (a, b))).shape
    return arithmetic.product(a, b, combine, shape=shape, gain=math.sqrt(count), largest=largest)
