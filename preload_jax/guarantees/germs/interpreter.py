"""Walks a jaxpr with germs in place of numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from preload_jax.devices.rows import source_line
from preload_jax.errors import UserError
from preload_jax.guarantees.germs import arithmetic, compare, germ, linear
from preload_jax.guarantees.germs.germ import HIGHEST, Eventually, Germ
from preload_jax.guarantees.germs.rules import RULES, refusal
from preload_jax.models.guards import GUARD

# Where the jaxpr of a call stands among its parameters.
BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
CALLS = (
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "checkpoint", "remat2", "remat", "custom_lin",
)  # fmt: skip
# On truth values and integers, one element of the result is made of one of each operand.
_ELEMENTWISE = (
    "and", "or", "xor", "not", "eq", "ne", "gt", "ge", "lt", "le", "add", "sub", "mul", "max", "min", "neg", "abs",
    "sign", "clamp", "select_n", "convert_element_type", "integer_pow", "copy", "stop_gradient", "rem", "div",
    "shift_left", "shift_right_logical", "shift_right_arithmetic",
)  # fmt: skip
# On constants: these look at bits, or keep types of their own.
_AS_THEY_ARE = ("bitcast_convert_type", "while", "scan", "cond", "nextafter", "random_bits", "random_seed")
_LONGEST_SCAN = 128
# How an operation is carried out: (context, equation, operands) → results.
Apply = Callable[[Any, Any, list[Any]], list[Any]]
# The note that says that norms were met.
NORMALISED = "normalised"


@dataclass(frozen=True)
class Context:
    """What rules need beside their operands.

    Attributes:
        dtype: of the coefficients.
        normalised: whether what is multiplied by the inverse of a norm is taken to be bounded.  That halves the powers
            of what follows; where it fails the ray is undecided.
        notes: by message, where along this ray a value outgrows what a germ can hold.
        line: of the call that is walked, for operations that a library's function holds.
    """

    dtype: Any
    normalised: bool = False
    notes: dict[str, Any] = field(default_factory=dict)
    line: str = ""

    def refuse(self, eqn: Any, why: str) -> UserError:
        return refusal(eqn.primitive.name, source_line(eqn) or self.line, why)

    def note(self, eqn: Any, flag: Any, what: str) -> None:
        message = str(self.refuse(eqn, what))
        self.notes[message] = self.notes.get(message, False) | flag

    def note_growth(self, eqn: Any, result: Germ) -> Germ:
        if result.wild and 0 in result.terms:
            flag = jnp.any(jnp.isinf(result.terms[0]))
            self.note(eqn, flag, f"its result outgrows t^{HIGHEST}, the highest power that is kept,")
        return result

    def inverse(self, x: Germ, exponent: Any) -> Germ:
        """A negative power: where norms are expected, of what does not tend to 0, and marked as what bounds others."""
        if not self.normalised or max(x.terms, default=-1) < 0:
            return arithmetic.power(x, exponent)
        self.notes[NORMALISED] = jnp.asarray(True)
        return replace(arithmetic.power(x, exponent, lowest=0), divisor=max(x.terms) > 0 and min(x.terms) <= 0)

    def is_concrete(self, value: Any) -> bool:
        return not isinstance(value, jax.core.Tracer)


def interpret(ctx: Context, closed: ClosedJaxpr, args: list[Any]) -> list[Any]:
    """The outputs of a jaxpr at arguments that are germs, constants or values that end up constant."""
    return walk(ctx, closed, args, apply=_apply)


def walk(ctx: Context, body: Any, args: list[Any], *, apply: Apply) -> list[Any]:
    """The outputs of a jaxpr, closed or without constants, whose operations `apply` carries out."""
    jaxpr, consts = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, [])
    values: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return _literal(ctx, atom) if isinstance(atom, Literal) else values[atom]

    values.update(zip(jaxpr.constvars, [_in_precision(ctx, value) for value in consts], strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        outputs = apply(ctx, eqn, [read(atom) for atom in eqn.invars])
        values.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _literal(ctx: Context, literal: Any) -> Any:
    floating = jnp.issubdtype(literal.aval.dtype, jnp.floating)
    return np.asarray(literal.val, ctx.dtype if floating else literal.aval.dtype)


def _in_precision(ctx: Context, value: Any) -> Any:
    if isinstance(value, Germ | Eventually) or not jnp.issubdtype(value.dtype, jnp.floating):
        return value
    return value.astype(ctx.dtype)


def _apply(ctx: Context, eqn: Any, args: list[Any]) -> list[Any]:
    name = eqn.primitive.name
    if name in CALLS:
        return call(ctx, eqn, args, apply=_apply)
    if name == "cond" and (eqn.params.get("branches_platforms") or _depends(args)):
        return _cond(ctx, eqn, args)
    if name == "platform_index":
        return [np.int32(0)]
    if not _depends(args):
        return constant(ctx, eqn, args)
    if name == "scan":
        return _scan(ctx, eqn, args)
    is_choice = name == "select_n" and any(isinstance(arg, Germ) or _is_float(arg) for arg in args[1:])
    if is_choice or any(isinstance(arg, Germ) for arg in args):
        if name not in RULES:
            raise ctx.refuse(eqn, "there is no rule for this primitive, so its limit is unknown")
        return RULES[name](ctx, eqn, args)
    return _discrete(ctx, eqn, args)


def _depends(args: list[Any]) -> bool:
    return any(isinstance(arg, Germ | Eventually) for arg in args)


def _is_float(value: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(getattr(value, "value", value)), jnp.floating)


def call(ctx: Any, eqn: Any, args: list[Any], *, apply: Apply) -> list[Any]:
    """The outputs of a call of another jaxpr, see `walk`."""
    if eqn.params.get("name") == GUARD:
        # It limits numbers that float32 could not hold; exact arithmetic, and boxes near the data, need no limit.
        return [args[0]]
    body = next(eqn.params[key] for key in BODIES if key in eqn.params)
    return walk(replace(ctx, line=source_line(eqn) or ctx.line), body, args, apply=apply)


def constant(ctx: Context, eqn: Any, args: list[Any]) -> list[Any]:
    """Of parameters and literals alone: computed as it is, in the interpreter's precision."""
    if eqn.primitive.name in _AS_THEY_ARE:
        pairs = zip(args, eqn.invars, strict=True)
        own = [jnp.asarray(arg, var.aval.dtype) if _is_float(arg) else arg for arg, var in pairs]
        outputs = eqn.primitive.bind(*own, **eqn.params)
        outputs = outputs if eqn.primitive.multiple_results else [outputs]
    elif any(isinstance(arg, jax.core.Tracer) for arg in args):
        outputs = linear.bind(eqn, args, ctx.dtype)
    else:
        # Known while tracing, it tells whether it is infinite.
        with jax.ensure_compile_time_eval():
            outputs = linear.bind(eqn, args, ctx.dtype)
    return [_in_precision(ctx, output) if hasattr(output, "dtype") else output for output in outputs]


def _discrete(ctx: Context, eqn: Any, args: list[Any]) -> list[Any]:
    """An operation on truth values and integers, which end up constant."""
    if eqn.primitive.name == "convert_element_type" and jnp.issubdtype(eqn.params["new_dtype"], jnp.floating):
        (arg,) = args
        return [germ.of_constant(Eventually(arg.value.astype(ctx.dtype), arg.known))]
    values = [arg.value if isinstance(arg, Eventually) else arg for arg in args]
    known = [arg.known for arg in args if isinstance(arg, Eventually)]
    outputs = linear.bind(eqn, values, ctx.dtype)
    elementwise = eqn.primitive.name in _ELEMENTWISE
    everything = known[0]
    for mask in known[1:]:
        everything = everything & mask if elementwise else jnp.all(everything) & jnp.all(mask)
    if eqn.primitive.name in ("broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "expand_dims"):
        return [Eventually(outputs[0], linear.bind(eqn, [known[0]], ctx.dtype)[0])]
    if not elementwise:
        everything = jnp.all(everything)
    return [Eventually(output, jnp.broadcast_to(everything, output.shape)) for output in outputs]


def _cond(ctx: Context, eqn: Any, args: list[Any]) -> list[Any]:
    """All branches, and then the choice; of a platform's the one for any other, which is the plainest."""
    index, *operands = args
    branches = eqn.params["branches"]
    if eqn.params.get("branches_platforms"):
        return interpret(ctx, branches[-1], operands)
    outcomes = [interpret(ctx, branch, operands) for branch in branches]
    value, known = (index.value, index.known) if isinstance(index, Eventually) else (index, None)
    chosen = []
    for var, cases in zip(eqn.outvars, zip(*outcomes, strict=True), strict=True):
        if not jnp.issubdtype(var.aval.dtype, jnp.floating):
            raise ctx.refuse(eqn, "branches with results that are no floats have no rule")
        which = jnp.broadcast_to(jnp.clip(value, 0, len(branches) - 1), var.aval.shape)
        sure = None if known is None else jnp.broadcast_to(known, var.aval.shape)
        chosen.append(_choose(which, sure, [germ.of_constant(case) for case in cases]))
    return chosen


def _choose(which: Any, known: Any, cases: list[Germ]) -> Germ:
    result = cases[0]
    for i, case in enumerate(cases[1:], start=1):
        result = compare.select(which == i, known, [result, case])
    return result


def _scan(ctx: Context, eqn: Any, args: list[Any]) -> list[Any]:
    """Step by step: each may have germs with other powers."""
    params = eqn.params
    length, body = params["length"], params["jaxpr"]
    if length > _LONGEST_SCAN:
        raise ctx.refuse(eqn, f"a loop of {length} steps is longer than {_LONGEST_SCAN}")
    first, second = params["num_consts"], params["num_consts"] + params["num_carry"]
    consts, carry, xs = args[:first], args[first:second], args[second:]
    rows: list[list[Any]] = [[] for _ in body.jaxpr.outvars[params["num_carry"] :]]
    for i in reversed(range(length)) if params["reverse"] else range(length):
        outputs = interpret(ctx, body, [*consts, *carry, *(_row(x, i) for x in xs)])
        carry = outputs[: params["num_carry"]]
        for row, output in zip(rows, outputs[params["num_carry"] :], strict=True):
            row.append(output)
    if params["reverse"]:
        rows = [row[::-1] for row in rows]
    return [*carry, *(_stacked(ctx, eqn, row) for row in rows)]


def _row(x: Any, i: int) -> Any:
    if isinstance(x, Germ):
        terms = {p: term[i] for p, term in x.terms.items()}

        def row(levels: Any) -> Any:
            return germ.move(lambda found: found[i], levels, x.shape)

        noise = {p: row(level) for p, level in x.noise.items()}
        return Germ(terms, row(x.order), noise, x.shape[1:], x.floor, x.wild)
    return Eventually(x.value[i], x.known[i]) if isinstance(x, Eventually) else x[i]


def _stacked(ctx: Context, eqn: Any, row: list[Any]) -> Any:
    if not _depends(row):
        return jnp.stack(row)
    if any(isinstance(value, Eventually) for value in row):
        raise ctx.refuse(eqn, "a loop that collects truth values has no rule")
    germs = germ.without_hidden_infinities(*(germ.of_constant(value) for value in row))
    powers = germ.powers_of(*germs)
    terms = {p: jnp.stack([germ.coefficient(x, p, ctx.dtype) for x in germs]) for p in powers}
    noise = {p: germ.highest_order([germ.level(x.noise.get(p, germ.ZERO)) for x in germs]) for p in powers}
    order = jnp.stack([jnp.broadcast_to(x.order, x.shape) for x in germs])
    floor = max(x.floor for x in germs)
    return germ.make(
        terms, order, noise, shape=(len(row), *germs[0].shape), floor=floor, wild=any(x.wild for x in germs)
    )
