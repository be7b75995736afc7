"""Checkpoints: the newest few states of a run, written in the background and verified when they are read.

The only file that imports orbax, which writes each checkpoint beside its place and renames it there when it is whole.
A digest of all arrays is kept with each, because a flipped byte in an uncompressed array reads as another number.
"""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import serialization

from preload_jax.errors import UserError


class CheckpointError(RuntimeError):
    """Checkpoints are there, and none of them can be read."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint as read: its position, its arrays as nested dicts, and what was noted with it."""

    position: int
    tree: dict[str, Any]
    notes: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run, in one folder; use as a context manager, which waits for the last to be written."""

    def __init__(self, directory: str | Path, *, keep: int = 2):
        import orbax.checkpoint as ocp

        self._ocp = ocp
        self.directory = Path(directory).absolute()
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=True)
        self._manager = ocp.CheckpointManager(self.directory, options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        self._manager.close()

    def save(self, position: int, tree: Any, *, notes: dict[str, Any] | None = None) -> None:
        """Copies a pytree of arrays to the host and writes it in the background.

        Args:
            position: orders the checkpoints; the largest is the newest.
            tree: of arrays, in a structure that `flax.serialization` knows.
            notes: values that JSON can hold.
        """
        # np.array copies: the device buffers may be donated to the next step while the writing goes on.
        arrays = jax.tree.map(np.array, serialization.to_state_dict(tree))
        record = {"digest": digest(arrays), "notes": notes or {}}
        args = self._ocp.args
        self._manager.save(
            position, args=args.Composite(state=args.StandardSave(arrays), record=args.JsonSave(record)), force=True
        )

    def wait(self) -> None:
        """Returns when everything saved so far is on the disk."""
        self._manager.wait_until_finished()

    def restore(self, *, on_damaged: Callable[[str], None] = lambda message: None) -> Saved | None:
        """The newest checkpoint that is whole; None where there is none at all.

        A damaged one is reported to `on_damaged` and moved to the folder "damaged_checkpoints" beside this one.

        Raises:
            CheckpointError: when there are checkpoints and all are damaged.
        """
        positions = sorted(self._manager.all_steps(), reverse=True)
        for position in positions:
            try:
                return self._read(position)
            except Exception as error:
                # Whatever a damaged file makes the reader raise; the reason is shown, the next older one is tried.
                reason = " ".join(str(error).split())[:160]
                on_damaged(f"checkpoint {self.directory / str(position)} is damaged ({reason}); trying the one before")
                self._set_aside(position)
        if positions:
            raise CheckpointError(
                f"every checkpoint in {self.directory} is damaged; give --overwrite to train again from the start"
            )
        return None

    def _read(self, position: int) -> Saved:
        args = self._ocp.args
        read = self._manager.restore(
            position, args=args.Composite(state=args.StandardRestore(), record=args.JsonRestore())
        )
        if digest(read.state) != read.record["digest"]:
            raise ValueError("its arrays do not have the digest that was written with them")
        return Saved(position, read.state, read.record["notes"])

    def _set_aside(self, position: int) -> None:
        aside = self.directory.parent / "damaged_checkpoints" / str(position)
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.directory / str(position), aside)
        self._manager.reload()


def load(directory: str | Path, *, on_damaged: Callable[[str], None] = lambda message: None) -> Saved:
    """The newest whole checkpoint of a folder that must have one.

    Raises:
        UserError: when there is no checkpoint.
        CheckpointError: when all are damaged.
    """
    if not Path(directory).is_dir():
        raise UserError(f"no checkpoints in {directory}; train the run first")
    with Checkpoints(directory) as checkpoints:
        saved = checkpoints.restore(on_damaged=on_damaged)
    if saved is None:
        raise UserError(f"no checkpoints in {directory}; train the run first")
    return saved


def digest(tree: Any) -> str:
    """SHA-256 over the paths, types, shapes and bytes of all arrays of a nested dict."""
    total = hashlib.sha256()
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    for path, leaf in sorted(leaves, key=lambda item: jax.tree_util.keystr(item[0])):
        array = np.ascontiguousarray(leaf)
        total.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def into(template: Any, tree: dict[str, Any]) -> Any:
    """The nested dicts of a checkpoint in the structure of `template`.

    Raises:
        UserError: when names or shapes differ (a checkpoint of another architecture).
    """
    try:
        restored = serialization.from_state_dict(template, tree)
    except (KeyError, ValueError) as error:
        raise UserError(f"the checkpoint does not fit the model: {' '.join(str(error).split())[:200]}") from None
    for (path, expected), got in zip(
        jax.tree_util.tree_leaves_with_path(template), jax.tree.leaves(restored), strict=True
    ):
        if np.shape(expected) != np.shape(got):
            name = jax.tree_util.keystr(path)
            raise UserError(
                f"the checkpoint does not fit the model: {name} has shape {np.shape(got)}, expected {np.shape(expected)}"
            )
    return restored
