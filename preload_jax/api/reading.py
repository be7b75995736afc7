"""Batches as data loaders yield them, pairs or dictionaries, as arrays."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from preload_jax.checks import as_array
from preload_jax.errors import UserError


def is_array(given: Any) -> bool:
    """Whether it is an array of NumPy, JAX or torch, or lists that make one; not an iterable of batches."""
    return hasattr(given, "ndim") or isinstance(given, list | tuple)


def passes(given: Any, *, name: str) -> Callable[[], Iterator[Any]]:
    """A function that begins to read the batches anew.

    Args:
        given: something that yields its batches again whenever it is iterated, or a function that returns that.
        name: what messages call it.

    Raises:
        UserError: for something else, and for an iterator, which can be read only once.
    """
    if callable(given):
        return lambda: iter(_iterable(given(), name))
    _iterable(given, name)
    if iter(given) is given:
        raise UserError(
            f"the {name} are an iterator, which can be read once, and training reads them in each epoch; give a list, a"
            " data loader, or a function that returns the batches anew"
        )
    return lambda: iter(given)


def _iterable(given: Any, name: str) -> Iterable[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UserError(f"the {name} are a {type(given).__name__}; expected an array, or batches of arrays")
    return given


def is_pair(given: Any) -> bool:
    """Whether it is (images, labels) as arrays, and not batches of them."""
    return isinstance(given, tuple | list) and len(given) == 2 and hasattr(given[0], "ndim")


def images_of(batches: Iterable[Any], labels: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The images of labelled batches, one after the other; their labels are put where the caller has a list for them.

    Raises:
        UserError: see `pair`.
    """
    for batch in batches:
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


def _alike(images: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    both = as_array(images, name="images"), as_array(labels, name="labels")
    if all(x.ndim for x in both) and len(both[0]) != len(both[1]):
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
        return as_array(found, name="images")
    if isinstance(batch, tuple | list) and len(batch) in (1, 2) and hasattr(batch[0], "ndim"):
        return as_array(batch[0], name="images")
    return as_array(batch, name="images")


def inputs_in(batch: Mapping[str, Any]) -> Any:
    return next((batch[name] for name in ("image", "images") if name in batch), None)
