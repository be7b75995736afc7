"""Digests: whether content is what was written."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


def of_tree(tree: Any, *, notes: dict[str, Any] | None = None) -> str:
    """SHA-256 over the paths, types, shapes and bytes of all arrays of a nested dict, and over the notes.

    Example:
        >>> import numpy as np
        >>> from preload_jax import digests
        >>> digests.of_tree({"a": np.zeros(2), "b": np.ones(2)}) == digests.of_tree({"b": np.ones(2), "a": np.zeros(2)})
        True
    """
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


def fits(record: Mapping[str, Any]) -> bool:
    """Whether a record has the digest, under "digest", of all the rest of it.

    Example:
        >>> from preload_jax import digests
        >>> digests.fits({"n": 1, "digest": digests.of_json({"n": 1})}), digests.fits({"n": 1})
        (True, False)
    """
    try:
        return record.get("digest") == of_json({name: value for name, value in record.items() if name != "digest"})
    except (TypeError, ValueError):  # No JSON at all.
        return False
