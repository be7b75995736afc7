"""The names in a run's folder: how they are read, written, removed, and held by one process.

config.json     what was asked for                 results.json    the metrics, when the run is finished
metrics.jsonl   loss and accuracy of each epoch    scores.npz      every test image's score, by set
checkpoints/    the newest two states              figures/        pictures
ddu.npz         DDU's Gaussians                    detectors.json  what other detectors make of the network
rule.json       what decides which inputs are OOD
"""

import contextlib
import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runs import configuration, ours, records, results
from experiments.runs.configuration import Config
from preload_jax.errors import UserError, did_you_mean, reason, require_plain_file
from preload_jax.formats.files import open_lock, remove_incomplete

# Folders in a message.
_MOST_NAMED = 10
# Of a metric that is computed again.
_ROUNDING = 1e-5


class BusyError(UserError):
    """Another process works in the run's folder."""


@dataclass(frozen=True)
class RunDir:
    """The folder of one run and the names in it."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def scores(self) -> Path:
        return self.path / "scores.npz"

    @property
    def ddu(self) -> Path:
        """DDU's Gaussians."""
        return self.path / "ddu.npz"

    @property
    def detectors(self) -> Path:
        """What each detector says of the network's outputs."""
        return self.path / "detectors.json"

    @property
    def rule(self) -> Path:
        """What decides which inputs are OOD, with a guaranteed rate of false alarms."""
        return self.path / "rule.json"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    @property
    def histograms(self) -> Path:
        return self.figures / "score_histograms.png"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def is_begun(self) -> bool:
        """Whether there is anything to lose: results or a checkpoint."""
        return self.is_finished() or any(path.name.isdigit() for path in self.checkpoints.glob("*"))

    def is_finished(self) -> bool:
        return self.results.is_file()

    def read_results(self) -> dict[str, Any]:
        """results.json.

        Raises:
            UserError: when the run has none, or it cannot be read, or is of another run than config.json.
        """
        try:
            found = results.read(self.results)
        except FileNotFoundError:
            raise UserError(
                f"no {self.results.name} in {self.path}: the run is not finished; run it again to go on with it"
            ) from None
        try:
            config = records.read(self.config, advice="")
        except (FileNotFoundError, UserError):
            # It tells nothing, and who needs it says so; the results are whole.
            return found
        if (differs := results.of_another(found, config)) is not None:
            raise UserError(
                f"{self.results} is of another run than {self.config.name} beside it: {differs}; put back the files"
                f" that belong together, or delete {self.results.name} and run again"
            )
        return found

    def read_scores(self) -> dict[str, np.ndarray]:
        """scores.npz: the scores of the in-domain test images, and of each OOD set that results.json has.

        Raises:
            UserError: when it is damaged or of another run than results.json, or that cannot be read.
        """
        told = self.read_results()
        names = ("in_domain", *told["ood"])
        require_plain_file(self.scores)
        try:
            with np.load(self.scores, allow_pickle=False) as file:
                found = {name: file[name] for name in file.files if name in names}
        except Exception as error:  # of zipfile, zlib and NumPy, which have no common class
            problem = reason(error)
        else:
            wrong = [name for name in names if name not in found or not _are_scores(found[name])]
            if not wrong:
                if any(_differ(found["in_domain"], found[name], row) for name, row in told["ood"].items()):
                    raise UserError(
                        f"{self.scores} is of another run than {self.results.name} beside it: its scores do not give"
                        " those metrics; put back the files that belong together, or delete both and run again"
                    )
                return found
            problem = f"no scores of {', '.join(wrong)}"
        raise UserError(f"{self.scores} is damaged ({problem}); delete it and results.json, and run again")

    def read_config(self) -> Config:
        """config.json.

        Raises:
            UserError: when the folder holds no run, or one of another version.
        """
        if not self.path.is_dir():
            raise UserError(_not_there(self.path))
        advice = "restore it, or give --overwrite to train again"
        try:
            values = records.read(self.config, advice=advice)
        except FileNotFoundError:
            raise UserError(f"no {self.config.name} in {self.path}: it is not the folder of a run") from None
        needed = {"dataset", "method", "seed"}
        if not needed <= values.keys():
            raise UserError(f"{self.config} lacks {', '.join(sorted(needed - values.keys()))}; {advice}")
        values.pop("format", None)
        try:
            records.check_fields(values, Config)
            return configuration.check(configuration.from_dict(values))
        except (TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{self.config} is damaged ({error}); {advice}") from None

    def write_config(self, config: Config) -> None:
        """config.json."""
        records.write(self.config, configuration.as_dict(config))

    def clear(self) -> None:
        """Removes what a run and the commands about it write, and nothing else.

        Raises:
            UserError: when something of those names is the user's; then everything stays.
        """
        ours.require_room(self.path)
        ours.remove(self.path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder for this process; the operating system lets go of it when the process ends, however.

        Raises:
            BusyError: when another process has it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise UserError(f"{self.path} is a file; expected a folder: give another --run-dir") from None
        with open(open_lock(self.path / ".lock")) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(
                    f"another process is working in {self.path}; wait for it, or give another --run-dir"
                ) from None
            # Of writers that were killed; nobody else writes here now.
            remove_incomplete(self.path)
            yield


def _not_there(path: Path) -> str:
    """That there is no such folder, and what there is in the last one on the way to it."""
    if path.exists():
        return f"{path}: a file, not a folder; expected the folder of a run"
    missing = path
    while not missing.parent.exists():
        missing = missing.parent
    there = sorted(each.name for each in missing.parent.iterdir() if each.is_dir() and not each.name.startswith("."))
    listed = ", ".join(there[:_MOST_NAMED]) + (", …" if len(there) > _MOST_NAMED else "")
    holds = f"{missing.parent} holds {listed}" if there else f"{missing.parent} holds no folders"
    return f"{path}: no such folder{did_you_mean(missing.name, there)}; {holds}; expected the folder of a run"


def _are_scores(values: Any) -> bool:
    """Whether it is an array of numbers, one an image."""
    return isinstance(values, np.ndarray) and (
        values.ndim == 1 and values.size > 0 and values.dtype.kind == "f" and bool(np.isfinite(values).all())
    )


def _differ(in_domain: np.ndarray, ood: np.ndarray, row: dict[str, Any]) -> bool:
    """Whether scores are not those of which a row of results.json is made."""
    from preload_jax import metrics

    return len(ood) != row["size"] or abs(float(metrics.auroc(in_domain, ood)) - row["auroc"]) > _ROUNDING
