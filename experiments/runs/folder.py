"""A run's folder: where it is, what is in it, how it is written and read.

config.json     what was asked for                 results.json    the metrics, when the run is finished
metrics.jsonl   loss and accuracy of each epoch    scores.npz      every test image's score, by set
checkpoints/    the newest two states              figures/        pictures
ddu.npz         DDU's Gaussians                    detectors.json  what other detectors make of the network
"""

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.runs import configuration, records, results
from experiments.runs.configuration import Config
from preload_jax.data import datasets
from preload_jax.data.specs import DatasetSpec
from preload_jax.errors import UserError
from preload_jax.formats.files import open_lock, remove_incomplete, write_bytes


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
    def figures(self) -> Path:
        return self.path / "figures"

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
            UserError: when the run has none, or it cannot be read.
        """
        try:
            return results.read(self.results)
        except FileNotFoundError:
            raise UserError(
                f"no {self.results.name} in {self.path}: the run is not finished; run it again to go on with it"
            ) from None

    def read_config(self) -> Config:
        """config.json.

        Raises:
            UserError: when the folder holds no run, or one of another version.
        """
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
        """Removes everything that a run writes, and nothing else; the configuration last, which says what is there."""
        shifts = self.path.glob("shift_*.json*")
        reports = (self.results, self.path / "certificate.json", self.detectors)
        for path in (*reports, self.metrics, self.scores, self.ddu, *shifts):
            path.unlink(missing_ok=True)
        for folder in (self.checkpoints, self.figures, self.tensorboard, self.path / "damaged_checkpoints"):
            _remove(folder)
        self.config.unlink(missing_ok=True)

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


def _remove(folder: Path) -> None:
    """Removes a folder; of a link to one, which may be on another disk, what it holds: the link stays for the next."""
    if not folder.is_symlink():
        if folder.exists():
            shutil.rmtree(folder)
        return
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def default_path(config: Config, *, root: Path = Path("runs")) -> Path:
    """runs/DATASET/METHOD/seedN."""
    return place(config.dataset, config.method, config.seed, root=root)


def place(dataset: str, method: str, seed: int, *, root: Path) -> Path:
    """ROOT/DATASET/METHOD/seedN; a folder or file of the user's is named by its last part."""
    name = dataset.removeprefix("folder:").rstrip("/")
    return root / Path(name).stem / method / f"seed{seed}"


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all: to a temporary name, then renamed."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON, keys sorted; NaN and infinity are refused: other readers stumble on them."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False, sort_keys=True) + "\n")


def check_same_config(run_dir: RunDir, config: Config) -> None:
    """Refuses a folder that was made with another configuration.

    Raises:
        UserError: naming the fields that differ.
    """
    if not run_dir.is_begun():
        return
    if not run_dir.config.is_file():
        raise UserError(
            f"{run_dir.path} holds a run without its config.json, so it may be another's;"
            " give --overwrite to replace it, or another --run-dir"
        )
    there, here = (_comparable(each) for each in (run_dir.read_config(), config))
    differing = [
        f"{_option(name)} {there.get(name)!r} there, {here.get(name)!r} asked for"
        for name in here
        if there.get(name) != here[name]
    ]
    if differing:
        raise UserError(
            f"{run_dir.path} holds a run of another configuration: {'; '.join(differing)};"
            " give --overwrite to replace it, or another --run-dir"
        )


def _option(name: str) -> str:
    """A setting as the command line spells it; what a data set is has no option."""
    return name if name.startswith("data") else f"--{name.replace('_', '-')}"


def _comparable(config: Config) -> dict[str, Any]:
    """The settings, a folder's or file's name in the one spelling that all its spellings have."""
    values = flat(configuration.as_dict(config))
    return {**values, **dict.fromkeys(("dataset", "data.name", "data.title"), datasets.canonical(config.dataset))}


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, names joined by dots: as the command line spells the options."""
    joined: dict[str, Any] = {}
    for name, value in values.items():
        joined |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return joined


@dataclass(frozen=True)
class Run:
    """A trained run, read from its folder."""

    dir: RunDir
    config: Config
    variables: dict[str, Any]

    @cached_property
    def spec(self) -> DatasetSpec:
        return self.config.data

    @cached_property
    def method(self) -> Any:
        from preload_jax import methods

        return methods.get(self.config.method)

    @cached_property
    def model(self) -> Any:
        """The classifier in float32, as evaluation uses it."""
        return build_model(self.config)


def build_model(config: Config, *, dtype: Any = None) -> Any:
    """The classifier of a configuration; `dtype` is of its backbone's computation, float32 by default."""
    import jax.numpy as jnp

    from preload_jax import backbones, methods, models

    spec = config.data
    options = {name: getattr(config, name) for name in backbones.get(spec.backbone).options}
    return models.make_classifier(
        spec.backbone,
        methods.get(config.method).head,
        num_classes=spec.num_classes,
        initial_scale=config.head_scale,
        exponent=config.exponent,
        distance=config.distance,
        min_weight=config.min_weight,
        min_distance_weight=config.min_distance_weight,
        dtype=jnp.float32 if dtype is None else dtype,
        **options,
    )


def load_run(path: str | Path, *, on_damaged: Any = lambda message: None) -> Run:
    """Reads a run's configuration and its newest variables.

    Raises:
        UserError: when the folder holds no run, or no checkpoint, or one of another architecture.
        CheckpointError: when every checkpoint is damaged.
    """
    import jax
    import jax.numpy as jnp

    from preload_jax.formats import checkpoints, trees
    from preload_jax.training import loop as training

    run_dir = RunDir(Path(path))
    config = run_dir.read_config()
    saved = checkpoints.load(run_dir.checkpoints, on_damaged=on_damaged)
    spec = config.data
    model = build_model(config)
    template = jax.eval_shape(lambda: training.init_variables(model, spec.image_shape, key=jax.random.key(0)))
    variables = trees.restore_like(template, {name: saved.tree[name] for name in ("params", "batch_stats")})
    return Run(run_dir, config, jax.tree.map(jnp.asarray, variables))
