"""Digests: whether content is what was written."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from preload_jax.errors import UserError


def of_tree(tree: Any, *, notes: dict[str, Any] | None = None) -> str:
    """SHA-256 over the paths, types, shapes and bytes of all arrays of a nested dict, and over the notes.

    Example:
        >>> import numpy as np
        >>> from preload_jax import digests
        >>> digests.of_tree({"a": np.zeros(2), "b": np.ones(2)}) == digests.of_tree({"b": np.ones(2), "a": np.zeros(2)})
        True
    """
    # Only here: commands that look for digests in text, such as --help of them, need no JAX.
    import jax

    total = hashlib.sha256(json.dumps(notes or {}, sort_keys=True).encode())
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    for path, leaf in sorted(leaves, key=lambda item: jax.tree_util.keystr(item[0])):
        array = np.ascontiguousarray(leaf)
        total.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def of_json(value: Any) -> str:
    """SHA-256 of a value as JSON, names sorted; the same for a value and for what is read back of it."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for JSON, with a digest of them; `unsealed` reads them."""
    return {**values, "digest": of_json(dict(values))}


def unsealed(record: Any, *, what: str, written_by: str, newest: int, advice: str) -> dict[str, Any]:
    """The values of a record that `sealed` wrote, without the digest.

    Args:
        record: as it was read.
        what: what messages call it.
        written_by: the function that returned it.
        newest: the newest format that can be read.
        advice: what to do with a damaged one.

    Raises:
        UserError: for a record that is damaged or of a newer format.
    """
    if not isinstance(record, Mapping):
        raise UserError(f"{what} is a {type(record).__name__}; expected what {written_by} returned")
    values = {name: value for name, value in record.items() if name != "digest"}
    if isinstance(values.get("format"), int) and values["format"] > newest:
        raise UserError(f"{what} is of format {values['format']}, this version reads {newest}: update preload_jax")
    try:
        whole = record.get("digest") == of_json(values)
    except (TypeError, ValueError):  # No JSON at all.
        whole = False
    if not whole:
        raise UserError(f"{what} is damaged: it does not have the digest that was written with it; {advice}")
    return values
