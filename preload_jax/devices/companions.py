"""Whether a network answers alike about an input whatever stands beside it in a batch, told by asking it twice."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from preload_jax.devices import batches, rows
from preload_jax.errors import UserError

# Of the largest output: less is rounding, which differs from place to place, in half precision by so much.
_CLOSE = 1e-2
# Rows of a batch that is made to ask.
_ROWS = 8
_OURS = "preload_jax.models."
# Draws another mask for each place, as it should.
_DRAWS = ("MCDropout",)
# (network, size of the batch, shape of an input, type) of the last that were asked.  Networks of one hash may differ.
_ASKED: dict[Any, None] = {}
_MOST_ASKED = 64


def known(module: Any) -> bool:
    """Whether the library's own modules alone make up a network: each row of theirs is treated alone."""
    if not isinstance(module, nn.Module) or type(module).__name__ in _DRAWS:
        return True
    fields = (getattr(module, each.name, None) for each in dataclasses.fields(module) if each.name != "parent")
    return type(module).__module__.startswith(_OURS) and all(known(each) for each in fields)


def require_alone_once(
    model: Any,
    variables: Mapping[str, Any],
    compute: Callable[[np.ndarray], Sequence[Any]],
    images: np.ndarray,
    batch_size: int,
) -> None:
    """`require_alone` for the first batch of a network and a shape; of networks that are known for none."""
    if batch_size < 2 or known(model):
        return
    key = model, batch_size, images.shape[1:], str(images.dtype)
    if key in _ASKED:
        return
    batch, _ = next(batches.padded(images, batch_size))
    require_alone(model, variables, compute, batch)
    while len(_ASKED) >= _MOST_ASKED:
        del _ASKED[next(iter(_ASKED))]
    _ASKED[key] = None


def require_alone_before_training(model: Any, variables: Mapping[str, Any], apply: Any, inputs: Any) -> None:
    """The same with inputs drawn at random, of a shape and type; what could not be asked afterwards is not trained."""
    if known(model):
        return
    rng, shape = np.random.default_rng(0), (_ROWS, *inputs.shape[1:])
    of_integers = np.issubdtype(inputs.dtype, np.integer)
    batch = (rng.integers(0, 2, shape) if of_integers else rng.random(shape)).astype(inputs.dtype)
    require_alone(model, variables, lambda given: apply(variables, given), batch)


def require_alone(
    model: Any, variables: Any, compute: Callable[[np.ndarray], Sequence[Any]], batch: np.ndarray
) -> None:
    """Asks about half of a batch again, each input in another place and beside others.

    Args:
        model, variables: for the message; a model of None has no line in it.
        compute: batch → outputs, each [rows, …].
        batch: [rows, …], at least two.

    Raises:
        UserError: where an answer is another, beyond rounding.
    """
    half = len(batch) // 2
    other = np.empty_like(batch)
    other[:half] = np.roll(batch[:half], 1, axis=0)
    # Far from what stood there: nothing, or where nothing stood, an input.
    other[half:] = 0 if batch[half:].any() else batch[:1]
    for first, second in zip(compute(batch), compute(other), strict=True):
        if first is None:
            continue
        answers, again = (np.asarray(x[:half], np.float64) for x in (first, second))
        if not alike(answers, np.roll(again, -1, axis=0), close=_CLOSE):
            found = _joining(model, variables, batch.shape[1:], batch.dtype)
            raise UserError(
                "the network answers differently about the same input beside other inputs or in another place of a"
                f" batch, as with batch norm in training mode, dropout or mixed rows{found}; expected a network in"
                " evaluation mode, which treats each row alone"
            )


def alike(answers: np.ndarray, again: np.ndarray, *, close: float) -> bool:
    """Whether two arrays are equal up to a share of the largest finite entry; what is not finite must be equal."""
    with np.errstate(invalid="ignore"):
        near = np.abs(again - answers) <= close * np.max(np.abs(answers), initial=0.0, where=np.isfinite(answers))
    return bool((near | (answers == again) | (np.isnan(answers) & np.isnan(again))).all())


def _joining(model: Any, variables: Any, shape: tuple[int, ...], dtype: Any) -> str:
    """The first operation that may join rows, for the message; empty where none is found."""
    if model is None:
        return ""
    as_given = np.float32 if dtype == np.uint8 else dtype
    try:
        traced = jax.make_jaxpr(model.apply)(variables, jax.ShapeDtypeStruct((rows.ROWS, *shape), as_given)).jaxpr
    except Exception:  # It runs with the batch that it was asked about; here only its line is looked for.
        return ""
    for operation in rows.operations(traced, {traced.invars[-1]}):
        if operation.joins:
            return f" ({operation.name!r} at {operation.line} may join them)"
    return ""
