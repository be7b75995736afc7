"""What each primitive does to germs: one row a primitive."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from preload_jax.errors import UserError
from preload_jax.guarantees.germs import arithmetic, compare, functions, germ, linear
from preload_jax.guarantees.germs.germ import Eventually, Germ

Rule = Callable[[Any, Any, list[Any]], list[Any]]


def _identity(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    return list(args)


def _convert(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    # A cast is read as exact arithmetic; one to integers or truth values is not.
    if jnp.issubdtype(eqn.params["new_dtype"], jnp.floating):
        return list(args)
    if eqn.params["new_dtype"] == jnp.bool_:
        return [compare.compare("ne", args[0], germ.of_constant(jnp.zeros(args[0].shape, ctx.dtype)))]
    kind = "complex numbers" if jnp.issubdtype(eqn.params["new_dtype"], jnp.complexfloating) else "integers"
    raise ctx.refuse(eqn, f"a cast to {kind} along a ray has no germ")


def _unary(function: Callable[[Germ], Germ]) -> Rule:
    return lambda ctx, eqn, args: [function(args[0])]


def _binary(function: Callable[[Germ, Germ], Germ]) -> Rule:
    return lambda ctx, eqn, args: [_same_shape(eqn, function(germ.of_constant(args[0]), germ.of_constant(args[1])))]


def _same_shape(eqn: Any, x: Germ) -> Germ:
    shape = eqn.outvars[0].aval.shape
    return x if x.shape == shape else arithmetic.each(lambda term: jnp.broadcast_to(term, shape), x, shape=shape)


def _sub(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    a, b = (germ.of_constant(arg) for arg in args)
    if a is b:
        return [germ.of_constant(jnp.zeros(a.shape, ctx.dtype))]
    return [_same_shape(eqn, arithmetic.add(a, arithmetic.negative(b)))]


def _mul(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    a, b = args
    if isinstance(a, Germ) and _is_plain(b):
        result = arithmetic.times_constant(a, b)
    elif isinstance(b, Germ) and _is_plain(a):
        result = arithmetic.times_constant(b, a)
    else:
        result = arithmetic.multiply(germ.of_constant(a), germ.of_constant(b))
    return [_same_shape(eqn, ctx.note_growth(eqn, result))]


def _div(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    a, b = args
    if _is_plain(b):
        return [_same_shape(eqn, arithmetic.divided_by_constant(germ.of_constant(a), b))]
    inverse = ctx.inverse(germ.of_constant(b), -1)
    return [_same_shape(eqn, ctx.note_growth(eqn, arithmetic.multiply(germ.of_constant(a), inverse)))]


def _is_plain(value: Any) -> bool:
    return not isinstance(value, Germ | Eventually) and not germ.of_constant(value).wild


def _integer_pow(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    return [ctx.note_growth(eqn, arithmetic.integer_power(args[0], eqn.params["y"]))]


def _square(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    return [ctx.note_growth(eqn, arithmetic.multiply(args[0], args[0]))]


def _pow(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    base, exponent = args
    if isinstance(exponent, Germ | Eventually) or not ctx.is_concrete(exponent):
        raise ctx.refuse(eqn, "a power whose exponent is no fixed number has no germ")
    numbers = set(np.ravel(np.asarray(exponent)).tolist())
    if len(numbers) != 1:
        raise ctx.refuse(eqn, "powers with several exponents at once have no rule")
    exponent = numbers.pop()
    if exponent >= 0 and float(exponent).is_integer():
        result = arithmetic.integer_power(base, int(exponent))
    else:
        result = arithmetic.power(base, exponent)
    return [_same_shape(eqn, ctx.note_growth(eqn, result))]


def _rsqrt(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    return [ctx.inverse(args[0], -0.5)]


def _function(name: str) -> Rule:
    def rule(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
        def plain(values: Any) -> Any:
            return linear.bind(eqn, [values], ctx.dtype)[0]

        result, outgrown = functions.apply(plain, functions.FUNCTIONS[name], args[0])
        ctx.note(eqn, outgrown, "outgrows every power of t")
        return [result]

    return rule


def _extremum(function: Callable[[Germ, Germ], Germ], neutral: int) -> Rule:
    """Of the maximum −∞ is neutral, of the minimum +∞."""

    def rule(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
        for i, arg in enumerate(args):
            known = not isinstance(arg, Germ | Eventually) and ctx.is_concrete(arg)
            if known and np.all(neutral * np.asarray(arg) >= germ.INFINITE):
                return [args[1 - i]]
        return [_same_shape(eqn, function(germ.of_constant(args[0]), germ.of_constant(args[1])))]

    return rule


def _clamp(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    above = _extremum(compare.maximum, -1)(ctx, eqn, [args[0], args[1]])
    return _extremum(compare.minimum, 1)(ctx, eqn, [above[0], args[2]])


def _compare(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    a, b = (germ.of_constant(arg) for arg in args)
    return [compare.compare(eqn.primitive.name, a, b)]


def _select(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    which, *cases = args
    known = which.known if isinstance(which, Eventually) else None
    value = which.value if isinstance(which, Eventually) else which
    value = jnp.broadcast_to(value, eqn.outvars[0].aval.shape)
    known = None if known is None else jnp.broadcast_to(known, value.shape)
    return [compare.select(value, known, [germ.of_constant(case) for case in cases])]


def _reduction(function: Callable[[Germ, Any], Germ]) -> Rule:
    return lambda ctx, eqn, args: [function(args[0], eqn.params["axes"])]


def _argmax(sign: int) -> Rule:
    def rule(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
        x = args[0] if sign > 0 else arithmetic.negative(args[0])
        (axis,) = eqn.params["axes"]
        return [compare.argmax(x, axis, eqn.params["index_dtype"])]

    return rule


def _window(sign: int) -> Rule:
    def rule(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
        if set(eqn.params["base_dilation"]) != {1}:
            raise ctx.refuse(eqn, "pooling with a base dilation has no rule")
        x = args[0] if sign > 0 else arithmetic.negative(args[0])
        pooled = compare.windows_max(x, eqn.params)
        return [pooled if sign > 0 else arithmetic.negative(pooled)]

    return rule


def _sort(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    if len(args) != 1:
        raise ctx.refuse(eqn, "sorting several arrays at once has no rule")
    return [compare.sort(args[0], eqn.params["dimension"])]


def _round(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    # x and a bounded remainder.
    x = args[0]
    (x,) = germ.without_hidden_infinities(replace(x, floor=max(x.floor, 0.0)))
    return [germ.make(x.terms, jnp.maximum(x.order, 0.0), x.noise, shape=x.shape, floor=x.floor)]


def _is_finite(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    return [Eventually(jnp.ones(args[0].shape, bool), jnp.ones(args[0].shape, bool))]


_IDENTITIES = (
    "copy", "copy_p", "stop_gradient", "optimization_barrier", "reduce_precision", "device_put", "sharding_constraint",
    "real", "pvary",
)  # fmt: skip
_STRUCTURAL = (
    "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "dynamic_slice", "split", "rev",
    "dynamic_update_slice", "gather", "scatter", "scatter-add", "scatter_add", "pad", "concatenate", "stack", "tile",
)  # fmt: skip

RULES: dict[str, Rule] = {
    **dict.fromkeys(_IDENTITIES, _identity),
    **dict.fromkeys(_STRUCTURAL, linear.structural),
    **dict.fromkeys(("reduce_sum", "cumsum", "reduce_window_sum"), linear.summing),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne"), _compare),
    **dict.fromkeys(("floor", "ceil", "round"), _round),
    **{name: _function(name) for name in functions.FUNCTIONS},
    "convert_element_type": _convert,
    "neg": _unary(arithmetic.negative),
    "add": _binary(arithmetic.add),
    "add_any": _binary(arithmetic.add),
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "square": _square,
    "integer_pow": _integer_pow,
    "pow": _pow,
    "sqrt": _unary(partial(arithmetic.power, exponent=0.5)),
    "rsqrt": _rsqrt,
    "abs": _unary(compare.absolute),
    "sign": _unary(compare.sign),
    "max": _extremum(compare.maximum, -1),
    "min": _extremum(compare.minimum, 1),
    "clamp": _clamp,
    "select_n": _select,
    "is_finite": _is_finite,
    "reduce_max": _reduction(compare.reduce_max),
    "reduce_min": _reduction(compare.reduce_min),
    "argmax": _argmax(1),
    "argmin": _argmax(-1),
    "reduce_window_max": _window(1),
    "reduce_window_min": _window(-1),
    "sort": _sort,
    "dot_general": linear.dot_general,
    "conv_general_dilated": linear.conv_general_dilated,
}


def refusal(primitive: str, line: str, why: str) -> UserError:
    """One line that names the primitive and the user's code."""
    return UserError(f"'{primitive}' at {line}: {why}")
