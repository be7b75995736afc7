"""Where a training's states are kept: a folder of checkpoints, which of several processes the first alone touches."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from preload_jax.devices import processes, sharding
from preload_jax.errors import UserError
from preload_jax.formats import trees
from preload_jax.formats.checkpoints import Checkpoints, Saved


class DiskStore:
    """A `run.Store` in a folder; make it with `open_store`."""

    def __init__(self, found: Checkpoints | None, on_damaged: Callable[[str], None]):
        self._checkpoints, self._on_damaged = found, on_damaged

    def newest(self) -> Saved | None:
        """The newest whole state; its arrays in the first process alone, who gives them to the others."""
        found: list[Saved | None] = []

        def read() -> dict[str, Any] | None:
            assert self._checkpoints is not None
            found.append(self._checkpoints.restore(on_damaged=self._on_damaged))
            return None if found[0] is None else {"position": found[0].position, "notes": found[0].notes}

        noted = processes.from_first(read)
        if noted is None:
            return None
        return found[0] if found else Saved(tree={}, **noted)

    def restore_like(self, template: Any, saved: Saved) -> Any:
        """The saved arrays in the template's structure, the same in all processes."""
        if self._checkpoints is not None:
            template = jax.tree.map(jnp.asarray, trees.restore_like(template, saved.tree))
        return sharding.from_first(template)

    def save(self, position: int, tree: Any, *, notes: dict[str, Any]) -> None:
        if self._checkpoints is not None:
            self._checkpoints.save(position, tree, notes=notes)

    def wait(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.wait()


@contextlib.contextmanager
def open_store(
    directory: str | Path, *, on_damaged: Callable[[str], None] = lambda message: None
) -> Iterator[DiskStore]:
    """A folder of checkpoints as a store; leaving it waits until everything is written.

    Args:
        directory: made if it is missing.
        on_damaged: is told of each damaged state that an older one takes the place of.
    """
    if not str(directory):
        raise UserError("checkpoint_dir is an empty text; expected a folder (is a variable not set?)")
    if not processes.is_first():
        yield DiskStore(None, on_damaged)
        return
    with Checkpoints(directory) as found:
        yield DiskStore(found, on_damaged)
