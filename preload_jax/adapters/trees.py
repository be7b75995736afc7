"""A tree of arrays as another framework keeps it, and the same arrays as nested dictionaries of names."""

import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.errors import UserError

# The name of an array that is a tree by itself.
_ALONE = "value"


class Tree:
    """The arrays of a tree, as NumPy arrays of their own, and what the tree is beside them.

    Two trees are of one `kind` where structure, shapes and types agree, whatever the numbers are.
    """

    def __init__(self, tree: Any, *, what: str, floating: bool = True, last: str | None = None):
        """Takes the arrays out of the tree.

        Args:
            tree: any pytree of arrays.
            what: what messages call it.
            floating: whether only floating-point numbers are welcome, because they are trained.
            last: an entry that every path ends with, and that is no part of the names.

        Raises:
            UserError: for a leaf that is no array, or is not floating point where it must be.
        """
        with_paths, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        self._names = tuple(_names(path, last) for path, _ in with_paths)
        if len(set(self._names)) < len(self._names):
            raise UserError(f"{what}: two arrays have one name; give a tree whose paths differ")
        for names, (_, leaf) in zip(self._names, with_paths, strict=True):
            _require_array("/".join(names), leaf, what, floating)
        # Copies: what the caller writes into his arrays later, or donates, changes nothing here.
        self.leaves = tuple(np.array(leaf) for _, leaf in with_paths)
        self.kind = (self._structure, tuple((leaf.shape, str(leaf.dtype)) for leaf in self.leaves))

    def nested(self) -> dict[str, Any]:
        """The arrays as JAX arrays, in nested dictionaries of the path's names."""
        return self._as_dictionaries([jnp.array(leaf) for leaf in self.leaves])

    def shapes(self) -> dict[str, Any]:
        """As `nested`, with shapes and types alone."""
        return self._as_dictionaries([jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in self.leaves])

    def _as_dictionaries(self, leaves: list[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for names, leaf in zip(self._names, leaves, strict=True):
            inner = found
            for name in names[:-1]:
                inner = inner.setdefault(name, {})
            inner[names[-1]] = leaf
        return found

    def flat(self, nested: Mapping[str, Any]) -> list[Any]:
        """The arrays of nested dictionaries in the tree's order."""
        found = []
        for names in self._names:
            inner: Any = nested
            for name in names:
                inner = inner[name]
            found.append(inner)
        return found

    def rebuilt(self, nested: Mapping[str, Any]) -> Any:
        """The tree with other arrays, given in nested dictionaries."""
        return jax.tree.unflatten(self._structure, self.flat(nested))

    def renamed(self, tree: Any) -> dict[str, Any]:
        """The arrays of another tree of this structure, in nested dictionaries."""
        return self._as_dictionaries(jax.tree.leaves(tree))

    @property
    def checksum(self) -> int:
        """Of names, shapes and numbers."""
        found = zlib.crc32(repr((self._names, self.kind[1])).encode())
        for leaf in self.leaves:
            found = zlib.crc32(leaf.tobytes(), found)
        return found


def _names(path: tuple[Any, ...], last: str | None) -> tuple[str, ...]:
    names = tuple(_name(entry) for entry in path)
    if last is not None and names[-1:] == (last,) and len(names) > 1:
        names = names[:-1]
    return names or (_ALONE,)


def _name(entry: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _require_array(name: str, leaf: Any, what: str, floating: bool) -> None:
    if not isinstance(leaf, np.ndarray | jax.Array):
        raise UserError(
            f"{what}: {name} is a {type(leaf).__name__}; expected arrays alone: put settings into the function or the"
            " module, not among its parameters"
        )
    if isinstance(leaf, np.ma.MaskedArray):
        raise UserError(f"{what}: {name} is a masked array; its hidden values would count: fill them")
    if isinstance(leaf, jax.core.Tracer):
        raise UserError(f"{what}: {name} is known only when a compiled function runs; make the adapter outside of it")
    if floating and not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise UserError(
            f"{what}: {name} is {leaf.dtype} {list(leaf.shape)}; expected floating point: training changes all of them."
            " Let the function close over the others"
        )
