"""A run's folder for all processes: the first one alone touches it, and all get what it found or what went wrong.

So the others need no file system that is shared with the first, and the workflow reads as if there were one process.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax

from experiments.cli.display import Display
from experiments.runs import configuration, ours
from experiments.runs import folder as runs
from experiments.runs.configuration import Config
from experiments.runs.run_dir import RunDir
from preload_jax.devices import processes, sharding
from preload_jax.formats import checkpoint_folders
from preload_jax.training import loop


@dataclass(frozen=True)
class SharedFolder:
    """The folder of one run; the methods are `RunDir`'s, for all processes."""

    run_dir: RunDir

    @property
    def path(self) -> Path:
        return self.run_dir.path

    def open(self, config: Config, stack: contextlib.ExitStack, *, overwrite: bool, display: Display) -> bool:
        """Locks the folder until the stack is left, and tells whether the run is finished.

        One that is to be replaced counts as not finished, and stays until `clear`.

        Raises:
            UserError: when it holds a run of another configuration, or another process works in it.
        """
        return processes.from_first(lambda: _open(self.run_dir, config, stack, overwrite=overwrite, display=display))

    def is_begun(self) -> bool:
        return processes.from_first(self.run_dir.is_begun)

    def is_finished(self) -> bool:
        return processes.from_first(self.run_dir.is_finished)

    def read_results(self) -> dict[str, Any]:
        return processes.from_first(self.run_dir.read_results)

    def read_config(self) -> Config:
        return configuration.from_dict(processes.from_first(lambda: configuration.as_dict(self.run_dir.read_config())))

    def config_or(self, usual: Config) -> Config:
        """The configuration that the folder has, or else the usual one."""
        return configuration.from_dict(
            processes.from_first(
                lambda: configuration.as_dict(self.run_dir.read_config() if self.run_dir.config.is_file() else usual)
            )
        )

    def write_config(self, config: Config) -> None:
        processes.from_first(partial(self.run_dir.write_config, config))

    def clear(self) -> None:
        """Removes the run that is there; where no other could be written in its place, that is said before."""

        def cleared() -> None:
            checkpoint_folders.require_plain(self.run_dir.checkpoints)
            self.run_dir.clear()

        processes.from_first(cleared)

    def is_damaged(self) -> bool:
        """Whether the newest checkpoint is."""
        damaged: list[str] = []
        return processes.from_first(lambda: bool(runs.load_run(self.path, on_damaged=damaged.append) and damaged))

    def forget_results(self) -> None:
        processes.from_first(self.run_dir.results.unlink)

    def read_variables(
        self, config: Config, *, on_damaged: Callable[[str], None] = lambda message: None
    ) -> dict[str, Any]:
        """The network's variables."""
        return variables_of_first(lambda: runs.load_run(self.path, on_damaged=on_damaged).variables, config)

    def first(self, make: Callable[[], Any]) -> Any:
        """What `make` returns in the first process, in all of them; for JSON."""
        return processes.from_first(make)


def variables_of_first(read: Callable[[], dict[str, Any]], config: Config) -> dict[str, Any]:
    """What `read` returns in the first process, in all of them: variables, of which the others know the shapes."""
    found: list[dict[str, Any]] = []
    processes.from_first(lambda: found.append(read()))
    if found:
        return sharding.from_first(found[0])
    shape, model = config.data.image_shape, runs.build_model(config)
    return sharding.from_first(loop.init_variables(model, shape, key=jax.random.key(0)))


def _open(run_dir: RunDir, config: Config, stack: contextlib.ExitStack, *, overwrite: bool, display: Display) -> bool:
    stack.enter_context(run_dir.locked())
    ours.require_room(run_dir.path)
    if overwrite:
        return False
    runs.check_same_config(run_dir, config)
    if run_dir.is_finished():
        display.already(run_dir.path, hint=" (--overwrite trains again)")
    return run_dir.is_finished()
