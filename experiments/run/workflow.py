"""What `experiments.run` does, start to end: starting point, training, evaluation, report."""

import contextlib
import functools
import shlex
import sys
from dataclasses import replace
from typing import Any

from experiments.cli import cluster, compile_cache, filters
from experiments.cli.display import Display
from experiments.cli.interrupts import Interrupted, at_once, not_begun
from experiments.cli.terminal import for_errors
from experiments.evaluate import detectors as by_detector
from experiments.evaluate import report
from experiments.evaluate import shift as shift_report
from experiments.run import event_log, start_file, train
from experiments.run.describe import describe
from experiments.run.options import Options
from experiments.run.start import say_mean_energies, starting_point
from experiments.runs import folder as runs
from experiments.runs import networks
from experiments.runs.configuration import Config
from experiments.runs.data import load_splits, with_digest
from experiments.runs.run_dir import RunDir
from experiments.runs.shared_folder import SharedFolder
from preload_jax import methods
from preload_jax.data.names import canonical
from preload_jax.data.outliers import require_known
from preload_jax.devices import forward, processes, sharding
from preload_jax.errors import CheckpointError, NotPreparedError
from preload_jax.training.data import TrainingData
from preload_jax.training.fit import warn_if_all_ood
from preload_jax.training.loop import NonFiniteLossError


def run(config: Config, options: Options) -> int:
    """Carries a run out and reports it; returns the exit status."""
    cluster.join(options)
    display = Display(quiet=options.quiet or not processes.is_first(), json=options.json)
    networks.check_size(config)
    sharding.check_batch_size(config.batch_size, options.hardware.mesh)
    if options.tensorboard:
        processes.from_first(event_log.require)
    if (shift := options.shift) is not None:
        processes.from_first(
            lambda: shift_report.check(shift, config, data_dir=options.data_dir, num_images=options.shift_images)
        )
    compile_cache.use()
    run_dir = RunDir(options.run_dir or runs.default_path(config, root=options.root))
    shifted, by_name = None, None
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
            if options.detectors:
                by_name = by_detector.obtain(
                    run_dir,
                    options.detectors,
                    data_dir=options.data_dir,
                    display=display,
                    strict=options.strict,
                    mesh=options.hardware.mesh,
                )
    except Interrupted as stop:
        if processes.is_first():
            command = shlex.join(_command(overwrite=not stop.begun))
            display.warn(f"{stop}; everything is saved, and this goes on: {command}")
        return stop.status
    except (NonFiniteLossError, CheckpointError) as error:
        print(for_errors(f"error: {error} (run folder {run_dir.path})"), file=sys.stderr)
        return 1
    # The others stay until the first is done: it would end with them.
    processes.from_first(lambda: _show(results, shifted, by_name, run_dir, options=options, display=display))
    return 0


def _show(
    results: dict[str, Any],
    shifted: dict[str, Any] | None,
    by_name: dict[str, Any] | None,
    run_dir: RunDir,
    *,
    options: Options,
    display: Display,
) -> None:
    """Prints the results, where they are, and what to try next."""
    document, text = dict(results), report.table(results)
    if shifted is not None:
        document["shift"] = shifted
        text += shift_report.table(shifted)
    if by_name is not None:
        document["detectors"] = by_name
        text += by_detector.table(by_name)
    display.result(document, text=text)
    places = {"results": run_dir.results, "checkpoint": run_dir.checkpoints}
    places |= {"histograms": run_dir.histograms} if run_dir.histograms.is_file() else {}
    if options.tensorboard:
        places["tensorboard"] = run_dir.tensorboard
    certify = ["python", "-m", "experiments.certify", f"--run={run_dir.path}"]
    certify += [] if options.data_dir is None else [f"--data-dir={options.data_dir}"]
    display.end(places, next={"certify it": certify})


def _command(*, overwrite: bool) -> list[str]:
    """The command that goes on: with --overwrite it would start again, which it must where it has not started."""
    options = (option for option in sys.argv[1:] if overwrite or option != "--overwrite")
    return ["python", "-m", "experiments.run", *options]


def obtain(config: Config, run_dir: RunDir, *, options: Options, display: Display) -> dict[str, Any]:
    """The run's results: read where it is finished, trained and evaluated where it is not.

    Raises:
        UserError: when the folder holds a run of another configuration, or another process works in it.
        Interrupted, NonFiniteLossError, CheckpointError: see `train.train`.
    """
    with contextlib.ExitStack() as stack:
        begins = stack.enter_context(contextlib.ExitStack())
        begins.enter_context(not_begun())
        folder, first, config = SharedFolder(run_dir), processes.is_first(), start_file.with_digest(config)
        config = replace(config, data_digest=processes.from_first(lambda: with_digest(config).data_digest))
        log = event_log.EventLog(run_dir) if options.tensorboard and first else None

        def logged(results: dict[str, Any]) -> dict[str, Any]:
            if log is not None:
                log.finish(results)
            return results

        if methods.get(config.method).uses_outliers and (options.overwrite or not folder.is_finished()):
            # Before anything is read or made; a finished run is reported without them.
            processes.together(lambda: _require_outliers(config, options))
        outliers = (config.outliers,) if methods.get(config.method).uses_outliers else ()
        processes.together(lambda: runs.require_apart(run_dir, config.dataset, *outliers))
        if folder.open(config, stack, overwrite=options.overwrite, display=display):
            return folder.first(lambda: logged(run_dir.read_results()))
        report_skipped = display.warn if first else None
        splits = processes.together(
            lambda: load_splits(
                config,
                data_dir=options.data_dir,
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
                    hardware=options.hardware,
                )
            )

        start = starting_point(config, load_data, obtain=obtain, options=options, display=display)
        describe(config, splits, display=display)
        if options.overwrite:
            # What was asked for wrongly has been said by now, with the old run as it was.
            load_data()
        if options.overwrite or not folder.is_begun():
            # Of a run that has neither results nor a checkpoint there may be other files, which are of its network.
            folder.clear()
        begins.close()
        folder.write_config(config)
        if config.method == "energy_ft" and start is not None:
            say_mean_energies(config, start, load_data(), display=display)
        variables = train.train(
            config,
            run_dir,
            num_images=len(splits.train),
            load_data=load_data,
            start=start,
            display=display,
            hardware=options.hardware,
            on_epoch=log.update if log is not None else lambda: None,
        )
        if first:
            model = runs.build_model(config)
            # In a batch of the size that evaluation compiles anyway.
            warn_if_all_ood(model, variables, splits.train.images, warn=display.warn, batch_size=forward.BATCH_SIZE)
        results = report.evaluate(
            config,
            run_dir,
            variables,
            splits=splits,
            data_dir=options.data_dir,
            display=display,
            mesh=options.hardware.mesh,
        )
        return folder.first(lambda: logged(results))


def _require_outliers(config: Config, options: Options) -> None:
    """Refuses outliers that nobody knows; of others it is said later, after the data set, what there is to do."""
    filters.require_there(config.outliers, option="--outliers")
    if canonical(config.outliers) != canonical(config.dataset):
        with contextlib.suppress(NotPreparedError):
            require_known(config.outliers, data_dir=options.data_dir)
