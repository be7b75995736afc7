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
# Of the rows, those that are asked about in a crowd of equal ones, such as may fill an expert's places.
_IN_CROWD = 8
# Times by which an input is far away, and by which it is moved where a loop might not end for others.
_FAR, _NEAR = 1e6, 4.0
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
    traced = rows.Traced.of(apply, variables, batch.shape[1:], batch.dtype)
    require_alone(model, variables, compute, batch, traced=traced)
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
    traced = rows.Traced.of(apply, variables, batch.shape[1:], batch.dtype)
    for given in (variables, opened):
        require_alone(model, given, partial(apply, given), batch, traced=traced)


def _opened(weight: Any) -> Any:
    values = np.asarray(weight)
    zero = jax.numpy.issubdtype(values.dtype, jax.numpy.floating) and not values.any()
    return np.full_like(values, _OPEN) if zero else weight


def require_alone(
    model: Any,
    variables: Any,
    compute: Callable[[np.ndarray], Sequence[Any]],
    batch: np.ndarray,
    *,
    traced: rows.Traced | None = None,
) -> None:
    """Asks about each input of a batch again, in another place and beside others.

    Args:
        model, variables: for the message; a model of None has no line in it.
        compute: batch → outputs, each [rows, …], the logits first.
        batch: [rows, …], at least two.
        traced: whether a loop may end for some inputs alone, and whether the size of a batch counts.  None: it does
            not, and loops end.

    Raises:
        UserError: where an answer is another, beyond rounding.
    """
    first = list(map(np.asarray, compute(batch)))

    def ask(given: np.ndarray, some: np.ndarray, places: np.ndarray, words: str) -> None:
        for number, (answers, again) in enumerate(zip(first, compute(given), strict=True)):
            if not alike(answers[some], np.asarray(again)[places], close=_CLOSE, logits=number == 0):
                found = _joining(model, variables, batch.shape[1:], batch.dtype)
                raise UserError(
                    f"the network answers differently about the same input {words}, as with batch norm in training"
                    f" mode, dropout or mixed rows{found}; expected a network in evaluation mode, which treats each row"
                    " alone"
                )

    loops = traced is not None and traced.loops
    for some, places, beside in _moves(len(batch)):
        other = _beside(batch, some, beside, loops=loops)
        other[places] = batch[some]
        ask(other, some, places, "beside other inputs or in another place of a batch")
    if traced is not None and traced.counts_rows:
        everywhere = np.arange(len(batch))
        ask(np.concatenate([batch, batch]), everywhere, everywhere, "in a batch of another size")


def _moves(count: int) -> Iterator[tuple[np.ndarray, np.ndarray, str]]:
    """Some of the rows, where they are put, and what is put beside them.

    Halves of the rows are drawn at random, because halves, pairs or neighbours would stay together in what has an
    order, and put where they never stood.  Few rows may by chance: they are drawn more often.
    """
    rng = np.random.default_rng(0)
    for _ in range(1 if count > _FEW else 3):
        for kinds in (("dark", "dark"), ("far", "opposite")):
            # Each row goes where the next of a random order stood.
            order = rng.permutation(count)
            places = np.empty(count, int)
            places[order] = np.roll(order, -1)
            for some, kind in zip(np.array_split(rng.permutation(count), 2), kinds, strict=True):
                yield some, places[some], kind
        # What is full is so for those who come last.
        few = rng.permutation(count)[: max(1, count // _IN_CROWD)]
        for kind in ("equal", "dark"):
            yield few, np.arange(count - len(few), count), kind


def _beside(batch: np.ndarray, some: np.ndarray, kind: str, *, loops: bool) -> np.ndarray:
    """A batch of inputs to stand beside some: zeros, or one of them that is moved far away, or as it is.

    A loop may never end for what nobody asked about: there inputs are moved a little alone.
    """
    one = next((row for row in batch[some] if row.any()), None)
    if one is None:
        drawn = np.random.default_rng(0).random(batch.shape[1:])
        one = (drawn < 0.5 if np.issubdtype(batch.dtype, np.integer) else drawn).astype(batch.dtype)
    if kind == "dark" and not loops:
        # Where nothing else stands there already.
        return np.zeros_like(batch) if batch.any() else np.broadcast_to(one, batch.shape).copy()
    times = {"dark": _NEAR**-2, "far": _NEAR, "opposite": _NEAR**2} if loops else {"far": _FAR, "opposite": -_FAR}
    if batch.dtype == np.uint8:
        # What is not black stays so.
        one = np.clip(np.ceil(one * times.get(kind, 1.0)), 0, 255).astype(np.uint8)
    elif not np.issubdtype(batch.dtype, np.integer):
        with np.errstate(over="ignore"):
            moved = one * np.asarray(times.get(kind, 1.0), batch.dtype)
        one = moved if np.isfinite(moved).all() else one
    return np.broadcast_to(one, batch.shape).copy()


def alike(answers: np.ndarray, again: np.ndarray, *, close: float, logits: bool = False) -> bool:
    """Whether two arrays [rows, …] are equal up to rounding; what is not finite must be equal.

    Rounding is a share of the largest finite number in the row, and in the same place of all rows, the smaller one.  Of
    logits also of what is left when each row's mean is taken away, which no probability sees.
    """
    if (
        logits
        and answers.ndim > 1
        and answers.shape[-1] > 1
        and not alike(*map(_centred, (answers, again)), close=close)
    ):
        return False
    parts = [slice(start, start + _COMPARED) for start in range(0, len(answers), _COMPARED)]
    largest = np.asarray(np.max([np.max(_sizes(answers[part]), axis=0) for part in parts], axis=0))
    return all(_alike(answers[part], again[part], largest, close) for part in parts)


def _centred(logits: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return logits - logits.astype(np.float64).mean(axis=-1, keepdims=True)


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
