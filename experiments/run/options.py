"""How a run is carried out, beside what it computes."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jax
from jax.sharding import Mesh

from experiments.run.train import Hardware
from preload_jax.devices import sharding
from preload_jax.errors import UserError
from preload_jax.training import data as training_data


@dataclass(frozen=True)
class Options:
    """The fields are the command line's."""

    root: Path = Path("runs")
    run_dir: Path | None = None
    start: Path | None = None
    data_dir: Path | None = None
    overwrite: bool = False
    quiet: bool = False
    json: bool = False
    shift: str | None = None
    shift_images: int | None = None
    detectors: tuple[str, ...] = ()
    strict: bool = False
    tensorboard: bool = False
    devices: str = ""
    data_placement: str = "auto"
    distributed: bool = False
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None

    @cached_property
    def hardware(self) -> Hardware:
        """The devices asked for.

        Raises:
            UserError: when there are fewer, or the placement is unknown.
        """
        training_data.check_placement(self.data_placement)
        return Hardware(_mesh(self.devices), self.data_placement)  # type: ignore[arg-type]

    @cached_property
    def evaluation_mesh(self) -> Mesh | None:
        """This process's devices among them: the first process evaluates alone."""
        return _mesh(self.devices, local=True)

    @property
    def several_processes(self) -> bool:
        return self.distributed or (self.coordinator, self.num_processes, self.process_id) != (None, None, None)


def _mesh(devices: str, *, local: bool = False) -> Mesh | None:
    if not devices:
        # Of several machines nobody wants one device each.
        devices = "all" if jax.process_count() > 1 else "1"
    if devices != "all" and not devices.isdecimal():
        raise UserError(f"unknown --devices {devices!r}; expected a number or all")
    return sharding.make_mesh("all" if devices == "all" else int(devices), local=local)
