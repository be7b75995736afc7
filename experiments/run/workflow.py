"""What `experiments.run` does, start to end: starting point, training, evaluation, report."""

import contextlib
import functools
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from experiments.cli.display import Display
from experiments.cli.interrupts import Interrupted, at_once
from experiments.evaluate import report
from experiments.evaluate import shift as shift_report
from experiments.run import event_log, train
from experiments.runs import folder as runs
from experiments.runs import recipes
from experiments.runs.folder import RunDir
from experiments.runs.recipes import Config
from preload_jax import evaluation, losses, methods
from preload_jax.data import datasets
from preload_jax.data.splits import Splits
from preload_jax.devices import processes, sharding
from preload_jax.errors import CheckpointError, UserError
from preload_jax.training import augment
from preload_jax.training import data as training_data
from preload_jax.training.loop import NonFiniteLossError, TrainingData


@dataclass(frozen=True)
class Options:
    """How a run is carried out, beside what it computes; the fields are the command line's."""

    root: Path = Path("runs")
    run_dir: Path | None = None
    start: Path | None = None
    data_dir: Path | None = None
    overwrite: bool = False
    quiet: bool = False
    json: bool = False
    shift: str | None = None
    shift_images: int | None = None
    strict: bool = False
    tensorboard: bool = False
    devices: str = ""
    data_placement: str = "auto"
    distributed: bool = False
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None

    @cached_property
    def where(self) -> train.Where:
        """The devices asked for.

        Raises:
            UserError: when there are fewer, or the placement is unknown.
        """
        training_data.check_placement(self.data_placement)
        return train.Where(_mesh(self.devices), self.data_placement)  # type: ignore[arg-type]

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


def run(config: Config, options: Options) -> int:
    """Carries a run out and reports it; returns the exit status."""
    if options.several_processes:
        processes.join(
            cluster=options.distributed,
            coordinator=options.coordinator,
            num_processes=options.num_processes,
            process_id=options.process_id,
        )
    display = Display(quiet=options.quiet or not processes.is_first(), json=options.json)
    sharding.check_batch_size(config.batch_size, options.where.mesh)
    if options.tensorboard:
        processes.from_first(event_log.require)
    if (shift := options.shift) is not None:
        processes.from_first(
            lambda: shift_report.check(shift, config, data_dir=options.data_dir, num_images=options.shift_images)
        )
    use_compilation_cache()
    run_dir = RunDir(options.run_dir or runs.default_path(config, root=options.root))
    shifted = None
    try:
        with at_once():
            results = obtain(config, run_dir, options=options, display=display)
            if shift is not None:
                shifted = processes.from_first(
                    lambda: shift_report.obtain(
                        run_dir,
                        shift,
                        data_dir=options.data_dir,
                        num_images=options.shift_images,
                        display=display,
                        mesh=options.evaluation_mesh,
                    )
                )
    except Interrupted as stop:
        if processes.is_first():
            display.warn(f"{stop}; everything is saved, and this goes on: {shlex.join(_command())}")
        return stop.status
    except (NonFiniteLossError, CheckpointError) as error:
        print(f"error: {error} (run folder {run_dir.path})", file=sys.stderr)
        return 1
    # The others stay until the first is done: it would end with them.
    processes.from_first(lambda: _show(results, shifted, run_dir, options=options, display=display))
    return 0


def _show(
    results: dict[str, Any], shifted: dict[str, Any] | None, run_dir: RunDir, *, options: Options, display: Display
) -> None:
    """Prints the results, where they are, and what to try next."""
    display.result(
        results if shifted is None else {**results, "shift": shifted},
        text=report.table(results) + ("" if shifted is None else shift_report.table(shifted)),
    )
    places = {"results": run_dir.results, "checkpoint": run_dir.checkpoints}
    places["histograms"] = run_dir.figures / "score_histograms.png"
    if options.tensorboard:
        places["tensorboard"] = run_dir.tensorboard
    certify = ["python", "-m", "experiments.certify", f"--run={run_dir.path}"]
    certify += [] if options.data_dir is None else [f"--data-dir={options.data_dir}"]
    display.end(places, next={"certify it": certify})


def _command() -> list[str]:
    # With --overwrite it would start again.
    return ["python", "-m", "experiments.run", *(option for option in sys.argv[1:] if option != "--overwrite")]


def use_compilation_cache() -> None:
    """Keeps compiled programs on disk between runs, in JAX_COMPILATION_CACHE_DIR or the user's cache folder."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "preload_jax" / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # JAX leaves out what compiled within a second: most of a short run's programs, and of its time.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def obtain(config: Config, run_dir: RunDir, *, options: Options, display: Display) -> dict[str, Any]:
    """The run's results: read where it is finished, trained and evaluated where it is not.

    Raises:
        UserError: when the folder holds a run of another configuration, or another process works in it.
        Interrupted, NonFiniteLossError, CheckpointError: see `train.train`.
    """
    log = event_log.EventLog(run_dir) if options.tensorboard and processes.is_first() else None

    def logged(results: dict[str, Any]) -> dict[str, Any]:
        if log is not None:
            log.finish(results)
        return results

    with contextlib.ExitStack() as stack:
        # Only the first process knows the folder: it need not be on a file system that all share.
        if processes.from_first(lambda: _open(config, run_dir, stack, options=options, display=display)):
            return processes.from_first(lambda: logged(run_dir.read_results()))
        report_skipped = display.warn if processes.is_first() else None
        splits = processes.together(
            lambda: datasets.load(
                config.dataset,
                data_dir=options.data_dir,
                validation=config.validation,  # type: ignore[arg-type]
                strict=options.strict,
                report=report_skipped,
            )
        )

        # Once, when it is first needed, by whichever step needs it.
        @functools.cache
        def load_data() -> TrainingData:
            return processes.together(
                lambda: train.load_training_data(
                    config,
                    splits,
                    data_dir=options.data_dir,
                    strict=options.strict,
                    report=report_skipped,
                    where=options.where,
                )
            )

        start = starting_point(config, load_data, options=options, display=display)
        describe(config, splits, display=display)
        processes.from_first(lambda: runs.write_json(run_dir.config, recipes.as_dict(config)))
        if config.method == "energy_ft" and start is not None:
            _say_mean_energies(config, start, load_data(), display=display)
        variables = train.train(
            config,
            run_dir,
            num_images=len(splits.train),
            load_data=load_data,
            start=start,
            display=display,
            where=options.where,
            on_epoch=log.update if log is not None else lambda: None,
        )

        def evaluate() -> dict[str, Any]:
            mesh = options.evaluation_mesh
            return logged(
                report.evaluate(
                    config, run_dir, variables, splits=splits, data_dir=options.data_dir, display=display, mesh=mesh
                )
            )

        return processes.from_first(evaluate)


def _open(config: Config, run_dir: RunDir, stack: contextlib.ExitStack, *, options: Options, display: Display) -> bool:
    """Locks the run's folder until the stack is left, and tells whether the run is finished."""
    stack.enter_context(run_dir.locked())
    if options.overwrite:
        run_dir.clear()
    runs.check_same_config(run_dir, config)
    if run_dir.is_finished():
        display.already(run_dir.path, hint=" (--overwrite trains again)")
    return run_dir.is_finished()


def describe(config: Config, splits: Splits, *, display: Display) -> None:
    """Says what will be computed from what: sizes of the splits, stages, and the whole resolved configuration."""
    held_out = f"{len(splits.validation):,} validation (out of the {config.validation} split) and "
    display.say(
        f"{config.dataset}: {len(splits.train):,} training, {held_out if len(splits.validation) else ''}"
        f"{len(splits.test):,} test images"
    )
    stages = train.stages(config, num_images=len(splits.train))
    for stage in stages:
        numbers = stage.numbers
        optimizer = numbers.optimizer
        text = (
            f"{stage.title}: {stage.plan.total_steps:,} steps of {config.batch_size} images, {optimizer.name},"
            f" learning rate {optimizer.learning_rate:g}, weight decay {optimizer.weight_decay:g}"
        )
        if stage.method.uses_outliers:
            text += f", λ {numbers.ood_weight:g}, outliers {config.outliers}"
        display.say(text)
    usual = recipes.get(datasets.get(config.dataset), config.method, seed=config.seed, recipe=config.recipe)
    if not stages and (config.epochs, config.optimizer) != (usual.epochs, usual.optimizer):
        display.warn(f"{config.method} trains nothing: epochs and optimizer options have no effect")
    settings = runs.flat(recipes.as_dict(config))
    display.say("configuration: " + ", ".join(f"{name} {value}" for name, value in settings.items()))


def starting_point(
    config: Config, load_data: Callable[[], TrainingData], *, options: Options, display: Display
) -> dict[str, Any] | None:
    """The variables that the method starts from: those of the `standard` run of the same data set and seed."""
    method = methods.get(config.method)
    if method.starts_from is None:
        if options.start is not None:
            raise UserError(f"--start {options.start}: {config.method} starts from random weights; leave --start out")
        return None
    spec = datasets.get(config.dataset)
    wanted = recipes.get(spec, method.starts_from, seed=config.seed, recipe=config.recipe)
    wanted = replace(
        wanted,
        dataset=config.dataset,
        batch_size=config.batch_size,
        precision=config.precision,
        validation=config.validation,
        dropout=config.dropout,
    )
    run_dir = RunDir(options.start or runs.default_path(wanted, root=options.root))
    own = replace(options, run_dir=None, start=None, overwrite=False)
    if not processes.from_first(run_dir.is_finished):
        if options.start is not None:
            raise UserError(
                f"--start {options.start} holds no finished run; give the folder of a finished standard run"
            )
        display.say(
            f"{config.method} starts from the standard network, which is not there:"
            f" training it first, in {run_dir.path}"
        )
        wanted = _config_from_first(lambda: run_dir.read_config() if run_dir.config.is_file() else wanted)
        # What is wrong with the outliers is said now, not after the training.
        load_data()
        obtain(wanted, run_dir, options=own, display=display)
    there = _config_from_first(run_dir.read_config)
    if there.method != method.starts_from or there.dataset != config.dataset:
        raise UserError(
            f"{run_dir.path} holds {there.method} on {there.dataset};"
            f" {config.method} needs the run of {method.starts_from} on {config.dataset}"
        )
    if there.validation != config.validation:
        # Its training images may be this run's validation images.
        raise UserError(
            f"{run_dir.path} was trained with --validation={there.validation}, this run has"
            f" --validation={config.validation}; give the same, or another --root or --start"
        )
    if processes.from_first(lambda: _is_damaged(run_dir)):
        # Not the network that its results are about; the end of its training is repeated.
        processes.from_first(run_dir.results.unlink)
        obtain(there, run_dir, options=own, display=display)
    accuracy = processes.from_first(run_dir.read_results)["in_domain"]["accuracy"]
    display.say(f"starting from {run_dir.path} (accuracy {100 * accuracy:.1f} %)")
    return _variables_from_first(there, run_dir)


def _config_from_first(read: Callable[[], Config]) -> Config:
    return recipes.from_dict(processes.from_first(lambda: recipes.as_dict(read())))


def _is_damaged(run_dir: RunDir) -> bool:
    """Whether the newest checkpoint is."""
    damaged: list[str] = []
    runs.load_run(run_dir.path, on_damaged=damaged.append)
    return bool(damaged)


def _variables_from_first(config: Config, run_dir: RunDir) -> dict[str, Any]:
    """A run's variables; the first process reads them, the others know their shapes."""
    read: list[dict[str, Any]] = []
    processes.from_first(lambda: read.append(runs.load_run(run_dir.path).variables))
    return sharding.from_first(read[0] if read else train.initial_variables(config, None))


def _say_mean_energies(config: Config, start: dict[str, Any], data: TrainingData, *, display: Display) -> None:
    """The pretrained network's mean energies beside the margins: margins far from them wreck accuracy.

    Of 1,000 training images and 1,000 auxiliary OOD images, made to fit as training does it.
    """
    model, policy = runs.build_model(config), train.augmentations(config).outliers
    assert data.outliers is not None
    outliers = augment.augment_outliers(
        jax.random.key(0), jnp.asarray(data.outliers[:1_000]), policy=policy, image_shape=data.images.shape[1:]
    )
    means = []
    for images in (data.images[:1_000], outliers):
        logits, _ = evaluation.predict(model, start, np.asarray(images))
        means.append(float(np.mean(losses.energy(jnp.asarray(logits)))))
    display.say(
        f"mean energy of the starting network: {means[0]:.2f} on training images (margin {config.margin_in:g}),"
        f" {means[1]:.2f} on {config.outliers} (margin {config.margin_ood:g})"
    )
