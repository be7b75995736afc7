"""Checkpoints: the newest few states of a run, written in the background and verified when they are read.

The only file that imports orbax, which writes each checkpoint beside its place and renames it there when it is whole.
A digest of the content is kept with each, because a flipped byte in an uncompressed array reads as another number.
"""

import contextlib
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import serialization

from preload_jax import digests
from preload_jax.errors import CheckpointError, UserError, require_plain_file
from preload_jax.formats import checkpoint_folders


@dataclass(frozen=True)
class Saved:
    """A checkpoint as read: its position, its arrays as nested dicts, and what was noted with it."""

    position: int
    tree: dict[str, Any]
    notes: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run, in one folder; use as a context manager, which waits for the last to be written.

    Args:
        directory: of the checkpoints; made if it is missing.
        keep: how many of the newest are kept.
        read_only: leaves the folder as it is, so that it may be another process's that is writing there.

    Raises:
        UserError: to write where the path has one of [ * ? \\ in it, or bytes that are no UTF-8, or beside folders of
            somebody else's that have numbers for names; for a pipe or a device among the files.
    """

    def __init__(self, directory: str | Path, *, keep: int = 2, read_only: bool = False):
        import orbax.checkpoint as ocp

        self._ocp = ocp
        self._read_only = read_only
        self.directory = Path(directory).absolute()
        if not read_only:
            checkpoint_folders.require_plain(self.directory)
            checkpoint_folders.require_own(self.directory)
            # Where it is a link to a folder that is gone (a scratch disk is emptied), that folder is made again.
            Path(os.path.realpath(self.directory)).mkdir(parents=True, exist_ok=True)
        # Orbax would wait for what a pipe says.
        for folder, _, names in os.walk(self.directory):
            for name in names:
                require_plain_file(os.path.join(folder, name))
        with _quiet():
            options = ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                enable_async_checkpointing=True,
                read_only=read_only,
                create=False,
                # What a process that was killed had half written.
                cleanup_tmp_directories=not read_only,
                # Of several processes this one alone writes or reads here, and waits for no other.
                multiprocessing_options=ocp.options.MultiprocessingOptions(
                    primary_host=jax.process_index(), active_processes={jax.process_index()}
                ),
            )
            self._manager = ocp.CheckpointManager(self.directory, options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        try:
            with self._writing():
                self._manager.close()
        except OSError:
            # An error that is on its way says more than the same one from the last checkpoint.
            if kind is None:
                raise

    def save(self, position: int, tree: Any, *, notes: dict[str, Any] | None = None) -> None:
        """Copies a pytree of arrays to the host and writes it in the background.

        Args:
            position: orders the checkpoints; the largest is the newest.
            tree: of arrays, in a structure that `flax.serialization` knows.
            notes: values that JSON can hold.

        Raises:
            OSError: when this or an earlier checkpoint could not be written; those before it are whole.
        """
        # np.array copies: the device buffers may be donated to the next step while the writing goes on.
        arrays = jax.tree.map(np.array, serialization.to_state_dict(tree))
        record = {"digest": digests.of_tree(arrays, notes=notes or {}), "notes": notes or {}}
        args = self._ocp.args
        items = args.Composite(state=args.StandardSave(arrays), record=args.JsonSave(record))
        with self._writing():
            self._manager.save(position, args=items, force=True)

    def wait(self) -> None:
        """Returns when everything saved so far is on the disk.

        Raises:
            OSError: when a checkpoint could not be written.
        """
        with self._writing():
            self._manager.wait_until_finished()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns what the writer raises for a full disk, a ValueError at times, into an OSError with a path."""
        try:
            with _quiet():
                yield
        except (ValueError, OSError) as error:
            code = getattr(error, "errno", None)
            if found := re.search(r"os_error_code='(\d+)'", str(error)):
                code = int(found[1])
            if code is None or getattr(error, "filename", None):
                raise
            raise OSError(code, os.strerror(code), str(self.directory)) from None

    def restore(self, *, on_damaged: Callable[[str], None] = lambda message: None) -> Saved | None:
        """The newest checkpoint that is whole; None where there is none at all.

        A damaged one is reported to `on_damaged` and (unless read-only) moved to the folder "damaged_checkpoints"
        beside this one.

        Raises:
            CheckpointError: when there are checkpoints and all are damaged.
        """
        damaged: dict[int, str] = {}
        for position in sorted(self._manager.all_steps(), reverse=True):
            try:
                with _quiet():
                    saved = self._read(position)
            except Exception as error:
                # Whatever a damaged file makes the reader raise; the reason is shown, the next older one is tried.
                damaged[position] = " ".join(str(error).split())[:160]
                continue
            for bad, reason in damaged.items():
                on_damaged(f"checkpoint {self.directory / str(bad)} is damaged ({reason}); using {position} instead")
                self._set_aside(bad)
            return saved
        if damaged:
            raise CheckpointError(
                f"every checkpoint in {self.directory} is damaged (the newest: {next(iter(damaged.values()))});"
                " restore a copy of the folder, or remove it and train again from the start"
            )
        return None

    def _read(self, position: int) -> Saved:
        args = self._ocp.args
        read = self._manager.restore(
            position, args=args.Composite(state=args.StandardRestore(), record=args.JsonRestore())
        )
        if digests.of_tree(read.state, notes=read.record["notes"]) != read.record["digest"]:
            raise ValueError("its content does not have the digest that was written with it")
        return Saved(position, read.state, read.record["notes"])

    def _set_aside(self, position: int) -> None:
        if self._read_only:
            return
        aside = checkpoint_folders.set_aside(self.directory / str(position))
        aside.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.directory / str(position), aside)
        self._manager.reload()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what orbax and tensorstore print about damaged files and full disks, beside raising it, off the screen."""
    logger, hook = logging.getLogger("absl"), sys.unraisablehook
    disabled = logger.disabled
    logger.disabled, sys.unraisablehook = True, lambda unraisable: None
    try:
        yield
    except Exception:
        # Reads that were under way when the first one failed will report to an event loop that is gone.
        time.sleep(0.2)
        raise
    finally:
        logger.disabled, sys.unraisablehook = disabled, hook


def load(directory: str | Path, *, on_damaged: Callable[[str], None] = lambda message: None) -> Saved:
    """The newest whole checkpoint of a folder that must have one.

    Raises:
        UserError: when there is no checkpoint.
        CheckpointError: when all are damaged.
    """
    if not Path(directory).is_dir():
        raise UserError(f"no checkpoints in {directory}; train the run first")
    with Checkpoints(directory, read_only=True) as checkpoints:
        saved = checkpoints.restore(on_damaged=on_damaged)
    if saved is None:
        raise UserError(f"no checkpoints in {directory}; train the run first")
    return saved
