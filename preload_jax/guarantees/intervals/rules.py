"""What each primitive does to intervals: one row a primitive."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from preload_jax.guarantees.germs import linear
from preload_jax.guarantees.intervals import interval
from preload_jax.guarantees.intervals.interval import Interval, Truth, of, widened

Rule = Callable[[Any, Any, list[Any]], list[Any]]

# Units in the last place by which an approximation of a function may err, on any platform.
_OF_FUNCTIONS = 16


def _broadcast(eqn: Any, x: Interval) -> Interval:
    shape = eqn.outvars[0].aval.shape
    return Interval(jnp.broadcast_to(x.low, shape), jnp.broadcast_to(x.high, shape))


def _identity(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    return list(args)


def _convert(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    if not jnp.issubdtype(eqn.params["new_dtype"], jnp.floating) or isinstance(args[0], Truth):
        raise ctx.refuse(eqn, "a cast between truth values, integers and numbers has no rule on a box")
    return [widened(args[0], ctx.type(eqn))]


def _both(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    """Moves, compares or adds elements: of the lower ends, and of the upper ones."""
    if isinstance(args[0], Truth) and len(args) == 1:
        fails, holds = (linear.bind(eqn, [each], ctx.dtype)[0] for each in (args[0].may_fail, args[0].may_hold))
        return [Truth(fails, holds)]
    if any(isinstance(arg, Truth) for arg in args):
        raise ctx.refuse(eqn, "truth values that depend on the input cannot be joined on a box")
    ends = []
    for end in ("low", "high"):
        values = [getattr(arg, end) if isinstance(arg, Interval) else arg for arg in args]
        ends.append(linear.bind(eqn, values, ctx.dtype))
    return [Interval(low, high) for low, high in zip(*ends, strict=True)]


def _summing(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    (x,), (found,) = args, _both(ctx, eqn, args)
    (size,) = linear.bind(eqn, [x.size], ctx.dtype)
    return [widened(found, ctx.type(eqn), steps=_count(eqn, x), size=size)]


def _count(eqn: Any, x: Interval) -> int:
    """How many terms a sum has at most."""
    if eqn.primitive.name == "reduce_window_sum":
        return math.prod(eqn.params["window_dimensions"]) + 1
    return (
        math.prod(x.shape) // max(math.prod(eqn.outvars[0].aval.shape), 1)
        + x.shape[0] * ("cumsum" in eqn.primitive.name)
        + 1
    )


def _rounded(function: Callable[..., Interval], steps: int = 1) -> Rule:
    def rule(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
        return [widened(_broadcast(eqn, function(*map(of, args))), ctx.type(eqn), steps=steps)]

    return rule


def _function(
    function: Callable[[Any], Any], *, falls: bool = False, low: float = -math.inf, high: float = math.inf
) -> Rule:
    """Of a function that rises or falls, between two values."""

    def rule(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
        x = widened(interval.monotone(function, args[0], falls=falls), ctx.type(eqn), steps=_OF_FUNCTIONS)
        # Where it is not defined nothing is known, as of the root of what may be negative.
        ends = jnp.where(jnp.isnan(x.low), -jnp.inf, x.low), jnp.where(jnp.isnan(x.high), jnp.inf, x.high)
        return [Interval(jnp.clip(ends[0], low, high), jnp.clip(ends[1], low, high))]

    return rule


def _add(a: Interval, b: Interval) -> Interval:
    return Interval(a.low + b.low, a.high + b.high)


def _sub(a: Interval, b: Interval) -> Interval:
    return Interval(a.low - b.high, a.high - b.low)


def _mul(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    a, b = map(of, args)
    # A square, whose factors are one number.
    found = interval.power(a, 2) if args[0] is args[1] else interval.product(a, b)
    return [widened(_broadcast(eqn, found), ctx.type(eqn))]


def _div(a: Interval, b: Interval) -> Interval:
    return interval.product(a, interval.inverse(b))


def _integer_pow(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    exponent = eqn.params.get("y", 2)
    found = interval.power(args[0], abs(exponent))
    return [widened(found if exponent >= 0 else interval.inverse(found), ctx.type(eqn), steps=2 * abs(exponent) + 2)]


def _extremum(function: Callable[[Any, Any], Any]) -> Rule:
    def rule(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
        a, b = map(of, args)
        return [_broadcast(eqn, Interval(function(a.low, b.low), function(a.high, b.high)))]

    return rule


def _clamp(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    least, x, most = map(of, args)
    ends = (
        jnp.minimum(jnp.maximum(getattr(x, end), getattr(least, end)), getattr(most, end)) for end in ("low", "high")
    )
    return [Interval(*ends)]


def _abs(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    x = args[0]
    around = (x.low <= 0) & (x.high >= 0)
    return [Interval(jnp.where(around, 0.0, jnp.minimum(jnp.abs(x.low), jnp.abs(x.high))), x.size)]


def _compare(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    a, b = map(of, args)
    name, shape = eqn.primitive.name, eqn.outvars[0].aval.shape
    if name in ("lt", "le"):
        a, b, name = b, a, {"lt": "gt", "le": "ge"}[name]
    if name == "gt":
        found = Truth(a.low <= b.high, a.high > b.low)
    elif name == "ge":
        found = Truth(a.low < b.high, a.high >= b.low)
    else:
        apart = (a.low > b.high) | (a.high < b.low)
        alike = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
        found = Truth(~alike, ~apart) if name == "eq" else Truth(~apart, ~alike)
    return [Truth(jnp.broadcast_to(found.may_fail, shape), jnp.broadcast_to(found.may_hold, shape))]


def _select(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    which, *cases = args
    if not isinstance(which, Truth):
        return _both(ctx, eqn, [which, *map(of, cases)])
    no, yes = map(of, cases)
    low = jnp.minimum(jnp.where(which.may_fail, no.low, jnp.inf), jnp.where(which.may_hold, yes.low, jnp.inf))
    high = jnp.maximum(jnp.where(which.may_fail, no.high, -jnp.inf), jnp.where(which.may_hold, yes.high, -jnp.inf))
    return [Interval(low, high)]


def _bilinear(ctx: Any, eqn: Any, args: list[Any]) -> list[Any]:
    """A product of matrices, or a convolution: |Δ(a·b)| ≤ |a|·Δb + Δa·(|b| + Δb) around the middles."""

    def combine(a: Any, b: Any) -> Any:
        return linear.bind(eqn, [a, b], ctx.dtype)[0]

    a, b = map(of, args)
    middle = combine(a.middle, b.middle)
    size = combine(a.size, b.size)
    radius = jnp.zeros_like(middle)
    if isinstance(args[0], Interval):
        radius += combine(a.radius, b.size)
    if isinstance(args[1], Interval):
        radius += combine(jnp.abs(a.middle), b.radius)
    return [widened(Interval(middle - radius, middle + radius), ctx.type(eqn), steps=_terms(eqn, a, b) + 2, size=size)]


def _terms(eqn: Any, a: Interval, b: Interval) -> int:
    """How many products are added up."""
    if eqn.primitive.name == "dot_general":
        return math.prod(a.shape[i] for i in eqn.params["dimension_numbers"][0][0])
    return math.prod(b.shape) // b.shape[eqn.params["dimension_numbers"].rhs_spec[0]]


_IDENTITIES = (
    "copy", "copy_p", "stop_gradient", "optimization_barrier", "device_put", "sharding_constraint", "real", "pvary",
)  # fmt: skip
_STRUCTURAL = (
    "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "dynamic_slice", "split", "rev",
    "gather", "pad", "concatenate", "stack", "tile", "reduce_max", "reduce_min", "reduce_window_max", "cummax",
    "reduce_window_min", "cummin",
)  # fmt: skip
# Their results are not rounded.
EXACT = (*_IDENTITIES, *_STRUCTURAL, "neg", "max", "min", "abs", "clamp", "select_n", "gt", "ge", "lt", "le", "sign")

RULES: dict[str, Rule] = {
    **dict.fromkeys(_IDENTITIES, _identity),
    **dict.fromkeys(_STRUCTURAL, _both),
    **dict.fromkeys(("reduce_sum", "cumsum", "reduce_window_sum"), _summing),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne"), _compare),
    **dict.fromkeys(("dot_general", "conv_general_dilated"), _bilinear),
    **dict.fromkeys(("add", "add_any"), _rounded(_add)),
    **dict.fromkeys(("integer_pow", "square"), _integer_pow),
    "convert_element_type": _convert,
    "neg": lambda ctx, eqn, args: [interval.monotone(jnp.negative, args[0], falls=True)],
    "sub": _rounded(_sub),
    "mul": _mul,
    "div": _rounded(_div, steps=4),
    "max": _extremum(jnp.maximum),
    "min": _extremum(jnp.minimum),
    "clamp": _clamp,
    "select_n": _select,
    "abs": _abs,
    "sign": lambda ctx, eqn, args: [interval.monotone(jnp.sign, args[0])],
    "sqrt": _function(jnp.sqrt, low=0.0),
    "rsqrt": _function(lax.rsqrt, falls=True, low=0.0),
    "exp": _function(jnp.exp, low=0.0),
    "exp2": _function(jnp.exp2, low=0.0),
    "expm1": _function(jnp.expm1, low=-1.0),
    "log": _function(jnp.log),
    "log1p": _function(jnp.log1p),
    "tanh": _function(jnp.tanh, low=-1.0, high=1.0),
    "logistic": _function(jax.nn.sigmoid, low=0.0, high=1.0),
    "erf": _function(lax.erf, low=-1.0, high=1.0),
    "erfc": _function(lax.erfc, falls=True, low=0.0, high=2.0),
}
