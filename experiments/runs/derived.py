"""Files that are made of a finished run's network later, such as detectors.json: kept with the run that they are of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.runs import records
from experiments.runs.run_dir import RunDir
from preload_jax.digests import of_json
from preload_jax.errors import UserError

# What tells a run's network from another's, of what results.json says: the same network has the same numbers.
_TELLING = ("dataset", "method", "seed", "config_digest", "in_domain")


def network_of(run_dir: RunDir) -> str | None:
    """A digest by which a finished run's network is known; None where there are no results."""
    if not run_dir.is_finished():
        return None
    said = run_dir.read_results()
    return of_json({name: said[name] for name in _TELLING if name in said})


def write(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a record into a run's folder, with what tells which network it is of."""
    records.write(path, {**value, "network": network_of(RunDir(path.parent))})


def read(path: Path, *, advice: str) -> dict[str, Any]:
    """A record of a run's folder.

    Raises:
        UserError: when it is damaged, or of another network than results.json beside it is.
    """
    value = records.read(path, advice=advice)
    known = network_of(RunDir(path.parent))
    # Files of earlier versions do not say.
    if value.pop("network", None) not in (None, known) and known is not None:
        raise UserError(
            f"{path} is of another run than results.json beside it; put back the files that belong together, or"
            f" {advice}"
        )
    return value
