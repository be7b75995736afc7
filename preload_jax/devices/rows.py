"""Whether a traced network treats each row of a batch alone, told from its operations."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import source_info_util
from jax.extend.core import ClosedJaxpr, Literal

# A prime that no other axis is a multiple of: an axis whose size it divides holds the batch.
ROWS = 1009
# Another one.
_OTHER_ROWS = 1013


class Operation(NamedTuple):
    """An operation that sees rows of a batch.

    Attributes:
        name: of the primitive.
        line: of the user's code, file:line (function).
        joins: whether it adds up, compares or moves rows.
    """

    name: str
    line: str
    joins: bool

    @property
    def problem(self) -> str:
        """What a message says of one that joins rows."""
        return (
            f"'{self.name}' at {self.line} joins rows of a batch, as batch norm in training mode does; expected a"
            " network in evaluation mode, which treats each row alone"
        )


def source_line(eqn: Any) -> str:
    """Of the user's code: file:line (function)."""
    return source_info_util.summarize(eqn.source_info)


def batch_axes(shape: tuple[int, ...]) -> list[int]:
    """The axes that hold a batch of `ROWS`, alone or merged with others."""
    return [i for i, size in enumerate(shape) if size and size % ROWS == 0]


def operations(jaxpr: Any, batched: set[Any], line: str = "") -> Iterator[Operation]:
    """All operations that see rows, in order, those inside of others included.

    Args:
        jaxpr: of a function that was traced with `ROWS` rows.
        batched: which of its variables hold rows.
        line: of the call, where an operation has none.
    """
    batched = set(batched)
    for eqn in jaxpr.eqns:
        inputs = [var for var in eqn.invars if not isinstance(var, Literal) and var in batched]
        if not inputs:
            continue
        where = source_line(eqn) or line
        bodies = [] if eqn.primitive.name == "while" else _bodies(eqn)
        if not bodies:
            yield Operation(eqn.primitive.name, where, _joins(eqn, inputs))
        elif _passes_on(eqn, inputs):
            yield Operation(eqn.primitive.name, where, joins=True)
        for body in bodies:
            yield from operations(body, _inside(eqn, body, inputs), where)
        batched |= set(eqn.outvars)


class Traced(NamedTuple):
    """What a network's program says of its rows before it is run.

    Attributes:
        loops: whether rows go into a loop whose turns may depend on them.
        counts_rows: whether it computes with the number of rows, or is another program for another number.
    """

    loops: bool
    counts_rows: bool

    @classmethod
    def of(
        cls, apply: Callable[[Any, Any], Any], variables: Any, shape: tuple[int, ...], dtype: Any
    ) -> "Traced | None":
        """Of apply(variables, batch) → outputs; None where it cannot be traced with any number of rows.

        Args:
            shape, dtype: of one row.
        """
        if isinstance(apply, partial):
            # Options of the compiler, which a compiled function has, are refused inside of a traced one.
            apply = partial(getattr(apply.func, "__wrapped__", apply.func), *apply.args, **apply.keywords)
        try:
            found, other = (
                jax.make_jaxpr(apply)(variables, jax.ShapeDtypeStruct((count, *shape), dtype))
                for count in (ROWS, _OTHER_ROWS)
            )
        except Exception:  # A network of anyone's may raise anything, or be for a batch of one size alone.
            return None
        seen = operations(found.jaxpr, {found.jaxpr.invars[-1]})
        return cls(any(each.name == "while" for each in seen), not _same(found, other))


def _same(one: Any, other: Any) -> bool:
    """Whether two programs compute with the same numbers; their shapes may be others."""
    both = _open(one), _open(other)
    if len(both[0].eqns) != len(both[1].eqns):
        return False
    held = [getattr(each, "consts", ()) for each in (one, other)]
    if not all(_same_number(*pair) for pair in zip(*held, strict=False)):
        return False
    for first, second in zip(both[0].eqns, both[1].eqns, strict=True):
        if first.primitive is not second.primitive:
            return False
        values = [[var.val for var in eqn.invars if isinstance(var, Literal)] for eqn in (first, second)]
        if len(values[0]) != len(values[1]) or not all(map(_same_number, *values)):
            return False
        programs = [_programs(eqn) for eqn in (first, second)]
        if len(programs[0]) != len(programs[1]) or not all(map(_same, *programs)):
            return False
    return True


def _same_number(one: Any, other: Any) -> bool:
    """Of arrays that have as many numbers as there are rows it says nothing, nor of keys, which are no numbers."""
    if any(jax.dtypes.issubdtype(getattr(x, "dtype", None), jax.dtypes.extended) for x in (one, other)):
        return True
    return np.shape(one) != np.shape(other) or bool(np.array_equal(np.asarray(one), np.asarray(other)))


def _programs(eqn: Any) -> list[Any]:
    """All programs inside an operation."""
    given = [each if isinstance(each, tuple | list) else [each] for each in eqn.params.values()]
    return [each for some in given for each in some if hasattr(each, "eqns") or isinstance(each, ClosedJaxpr)]


def _bodies(eqn: Any) -> list[Any]:
    """The programs inside an operation: of a call or a loop one, of a condition all branches."""
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        body = eqn.params.get(key)
        if body is not None and len(_open(body).invars) <= len(eqn.invars):
            return [_open(body)]
    return [_open(branch) for branch in eqn.params.get("branches", ())]


def _open(body: Any) -> Any:
    return body.jaxpr if isinstance(body, ClosedJaxpr) else body


def _inside(eqn: Any, body: Any, inputs: list[Any]) -> set[Any]:
    """The inputs of a program inside an operation that hold rows; of a loop also what it hands on and rows get into."""
    offset = len(eqn.invars) - len(body.invars)
    inner = {own for own, outer in zip(body.invars, eqn.invars[offset:], strict=True) if outer in inputs}
    while eqn.primitive.name == "scan":
        found = _carries(eqn, body, inner) - inner
        if not found:
            break
        inner |= found
    return inner


def _carries(eqn: Any, body: Any, rows: set[Any]) -> set[Any]:
    """What a scan hands to its next turn that depends on variables of its body."""
    reached, kept = set(rows), eqn.params["num_consts"]
    for inner in body.eqns:
        if any(not isinstance(var, Literal) and var in reached for var in inner.invars):
            reached |= set(inner.outvars)
    carried = zip(body.invars[kept:], body.outvars[: eqn.params["num_carry"]], strict=False)
    return {own for own, after in carried if not isinstance(after, Literal) and after in reached}


def _passes_on(eqn: Any, inputs: list[Any]) -> bool:
    """Whether a loop that takes one row after the other hands anything of one to the next."""
    if eqn.primitive.name != "scan":
        return False
    body, first = _open(eqn.params["jaxpr"]), eqn.params["num_consts"] + eqn.params["num_carry"]
    turns = zip(body.invars[first:], eqn.invars[first:], strict=True)
    return bool(_carries(eqn, body, {x for x, outer in turns if outer in inputs and 0 in batch_axes(outer.aval.shape)}))


def _joins(eqn: Any, inputs: list[Any]) -> bool:
    params, name = eqn.params, eqn.primitive.name
    axes = {var: batch_axes(var.aval.shape) for var in inputs}
    if name == "while" or not any(axes.values()):
        return False
    if any(not batch_axes(var.aval.shape) for var in eqn.outvars):
        return True
    if name == "dot_general":
        contracted = params["dimension_numbers"][0]
        return any(
            var in axes and set(axes[var]) & set(contract)
            for var, contract in zip(eqn.invars, contracted, strict=True)
            if not isinstance(var, Literal)
        )
    along = params.get("axis", params.get("dimension", params.get("axes", params.get("dimensions"))))
    if name.startswith("reduce_window"):
        along = [i for i, size in enumerate(params["window_dimensions"]) if size > 1]
    if name.startswith(("reduce_", "cum", "sort", "rev", "arg")) and along is not None:
        along = {along} if isinstance(along, int) else set(along)
        return any(along & set(found) for found in axes.values())
    return False
