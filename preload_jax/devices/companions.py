"""Whether a network answers alike about an input whatever stands beside it in a batch, told by asking it again."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from preload_jax.devices import batches, rows
from preload_jax.devices.by_weights import ByWeights
from preload_jax.errors import UserError

# Of the largest output of an input, and of that place of all: less is rounding, by so much in half precision.
_CLOSE = 1e-2
# Rows of a batch that is made to ask.
_ROWS = 8
# Rows that are drawn again.
_FEW = 16
# Rows that are compared at once.
_COMPARED = 64
_OURS = "preload_jax.models."
# What a weight of 0 becomes: a gate that training opens.
_OPEN = 0.1
# Which questions were asked last, each with the weights they were asked of.  Networks of one hash may differ.
_ASKED = ByWeights(most=64)


def known(module: Any) -> bool:
    """Whether the library's own modules alone make up a network: each row of theirs is treated alone."""
    if isinstance(module, Mapping):
        return all(map(known, module.values()))
    if isinstance(module, tuple | list):
        return all(map(known, module))
    if not isinstance(module, nn.Module):
        # A function is anybody's; types of numbers are called, too.
        return isinstance(module, type) or not callable(module)
    fields = (getattr(module, each.name, None) for each in dataclasses.fields(module) if each.name != "parent")
    return type(module).__module__.startswith(_OURS) and all(map(known, fields))


def require_alone_once(
    apply: partial[Sequence[Any]],
    variables: Mapping[str, Any],
    compute: Callable[[np.ndarray], Sequence[Any]],
    images: np.ndarray,
    batch_size: int,
) -> None:
    """`require_alone` for the first batch of a network, its weights and a shape; of networks that are known for none.

    Args:
        apply: with the network and what is asked of it among its keywords.
        variables: as they were given.
        compute: batch → outputs, each [rows, …].
        images, batch_size: what is to be computed.
    """
    model = apply.keywords["model"]
    if batch_size < 2 or known(model):
        return
    question = (apply.func, *sorted(apply.keywords.items()), batch_size, images.shape[1:], str(images.dtype))
    if _ASKED.get(variables, *question):
        return
    batch, _ = next(batches.padded(images, batch_size))
    require_alone(model, variables, compute, batch)
    if (batch == batch[:1]).all():
        # Equal inputs in equal places tell little: the next batch is asked about, too.
        return
    _ASKED.put(variables, True, *question)


def require_alone_before_training(model: Any, variables: Mapping[str, Any], apply: Any, inputs: Any) -> None:
    """The same with inputs drawn at random, of a shape and type; what could not be asked afterwards is not trained.

    It is asked with what starts at 0 moved, too: as with a gate, what it holds back is joined only after training.
    """
    if known(model):
        return
    rng, shape = np.random.default_rng(0), (_ROWS, *inputs.shape[1:])
    of_integers = np.issubdtype(inputs.dtype, np.integer)
    batch = (rng.integers(0, 2, shape) if of_integers else rng.random(shape)).astype(inputs.dtype)
    opened = {**variables, "params": jax.tree.map(_opened, variables.get("params", {}))}
    for given in (variables, opened):
        require_alone(model, given, partial(apply, given), batch)


def _opened(weight: Any) -> Any:
    values = np.asarray(weight)
    zero = jax.numpy.issubdtype(values.dtype, jax.numpy.floating) and not values.any()
    return np.full_like(values, _OPEN) if zero else weight


def require_alone(
    model: Any, variables: Any, compute: Callable[[np.ndarray], Sequence[Any]], batch: np.ndarray
) -> None:
    """Asks about each input of a batch again, in another place and beside others.

    Args:
        model, variables: for the message; a model of None has no line in it.
        compute: batch → outputs, each [rows, …].
        batch: [rows, …], at least two.

    Raises:
        UserError: where an answer is another, beyond rounding.
    """
    first = compute(batch)
    for some, places in _moves(len(batch)):
        if batch.any() and not batch[some].any():
            # What fills a batch up: nobody asks about it, and a loop may never end for nothing else.
            continue
        other = _others(batch, some)
        other[places] = batch[some]
        for answers, again in zip(first, compute(other), strict=True):
            if not alike(np.asarray(answers)[some], np.asarray(again)[places], close=_CLOSE):
                found = _joining(model, variables, batch.shape[1:], batch.dtype)
                raise UserError(
                    "the network answers differently about the same input beside other inputs or in another place of a"
                    f" batch, as with batch norm in training mode, dropout or mixed rows{found}; expected a network in"
                    " evaluation mode, which treats each row alone"
                )


def _moves(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Half of the rows, drawn at random, and where they are put: never where they stood; then the other half.

    At random, because halves, pairs or neighbours would stay together in what has an order.  Few rows may by chance:
    they are drawn more often.
    """
    rng = np.random.default_rng(0)
    for _ in range(1 if count > _FEW else 3):
        # Each row goes where the next of a random order stood.
        order = rng.permutation(count)
        places = np.empty(count, int)
        places[order] = np.roll(order, -1)
        for some in np.array_split(rng.permutation(count), 2):
            yield some, places[some]


def _others(batch: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Inputs to stand beside some: far from what stood there."""
    if np.delete(batch, some, axis=0).any():
        return np.zeros_like(batch)
    if batch.any():
        # What fills a batch up stands there, too.
        inputs = batch[some[batch[some].any(axis=tuple(range(1, batch.ndim)))]]
        return np.broadcast_to(inputs[:1], batch.shape).copy()
    drawn = np.random.default_rng(0).random(batch.shape)
    return (drawn < 0.5 if np.issubdtype(batch.dtype, np.integer) else drawn).astype(batch.dtype)


def alike(answers: np.ndarray, again: np.ndarray, *, close: float) -> bool:
    """Whether two arrays [rows, …] are equal up to rounding; what is not finite must be equal.

    Rounding is a share of the largest finite number in the row, and in the same place of all rows, the smaller one.
    """
    parts = [slice(start, start + _COMPARED) for start in range(0, len(answers), _COMPARED)]
    largest = np.asarray(np.max([np.max(_sizes(answers[part]), axis=0) for part in parts], axis=0))
    return all(_alike(answers[part], again[part], largest, close) for part in parts)


def _alike(answers: np.ndarray, again: np.ndarray, largest: np.ndarray, close: float) -> bool:
    sizes, found, expected = _sizes(answers), again.astype(np.float64), answers.astype(np.float64)
    if largest.size > 1:
        of_row = sizes.max(axis=tuple(range(1, sizes.ndim)), keepdims=True)
        largest = np.minimum(largest, of_row)
    with np.errstate(invalid="ignore"):
        near = np.abs(found - expected) <= close * largest
    return bool((near | (expected == found) | (np.isnan(expected) & np.isnan(found))).all())


def _sizes(answers: np.ndarray) -> np.ndarray:
    """|x| in float64, and 0 for what is not finite."""
    return np.abs(np.where(np.isfinite(answers), answers, 0).astype(np.float64))


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
