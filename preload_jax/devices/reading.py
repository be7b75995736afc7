"""Batches as data loaders yield them, pairs or dictionaries, as arrays."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np

from preload_jax.checks import as_array, check_labels
from preload_jax.devices import batches
from preload_jax.errors import UserError


def is_array(given: Any) -> bool:
    """Whether it is an array of NumPy, JAX or torch, or lists that make one; not an iterable of batches."""
    return hasattr(given, "ndim") or isinstance(given, list | tuple)


def is_batches(given: Any, takes: Callable[[tuple[int, ...]], bool]) -> bool:
    """Whether inputs are batches: an iterable that is no array, or a list of pairs, dictionaries or arrays of inputs.

    Args:
        given: inputs of any kind.
        takes: whether the network answers about one input of a shape.

    Raises:
        UserError: for a list of arrays, each of which may be an input or a batch, and for inputs with labels.
    """
    require_no_labels(given, "images")
    if not is_array(given):
        return True
    if hasattr(given, "ndim") or not given:
        return False
    first = given[0]
    if isinstance(first, Mapping) or (isinstance(first, tuple) and len(first) > 0 and hasattr(first[0], "ndim")):
        return True
    if not all(getattr(each, "ndim", 0) >= 2 and each.ndim == first.ndim for each in given):
        return False
    shapes = {tuple(each.shape) for each in given}
    if not takes(tuple(first.shape[1:])):
        return False
    # Of batches of one both readings are the same inputs.
    if len(shapes) == 1 and first.shape[0] != 1 and takes(tuple(first.shape)):
        raise UserError(
            f"the network takes each of the {len(given)} arrays {list(first.shape)} of the list as one input, and as a"
            " batch of inputs; give np.stack(list) for inputs, or a function that returns iter(list) for batches"
        )
    return True


def require_no_labels(given: Any, name: str) -> None:
    """Raises a UserError for a pair (inputs [n, …], labels [n]) where inputs alone are expected."""
    if is_pair(given) and getattr(given[1], "ndim", 0) < given[0].ndim and not isinstance(given[0], Mapping):
        raise UserError(
            f"{name} are a pair of arrays, as of inputs and labels; expected inputs alone: leave the labels out"
        )


def passes(given: Any, *, name: str) -> Callable[[], Iterator[Any]]:
    """A function that begins to read the batches anew.

    Args:
        given: something that yields its batches again whenever it is iterated, or a function that returns that.
        name: what messages call it.

    Raises:
        UserError: for something else, and for an iterator, which can be read only once.
    """
    if callable(given):
        return lambda: iter(iterable(given(), name))
    iterable(given, name)
    if iter(given) is given:
        raise UserError(
            f"the {name} are an iterator, which can be read once, and they are read in each pass; give a list, a"
            " data loader, or a function that returns the batches anew"
        )
    return lambda: iter(given)


def iterable(given: Any, name: str) -> Iterable[Any]:
    """The same, if it may yield batches.

    Raises:
        UserError: for text, one dictionary, a set, which has no order, and what is no iterable.
    """
    if isinstance(given, str | bytes | Mapping | Set) or not isinstance(given, Iterable):
        raise UserError(f"{name}: expected an array, or batches of arrays, not a {type(given).__name__}")
    return given


def is_pair(given: Any) -> bool:
    """Whether it is (images, labels) as arrays, and not batches of them."""
    return isinstance(given, tuple | list) and len(given) == 2 and hasattr(given[0], "ndim")


def images_of(given: Iterable[Any], labels: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The images of labelled batches, one after the other; their labels are put where the caller has a list for them.

    Raises:
        UserError: see `pair`.
    """
    for batch in given:
        images, of_batch = pair(batch)
        labels.append(of_batch)
        yield images


def pair(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, labels) of a batch: a pair, or a dictionary with "image" and "label".

    Raises:
        UserError: for anything else.
    """
    if isinstance(batch, Mapping):
        found = inputs_in(batch)
        labels = next((batch[name] for name in ("label", "labels") if name in batch), None)
        if found is not None and labels is not None:
            return _alike(found, labels)
        raise UserError(f"a batch is a dictionary with {sorted(map(str, batch))}; expected image and label")
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return _alike(*batch)
    raise UserError(f"a batch is a {type(batch).__name__}; expected (images, labels), or image and label by name")


def with_labels(batch: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """(inputs, labels) of a batch, or (inputs, None) of one without labels.

    Raises:
        UserError: for anything but an array, a pair or a dictionary.
    """
    named = isinstance(batch, Mapping) and ("label" in batch or "labels" in batch)
    return pair(batch) if named or is_pair(batch) else (inputs_of(batch), None)


def regrouped(given: Iterable[Any], size: int) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """(inputs, labels or None) of batches, in batches of one size, but for the last.

    Raises:
        UserError: see `with_labels`; for a batch of another shape or type than the first, or where some have labels.
    """
    held: list[np.ndarray] = []
    found: set[bool] = set()

    def inputs() -> Iterator[np.ndarray]:
        for batch in given:
            array, labels = with_labels(batch)
            found.add(labels is not None)
            if len(found) > 1:
                raise UserError("some batches have labels and others have none; give labels in all of them, or in none")
            if labels is not None:
                held.append(check_labels(labels))
            yield array

    for group in batches.regrouped(inputs(), size):
        joined = np.concatenate(held) if held else None
        if joined is not None:
            held[:] = [joined[len(group) :]]
        yield group, None if joined is None else joined[: len(group)]


def _alike(images: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    both = _array(images), as_array(labels, name="labels")
    if not both[1].ndim:
        raise UserError("labels of a batch are of shape []; expected [n], one integer an image")
    if len(both[0]) != len(both[1]):
        raise UserError(f"{len(both[0])} images but {len(both[1])} labels; expected one label an image")
    return both


def inputs_of(batch: Any) -> np.ndarray:
    """The inputs of a batch without labels, or with labels that are not read: an array, a pair or a dictionary.

    Raises:
        UserError: for anything else.
    """
    if isinstance(batch, Mapping):
        found = inputs_in(batch)
        if found is None:
            raise UserError(f"a batch is a dictionary with {sorted(map(str, batch))}; expected image")
        return _array(found)
    if isinstance(batch, tuple | list) and len(batch) in (1, 2) and hasattr(batch[0], "ndim"):
        if len(batch) == 2 and getattr(batch[1], "ndim", 0) > 1 and batch[1].shape == batch[0].shape:
            raise UserError(
                f"a batch is two arrays of one shape, {list(batch[0].shape)}; expected inputs and labels, or one array:"
                " give np.stack(batch) for two inputs"
            )
        return _array(batch[0])
    return _array(batch)


def _array(inputs: Any) -> np.ndarray:
    """A batch's inputs as NumPy sees them.

    Raises:
        UserError: for what is no array with an axis of inputs.
    """
    array = as_array(inputs, name="images")
    if not array.ndim or array.dtype.kind in "OSU":
        raise UserError(f"a batch is a {type(inputs).__name__}; expected an array of inputs [n, …]")
    return array


def inputs_in(batch: Mapping[str, Any]) -> Any:
    return next((batch[name] for name in ("image", "images") if name in batch), None)
