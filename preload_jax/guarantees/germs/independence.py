"""Whether a network treats each row of a batch alone: a germ is one row's."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import ScopeParamShapeError

from preload_jax.devices import companions, programs, rows
from preload_jax.errors import UserError

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
        traced = programs.traced(function, jax.ShapeDtypeStruct((rows.ROWS, *shape), jnp.float32))
    except ScopeParamShapeError as error:
        raise UserError(
            f"directions of shape {list(shape)} do not fit the network; expected that of its inputs"
            f" ({str(error).split(' (http')[0]})"
        ) from None
    except Exception as error:
        error.add_note(f"The network was traced with inputs {[rows.ROWS, *shape]}: any number of rows must do.")
        raise
    if not traced.jaxpr.outvars:
        raise UserError("the network returns no array; expected logits [n, k], or features [n, d]")
    for operation in rows.operations(traced.jaxpr, set(traced.jaxpr.invars)):
        if operation.name == "while":
            raise UserError(
                f"'while' at {operation.line}: there is no rule for this primitive, so its limit is unknown"
            )
        if operation.joins:
            raise UserError(operation.problem)
    if not all(rows.batch_axes(var.aval.shape) for var in traced.jaxpr.outvars):
        raise UserError("the network's output has no axis for the batch: a row's result depends on the others")
    if known:
        return
    inputs = np.random.default_rng(0).normal(size=(max(_PLACES) + 1, *shape)).astype(np.float32)
    asked = jax.jit(lambda batch: jax.tree.leaves(function(batch)))
    for output in asked(jnp.asarray(inputs[_PLACES])):
        found = np.asarray(output, np.float64)
        if not companions.alike(found[[_PLACES.index(row) for row in _PLACES]], found, close=_CLOSE):
            raise UserError(
                "the network answers differently about the same input in another place of a batch, as with dropout, "
                "noise or mixed rows; expected a network in evaluation mode, which treats each row alone"
            )
    companions.require_alone(None, None, asked, inputs[_PLACES])
