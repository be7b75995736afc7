"""Trains a run: its stages, a checkpoint after every epoch, and going on where it stopped."""

import contextlib
import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from experiments.cli.display import Display, Update
from experiments.cli.interrupts import Interrupted, Signals, at_once
from experiments.runs import folder as runs
from experiments.runs.folder import RunDir
from experiments.runs.recipes import Config, InitConfig
from preload_jax import losses, methods
from preload_jax.data import datasets
from preload_jax.data.outliers import stored_shape
from preload_jax.data.splits import Splits
from preload_jax.devices import processes, sharding
from preload_jax.formats import checkpoints
from preload_jax.formats.checkpoints import Checkpoints, Saved
from preload_jax.methods import Method
from preload_jax.training import augment, optimizers, steps
from preload_jax.training import data as training_data
from preload_jax.training import loop as training
from preload_jax.training.loop import TrainingData
from preload_jax.training.optimizers import Optimizer
from preload_jax.training.plan import Plan

# On a CPU, steps a compiled call and steps between checkpoints, by network.  Convolutions inside a loop are more than a
# hundred times slower there (XLA), so networks that have any take a step a call.  An accelerator takes an epoch a call.
_CPU_STEPS_PER_CALL = {"mlp": 200, "lenet": 1, "wide_resnet": 1}
_CPU_STEPS_BETWEEN_CHECKPOINTS = {"mlp": 2_000, "lenet": 100, "wide_resnet": 20}
_STEPS_BETWEEN_CHECKPOINTS = 2_000


@dataclass(frozen=True)
class Where:
    """What a run is carried out on, which decides nothing of what it computes.

    Attributes:
        mesh: the devices that share each batch; None for one.
        data: where training images are kept, see `training_data.place`.
    """

    mesh: Mesh | None = None
    data: training_data.Placement = "auto"


@dataclass(frozen=True)
class Stage:
    """One stage of a run, ready to be carried out."""

    config: Config
    index: int
    num_images: int
    where: Where = Where()

    @cached_property
    def method(self) -> Method:
        return methods.get(self.config.method)

    @cached_property
    def numbers(self) -> InitConfig | Config:
        """Where this stage's epochs, optimiser and λ are: PreLoad-FT's first stage has its own."""
        return self.config.init if self.trainable == "ood_head" else self.config

    @property
    def trainable(self) -> str:
        return self.method.stages[self.index]

    @cached_property
    def plan(self) -> Plan:
        spec = datasets.get(self.config.dataset)
        per_call = _CPU_STEPS_PER_CALL[spec.backbone] if jax.default_backend() == "cpu" else 10_000
        if self.where.data != "device":
            # The shape that outliers have at most, whether they are streamed or not: the cut is known before they are.
            shapes = (spec.image_shape, stored_shape(spec))
            per_call = min(per_call, training_data.steps_per_chunk(self.config.batch_size, *shapes))
        return Plan(
            num_images=self.num_images,
            batch_size=self.config.batch_size,
            epochs=self.numbers.epochs,
            max_steps=self.config.max_steps,
            max_steps_per_call=per_call,
        )

    @cached_property
    def task(self) -> steps.Task:
        optimizer, objective = self.numbers.optimizer, self.method.objective
        if self.config.oe_class_mean:
            objective = losses.outlier_exposure_class_mean
        return steps.Task(
            model=runs.build_model(self.config, dtype=compute_dtype(self.config.precision)),
            objective=objective,
            optimizer=Optimizer(optimizer.name, optimizer.momentum, self.method.clip_norm),
            total_steps=self.plan.total_steps,
            trainable=self.trainable,
            # A share of the steps, so that --max-steps shortens it, too.
            warmup_steps=self.config.warmup_epochs * self.plan.total_steps // self.numbers.epochs,
        )

    @property
    def hyper(self) -> losses.Hyperparameters:
        return losses.Hyperparameters(
            learning_rate=self.numbers.optimizer.learning_rate,
            weight_decay=self.numbers.optimizer.weight_decay,
            ood_weight=self.numbers.ood_weight,
            margin_in=self.config.margin_in,
            margin_ood=self.config.margin_ood,
            perturbation_decay=self.config.perturbation_decay,
        )

    def learning_rate(self, step: int) -> float:
        """Of a step, counted from 0."""
        total, largest = self.plan.total_steps, self.numbers.optimizer.learning_rate
        return float(optimizers.cosine(jnp.asarray(step), learning_rate=largest, total_steps=total))

    @contextlib.contextmanager
    def fit(
        self,
        state: steps.TrainState,
        data: TrainingData,
        *,
        last_loss: float | None = None,
        before_features: Callable[[int, int], None],
    ) -> Generator[Iterator[training.Report], None, None]:
        """Carries the stage out from a state, see `training.fit_stage`; leaving it ends the thread that reads data."""
        reports = training.fit_stage(
            state,
            data,
            key=jax.random.fold_in(_keys(self.config.seed)[2], self.index),
            task=self.task,
            step=self.method.step,
            hyper=self.hyper,
            plan=self.plan,
            augmentations=augmentations(self.config),
            last_loss=last_loss,
            mesh=self.where.mesh,
            before_features=before_features,
        )
        with contextlib.closing(reports):
            yield reports

    @property
    def title(self) -> str:
        name = f"{self.config.dataset} {self.config.method}"
        if len(self.method.stages) == 1:
            return name
        part = {"ood_head": "OOD class", "all": "all weights"}[self.trainable]
        return f"{name}, stage {self.index + 1}/{len(self.method.stages)}: {part}"


def compute_dtype(precision: str) -> Any:
    """The backbone's training precision: "auto" is bfloat16 on accelerators and float32 on the CPU."""
    if precision == "auto":
        precision = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    return {"float32": jnp.float32, "bfloat16": jnp.bfloat16}[precision]


def stages(config: Config, *, num_images: int, where: Where = Where()) -> list[Stage]:
    """The stages that a run of this configuration has; none for a method that trains nothing."""
    return [Stage(config, index, num_images, where) for index in range(len(methods.get(config.method).stages))]


def train(
    config: Config,
    run_dir: RunDir,
    *,
    num_images: int,
    load_data: Callable[[], TrainingData],
    start: dict[str, Any] | None,
    display: Display,
    where: Where = Where(),
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
        where: on which devices.
        on_epoch: called, where the folder is written, when metrics.jsonl has another line.

    Of several processes the first alone reads and writes the folder.

    Raises:
        Interrupted: after saving, when SIGINT or SIGTERM came, to any of the processes.
        training.NonFiniteLossError: when the loss became NaN; the last good checkpoint is kept.
        checkpoints.CheckpointError: when there are checkpoints and all are damaged.
    """
    variables = initial_variables(config, start)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Checkpoints(run_dir.checkpoints)) if processes.is_first() else None
        signals = stack.enter_context(Signals())
        saved = _restore(store, display)
        if store is not None:
            keep_metrics(run_dir.metrics, up_to=0 if saved is None else saved.position)
        session = _Session(config, load_data, run_dir, store, signals, display, on_epoch)
        for stage in stages(config, num_images=num_images, where=where):
            variables = session.carry_out(stage, variables, saved)
        if not methods.get(config.method).stages and saved is None and store is not None:
            store.save(0, variables, notes={"stage": 0})
    if stop := processes.any_signal(signals.received):  # after the last step
        raise Interrupted(stop)
    return variables


def _restore(store: Checkpoints | None, display: Display) -> Saved | None:
    """The newest whole checkpoint; its arrays in the first process alone, who gives them to the others."""
    found: list[Saved | None] = []

    def read() -> dict[str, Any] | None:
        assert store is not None
        found.append(store.restore(on_damaged=display.warn))
        return None if found[0] is None else {"position": found[0].position, "notes": found[0].notes}

    noted = processes.from_first(read)
    if noted is None:
        return None
    return found[0] if found else Saved(tree={}, **noted)


def initial_variables(config: Config, start: dict[str, Any] | None) -> dict[str, Any]:
    init_key, head_key, _ = _keys(config.seed)
    model, shape = runs.build_model(config), datasets.get(config.dataset).image_shape
    if start is None:
        return training.init_variables(model, shape, key=init_key)
    if methods.get(config.method).head == "square_logit":
        return training.add_ood_head(start, model, shape, key=head_key)
    return start


def _keys(seed: int) -> jax.Array:
    """Keys for the initial weights, a new OOD head, and training."""
    return jax.random.split(jax.random.key(seed), 3)


@dataclass
class _Session:
    """What the stages of a run share while they are carried out in this process."""

    config: Config
    load_data: Callable[[], TrainingData]
    run_dir: RunDir
    store: Checkpoints | None
    signals: Signals
    display: Display
    on_epoch: Callable[[], None]
    steps_before: int = field(default=0, init=False)

    def carry_out(self, stage: Stage, variables: dict[str, Any], saved: Saved | None) -> dict[str, Any]:
        """One stage, from where the saved state left it to its end."""
        before, self.steps_before = self.steps_before, self.steps_before + stage.plan.total_steps
        saved_stage = -1 if saved is None else saved.notes["stage"]
        if saved_stage > stage.index:
            return variables
        state = training.init_state(variables, task=stage.task, method=stage.method)
        epoch, last_loss = EpochRecord(), None
        if saved is not None and saved_stage == stage.index:
            if self.store is not None:
                state = jax.tree.map(jnp.asarray, checkpoints.into(state, saved.tree))
            state = sharding.from_first(state)
            epoch = EpochRecord(list(saved.notes["losses"]), list(saved.notes["accuracies"]))
            last_loss = saved.notes["last_loss"]
        done = int(state.step)
        if done == stage.plan.total_steps:
            return state.variables
        if done:
            self.display.say(f"{stage.title}: going on from step {done} of {stage.plan.total_steps}")
        # All that go through the network, the outliers, too.
        images = stage.config.batch_size * (1 + stage.method.uses_outliers)
        with self.display.progress(stage.title, total=stage.plan.total_steps, done=done, images=images) as update:
            state = self._run(stage, state, epoch, last_loss, before, update)
        return sharding.to_one_device(state.variables, stage.where.mesh)

    def _run(
        self,
        stage: Stage,
        state: steps.TrainState,
        epoch: "EpochRecord",
        last_loss: float | None,
        before: int,
        update: Update,
    ) -> steps.TrainState:
        last_saved = int(state.step)
        between = _STEPS_BETWEEN_CHECKPOINTS
        if jax.default_backend() == "cpu":
            between = _CPU_STEPS_BETWEEN_CHECKPOINTS[datasets.get(self.config.dataset).backbone]
        with at_once():
            data = self.load_data()

        def before_features(done: int, total: int) -> None:
            if not done:
                self.display.say(f"{stage.title}: first the features of {total:,} images, which stay as they are")
            if stop := processes.any_signal(self.signals.received):
                raise Interrupted(stop)

        with stage.fit(state, data, last_loss=last_loss, before_features=before_features) as reports:
            for report in reports:
                state = report.state
                epoch.add(report)
                update(report.step, loss=epoch.loss, accuracy=epoch.accuracy)
                if report.ends_epoch:
                    if self.store is not None:
                        epoch.write(
                            self.run_dir.metrics,
                            stage=stage.index,
                            epoch=report.epoch,
                            step=before + report.step,
                            learning_rate=stage.learning_rate(report.step - 1),
                        )
                        self.on_epoch()
                    epoch = EpochRecord()
                stop = processes.any_signal(self.signals.received)  # once: a signal may come any time
                if report.ends_epoch or stop or report.step - last_saved >= between:
                    last_saved = report.step
                    self._save(stage, report, epoch, before + report.step)
                if stop:
                    if self.store is not None:
                        self.store.wait()
                    raise Interrupted(stop)
        return state

    def _save(self, stage: Stage, report: training.Report, epoch: "EpochRecord", position: int) -> None:
        if self.store is None:
            return
        notes = {
            "stage": stage.index,
            "losses": epoch.losses,
            "accuracies": epoch.accuracies,
            "last_loss": float(report.losses[-1]),
        }
        self.store.save(position, report.state, notes=notes)


@dataclass
class EpochRecord:
    """Losses and accuracies of the epoch so far."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    def add(self, report: training.Report) -> None:
        self.losses += report.losses.tolist()
        self.accuracies += report.accuracies.tolist()

    @property
    def loss(self) -> float:
        return float(np.mean(self.losses))

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.accuracies))

    def write(self, path: Path, *, stage: int, epoch: int, step: int, learning_rate: float) -> None:
        """Appends a line to metrics.jsonl; `step` counts over all stages, the learning rate is the last step's."""
        line = {"stage": stage, "epoch": epoch, "step": step, "loss": self.loss, "accuracy": self.accuracy}
        line["learning_rate"] = learning_rate
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")


def keep_metrics(path: Path, *, up_to: int) -> None:
    """Drops the lines of steps after `up_to`: they will be written again."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            if json.loads(line)["step"] <= up_to:
                kept.append(line)
        except (json.JSONDecodeError, KeyError):
            break  # the process was killed while it wrote this line
    runs.write_text(path, "".join(line + "\n" for line in kept))


def augmentations(config: Config) -> augment.Augmentations:
    """The data set's augmentation of in-domain and OOD images."""
    spec = datasets.get(config.dataset)
    return augment.Augmentations(spec.augmentation, spec.outlier_augmentation)


def load_training_data(
    config: Config,
    splits: Splits,
    *,
    data_dir: Path | None,
    strict: bool = False,
    report: Callable[[str], None] | None = None,
    where: Where = Where(),
) -> TrainingData:
    """The training images and, where the method uses them, the auxiliary OOD images, placed as `where` says."""
    outliers = None
    if methods.get(config.method).uses_outliers:
        outliers = datasets.load_outliers(
            config.outliers,
            in_domain=datasets.get(config.dataset),
            train_images=splits.train.images,
            data_dir=data_dir,
            seed=config.seed,
            to_crop=True,
            strict=strict,
            report=report,
        )
    data = TrainingData(splits.train.images, splits.train.labels, outliers)
    return training_data.place(data, where.data, mesh=where.mesh)
