"""How a run is carried out, beside what it computes."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jax.sharding import Mesh

from experiments.cli import cluster
from experiments.run.train import Hardware
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
        return Hardware(cluster.mesh(self.devices), self.data_placement)  # type: ignore[arg-type]

    @cached_property
    def evaluation_mesh(self) -> Mesh | None:
        """This process's devices among them: the first process evaluates under shift alone."""
        return cluster.mesh(self.devices, local=True)
