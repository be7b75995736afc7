"""What `experiments.run` does, start to end: starting point, training, evaluation, report."""

import functools
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import event_log, recipes, report, runs, shift_report, train
from experiments.display import Display
from experiments.interrupts import Interrupted, at_once
from experiments.recipes import Config
from experiments.runs import RunDir
from preload_jax import augment, evaluation, losses, methods
from preload_jax.data import datasets
from preload_jax.data.splits import Splits
from preload_jax.errors import CheckpointError, UserError
from preload_jax.training import NonFiniteLossError, TrainingData


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


def run(config: Config, options: Options) -> int:
    """Carries a run out and reports it; returns the exit status."""
    display = Display(quiet=options.quiet, json=options.json)
    if options.tensorboard:
        event_log.require()
    if options.shift is not None:
        shift_report.check(options.shift, config, data_dir=options.data_dir, num_images=options.shift_images)
    use_compilation_cache()
    run_dir = RunDir(options.run_dir or runs.default_path(config, root=options.root))
    shifted = None
    try:
        with at_once():
            results = obtain(config, run_dir, options=options, display=display)
            if options.shift is not None:
                shifted = shift_report.obtain(
                    run_dir, options.shift, data_dir=options.data_dir, num_images=options.shift_images, display=display
                )
    except Interrupted as stop:
        display.warn(f"{stop}; everything is saved, and this goes on: {shlex.join(_command())}")
        return stop.status
    except (NonFiniteLossError, CheckpointError) as error:
        print(f"error: {error} (run folder {run_dir.path})", file=sys.stderr)
        return 1
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
    return 0


def _command() -> list[str]:
    # With --overwrite it would start again.
    return ["python", "-m", "experiments.run", *(option for option in sys.argv[1:] if option != "--overwrite")]


def use_compilation_cache() -> None:
    """Keeps compiled programs on disk between runs, in JAX_COMPILATION_CACHE_DIR or the user's cache folder."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "preload_jax" / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(cache))


def obtain(config: Config, run_dir: RunDir, *, options: Options, display: Display) -> dict[str, Any]:
    """The run's results: read where it is finished, trained and evaluated where it is not.

    Raises:
        UserError: when the folder holds a run of another configuration, or another process works in it.
        Interrupted, NonFiniteLossError, CheckpointError: see `train.train`.
    """
    with run_dir.locked():
        if options.overwrite:
            run_dir.clear()
        runs.check_same_config(run_dir, config)
        log = event_log.EventLog(run_dir) if options.tensorboard else None
        if run_dir.is_finished():
            display.already(run_dir.path, hint=" (--overwrite trains again)")
            results = run_dir.read_results()
            if log is not None:
                log.finish(results)
            return results
        splits = datasets.load(
            config.dataset,
            data_dir=options.data_dir,
            validation=config.validation,  # type: ignore[arg-type]
            strict=options.strict,
            report=display.warn,
        )

        # Once, when it is first needed, by whichever step needs it.
        @functools.cache
        def load_data() -> TrainingData:
            return train.load_training_data(
                config, splits, data_dir=options.data_dir, strict=options.strict, report=display.warn
            )

        start = starting_point(config, load_data, options=options, display=display)
        describe(config, splits, display=display)
        runs.write_json(run_dir.config, recipes.as_dict(config))
        if config.method == "energy_ft" and start is not None:
            _say_mean_energies(config, start, load_data(), display=display)
        variables = train.train(
            config,
            run_dir,
            num_images=len(splits.train),
            load_data=load_data,
            start=start,
            display=display,
            **({} if log is None else {"on_epoch": log.update}),
        )
        results = report.evaluate(config, run_dir, variables, splits=splits, data_dir=options.data_dir, display=display)
        if log is not None:
            log.finish(results)
        return results


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
    if not run_dir.is_finished():
        if options.start is not None:
            raise UserError(
                f"--start {options.start} holds no finished run; give the folder of a finished standard run"
            )
        display.say(
            f"{config.method} starts from the standard network, which is not there:"
            f" training it first, in {run_dir.path}"
        )
        wanted = run_dir.read_config() if run_dir.config.is_file() else wanted
        # What is wrong with the outliers is said now, not after the training.
        load_data()
        obtain(wanted, run_dir, options=own, display=display)
    there = run_dir.read_config()
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
    damaged: list[str] = []
    started = runs.load_run(run_dir.path, on_damaged=damaged.append)
    if damaged:
        # Not the network that its results are about; the end of its training is repeated.
        run_dir.results.unlink()
        obtain(there, run_dir, options=own, display=display)
        started = runs.load_run(run_dir.path)
    accuracy = run_dir.read_results()["in_domain"]["accuracy"]
    display.say(f"starting from {run_dir.path} (accuracy {100 * accuracy:.1f} %)")
    return started.variables


def _say_mean_energies(config: Config, start: dict[str, Any], data: TrainingData, *, display: Display) -> None:
    """The pretrained network's mean energies beside the margins: margins far from them wreck accuracy.

    Of 1,000 training images and 1,000 auxiliary OOD images, made to fit as training does it.
    """
    model, policy = runs.build_model(config), train.augmentations(config).outliers
    assert data.outliers is not None
    outliers = augment.augment_outliers(
        jax.random.key(0), data.outliers[:1_000], policy=policy, image_shape=data.images.shape[1:]
    )
    means = []
    for images in (data.images[:1_000], outliers):
        logits, _ = evaluation.predict(model, start, np.asarray(images))
        means.append(float(np.mean(losses.energy(jnp.asarray(logits)))))
    display.say(
        f"mean energy of the starting network: {means[0]:.2f} on training images (margin {config.margin_in:g}),"
        f" {means[1]:.2f} on {config.outliers} (margin {config.margin_ood:g})"
    )
