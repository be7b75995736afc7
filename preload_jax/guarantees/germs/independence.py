"""Whether a network treats each row of a batch alone: a germ is one row's."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import ScopeParamShapeError
from jax.extend.core import ClosedJaxpr, Literal

from preload_jax.errors import UserError
from preload_jax.guarantees.germs.interpreter import source_line

# A prime that no other axis is a multiple of: an axis whose size it divides holds the batch.
_ROWS = 1009
# Which row stands at each place of a batch: no shift, reversal or swap of halves puts all where an equal one was.
_PLACES = [0, 1, 2, 0, 2, 1, 1, 0]
# Of the largest output: what kernels round differently from place to place.
_CLOSE = 1e-3


def require_independent_rows(function: Callable[[Any], Any], shape: tuple[int, ...], *, known: bool = False) -> None:
    """Reads the traced network of a batch, and asks it about the same rows in several places of one.

    Args:
        function: of a batch.
        shape: of one input.
        known: whether it is one of the library's networks, which need not be asked.

    Raises:
        UserError: where nothing is returned; where an operation adds up, compares or moves rows of a batch, as batch
            norm in training mode does; where a row's result depends on its place, as with dropout.
    """
    try:
        traced = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((_ROWS, *shape), jnp.float32))
    except ScopeParamShapeError as error:
        raise UserError(
            f"directions of shape {list(shape)} do not fit the network; expected that of its inputs"
            f" ({str(error).split(' (http')[0]})"
        ) from None
    except Exception as error:
        error.add_note(f"The network was traced with inputs {[_ROWS, *shape]}: any number of rows must do.")
        raise
    if not traced.jaxpr.outvars:
        raise UserError("the network returns no array; expected logits [n, k], or features [n, d]")
    _check(traced.jaxpr, set(traced.jaxpr.invars))
    if not all(_batch_axes(var.aval.shape) for var in traced.jaxpr.outvars):
        raise UserError("the network's output has no axis for the batch: a row's result depends on the others")
    if known:
        return
    rows = np.random.default_rng(0).normal(size=(max(_PLACES) + 1, *shape)).astype(np.float32)
    for output in jax.tree.leaves(jax.jit(function)(jnp.asarray(rows[_PLACES]))):
        found = np.asarray(output, np.float64)
        first = found[[_PLACES.index(row) for row in _PLACES]]
        with np.errstate(invalid="ignore"):
            close = np.abs(found - first) <= _CLOSE * np.max(np.abs(found), initial=0.0, where=np.isfinite(found))
        if not (close | (found == first) | (np.isnan(found) & np.isnan(first))).all():
            raise UserError(
                "the network answers differently about the same input in another place of a batch, as with dropout, "
                "noise or mixed rows; expected a network in evaluation mode, which treats each row alone"
            )


def _batch_axes(shape: tuple[int, ...]) -> list[int]:
    return [i for i, size in enumerate(shape) if size and size % _ROWS == 0]


def _check(jaxpr: Any, batched: set[Any], line: str = "") -> None:
    """Refuses the first operation that mixes rows; the line is that of the call, where an operation has none."""
    batched = set(batched)
    for eqn in jaxpr.eqns:
        inputs = [var for var in eqn.invars if not isinstance(var, Literal) and var in batched]
        if not inputs:
            continue
        if eqn.primitive.name == "while":
            where = source_line(eqn) or line
            raise UserError(f"'while' at {where}: there is no rule for this primitive, so its limit is unknown")
        body = _body(eqn)
        if body is None:
            if _mixes(eqn, inputs):
                raise UserError(
                    f"'{eqn.primitive.name}' at {source_line(eqn) or line} joins rows of a batch, as batch norm in "
                    "training mode does; expected a network in evaluation mode, which treats each row alone"
                )
        else:
            offset = len(eqn.invars) - len(body.invars)
            inner = {own for own, outer in zip(body.invars, eqn.invars[offset:], strict=True) if outer in inputs}
            _check(body, inner, source_line(eqn) or line)
        batched |= set(eqn.outvars)


def _body(eqn: Any) -> Any:
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        body = eqn.params.get(key)
        if body is not None:
            return body.jaxpr if isinstance(body, ClosedJaxpr) else body
    if "branches" in eqn.params:
        return eqn.params["branches"][-1].jaxpr
    return None


def _mixes(eqn: Any, inputs: list[Any]) -> bool:
    params, name = eqn.params, eqn.primitive.name
    axes = {var: _batch_axes(var.aval.shape) for var in inputs}
    if not any(axes.values()):
        return False
    if any(not _batch_axes(var.aval.shape) for var in eqn.outvars):
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
