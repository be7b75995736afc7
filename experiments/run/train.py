"""Trains a run: the library's training with the run's folder as its store, metrics.jsonl, a display and signals."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from experiments.cli.display import Display
from experiments.cli.interrupts import Interrupted, Signals, at_once
from experiments.run import effort
from experiments.runs import epochs, settings, shared_images
from experiments.runs import folder as runs
from experiments.runs.configuration import Config
from experiments.runs.run_dir import RunDir
from preload_jax import methods
from preload_jax.data import datasets, names
from preload_jax.data.outliers import stored_shape
from preload_jax.data.splits import Splits
from preload_jax.devices import processes
from preload_jax.training import data as training_data
from preload_jax.training import fit
from preload_jax.training.data import TrainingData
from preload_jax.training.run import Callbacks, Progress, Store
from preload_jax.training.stage import Stage
from preload_jax.training.store import open_store


@dataclass(frozen=True)
class Hardware:
    """What a run is carried out on, which decides nothing of what it computes.

    Attributes:
        mesh: the devices that share each batch; None for one.
        data: where training images are kept, see `training.data.place`.
    """

    mesh: Mesh | None = None
    data: training_data.Placement = "auto"


def stages(config: Config, *, num_images: int, hardware: Hardware = Hardware()) -> list[Stage]:
    """The stages that a run of this configuration has; none for a method that trains nothing."""
    spec = config.data
    return list(
        fit.plan_stages(
            runs.build_model(config, dtype=settings.compute_dtype(config.precision)),
            settings.settings(config),
            image_shape=spec.image_shape,
            num_images=num_images,
            streamed=_streamed(config, hardware),
        )
    )


def _streamed(config: Config, hardware: Hardware) -> tuple[tuple[int, ...], ...]:
    """The shape that outliers have at most, whether they are streamed or not: the cut is known before they are."""
    spec = config.data
    return () if hardware.data == "device" else (spec.image_shape, stored_shape(spec))


def train(
    config: Config,
    run_dir: RunDir,
    *,
    num_images: int,
    load_data: Callable[[], TrainingData],
    start: dict[str, Any] | None,
    display: Display,
    hardware: Hardware = Hardware(),
    on_epoch: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Carries out what is left of a run's stages and returns the final variables, on one device.

    Args:
        config: of the run.
        run_dir: its folder, locked by the caller.
        num_images: how many training images there are.
        load_data: gives them and the outliers; called when the first step needs them, since a run whose training is
            complete needs no outliers.
        start: variables of the trained network that the method starts from; None for random weights.
        display: shows progress.
        hardware: on which devices.
        on_epoch: called, where the folder is written, when metrics.jsonl has another line.

    Of several processes the first alone reads and writes the folder.

    Raises:
        Interrupted: after saving, when SIGINT or SIGTERM came, to any of the processes.
        training.loop.NonFiniteLossError: when the loss became NaN; the last good checkpoint is kept.
        CheckpointError: when there are checkpoints and all are damaged.
    """
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_store(run_dir.checkpoints, on_damaged=display.warn))
        signals = stack.enter_context(Signals())
        variables = fitted(
            config,
            num_images=num_images,
            load_data=lambda: _stoppable(load_data),
            start=start,
            hardware=hardware,
            store=store,
            callbacks=_Follower(config, run_dir, display, signals, on_epoch).callbacks,
        )
    if stop := processes.any_signal(signals.received):  # after the last step
        raise Interrupted(stop)
    return variables


def fitted(
    config: Config,
    *,
    num_images: int,
    load_data: Callable[[], TrainingData],
    start: dict[str, Any] | None,
    hardware: Hardware,
    callbacks: Callbacks,
    num_stages: int | None = None,
    store: Store | None = None,
) -> dict[str, Any]:
    """The library's training of a configuration, see `training.fit.fit`."""
    return fit.fit(
        runs.build_model(config, dtype=settings.compute_dtype(config.precision)),
        settings.settings(config),
        image_shape=config.data.image_shape,
        num_images=num_images,
        load_data=load_data,
        variables=start,
        streamed=_streamed(config, hardware),
        num_stages=num_stages,
        store=store,
        mesh=hardware.mesh,
        callbacks=callbacks,
    )


def _stoppable(load_data: Callable[[], TrainingData]) -> TrainingData:
    with at_once():
        return load_data()


@dataclass
class _Follower:
    """Shows a training and keeps its metrics.jsonl."""

    config: Config
    run_dir: RunDir
    display: Display
    signals: Signals
    on_epoch: Callable[[], None]

    @property
    def callbacks(self) -> Callbacks:
        return Callbacks(self.watch, self.features, self.stop, self.differs)

    @contextlib.contextmanager
    def watch(self, stage: Stage, done: int) -> Iterator[Callable[[Progress], None]]:
        title = settings.title(stage, self.config.dataset)
        if processes.is_first():
            # Of steps that were not saved: they are taken again.
            epochs.keep(self.run_dir.metrics, up_to=stage.steps_before + done, warn=self.display.warn)
        if done:
            self.display.say(f"{title}: going on from step {done} of {stage.plan.total_steps}")
        # All that go through the network, the outliers, too.
        images = stage.settings.batch_size * (1 + stage.method.sees_ood)
        measured = effort.Measured(title, stage.plan.total_steps, self._say_of_own)
        with self.display.progress(title, total=stage.plan.total_steps, done=done, images=images) as update:

            def tell(progress: Progress) -> None:
                update(progress.report.step, loss=progress.loss, accuracy=progress.accuracy)
                measured(progress.report.step)
                if progress.report.ends_epoch and processes.is_first():
                    epochs.append(self.run_dir.metrics, progress)
                    self.on_epoch()

            yield tell

    def _say_of_own(self, line: str) -> None:
        if names.is_own(self.config.dataset):
            self.display.say(line)

    def features(self, stage: Stage, done: int, total: int) -> None:
        if not done:
            title = settings.title(stage, self.config.dataset)
            self.display.say(f"{title}: first the features of {total:,} images, which stay as they are")

    def stop(self) -> BaseException | None:
        received = processes.any_signal(self.signals.received)
        return None if received is None else Interrupted(received)

    def differs(self, difference: str) -> None:
        self.display.warn(f"since this run began {difference}: the rest of it may differ in rounding")


def load_training_data(
    config: Config,
    splits: Splits,
    *,
    data_dir: Path | None,
    strict: bool = False,
    report: Callable[[str], None] | None = None,
    hardware: Hardware = Hardware(),
) -> TrainingData:
    """The training images and, where the method uses them, the auxiliary OOD images, placed as `hardware` says."""
    outliers = None
    if methods.get(config.method).uses_outliers:
        outliers = datasets.load_outliers(
            config.outliers,
            in_domain=config.data,
            train_images=splits.train.images,
            data_dir=data_dir,
            seed=config.seed,
            to_crop=True,
            strict=strict,
            report=report,
        )
        if report is not None:
            sets, _ = datasets.available_ood(config.data, data_dir=data_dir)
            shared_images.report(config, splits, sets, outliers=outliers, data_dir=data_dir, warn=report)
    data = TrainingData(splits.train.images, splits.train.labels, outliers)
    return training_data.place(data, hardware.data, mesh=hardware.mesh)
