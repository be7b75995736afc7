"""A training from its first stage to its last: saves as it goes, goes on where it stopped, and stops when asked.

The library neither prints nor decides where states are kept.  A caller gives a store, watches, and says when to stop.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jax.sharding import Mesh

from preload_jax.devices import environment, sharding
from preload_jax.errors import UserError
from preload_jax.training import loop
from preload_jax.training.data import TrainingData
from preload_jax.training.iterables import Batches
from preload_jax.training.stage import Stage
from preload_jax.training.steps import TrainState

Data = TrainingData | Batches

# Between two saved states at most, in the middle of an epoch.
SECONDS_BETWEEN_SAVES = 20.0
# Between two saved states at least, where epochs are shorter: to save takes as long as ten steps of a small network.
SECONDS_BETWEEN_EPOCHS_SAVED = 1.0


@runtime_checkable
class SavedState(Protocol):
    """A state as a store has it: where in the training it is, and what was noted with it."""

    @property
    def position(self) -> int: ...

    @property
    def notes(self) -> dict[str, Any]: ...


@runtime_checkable
class Store(Protocol):
    """Where a training keeps its states; `formats.checkpoints.Checkpoints` is one, on a disk."""

    def newest(self) -> SavedState | None:
        """The newest whole state."""

    def restore_like(self, template: Any, saved: Any) -> Any:
        """The saved state's arrays in the template's structure."""

    def save(self, position: int, tree: Any, *, notes: dict[str, Any]) -> None:
        """Keeps a state; it may return before that is done."""

    def wait(self) -> None:
        """Returns when everything saved is kept."""


@dataclass(frozen=True)
class Progress:
    """What is known after each compiled call.

    Attributes:
        stage: the stage in hand.
        report: of the call, see `loop.Report`.
        position: steps taken so far, over all stages.
        losses, accuracies: of each step of the epoch so far.
    """

    stage: Stage
    report: loop.Report
    position: int
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    @property
    def loss(self) -> float:
        """The mean over the epoch so far."""
        return float(np.mean(self.losses))

    @property
    def accuracy(self) -> float:
        """The mean over the epoch so far."""
        return float(np.mean(self.accuracies))


@contextmanager
def _unwatched(stage: Stage, done: int) -> Iterator[Callable[[Progress], None]]:
    yield lambda progress: None


@dataclass(frozen=True)
class Callbacks:
    """What a caller may follow a training with.

    Attributes:
        watch: (stage, steps already done) → a context manager around the stage, whose value is told the `Progress`
            after each compiled call.
        features: is told (stage, done, total) while a frozen network's features are computed before the first step.
        stop: None, or the exception to raise once the state is saved; asked after each compiled call.
        differs: is told of each difference to the environment in which the training began that changes rounding alone.
    """

    watch: Callable[[Stage, int], AbstractContextManager[Callable[[Progress], None]]] = _unwatched
    features: Callable[[Stage, int, int], None] = lambda stage, done, total: None
    stop: Callable[[], BaseException | None] = lambda: None
    differs: Callable[[str], None] = lambda difference: None


def train(
    stages: Sequence[Stage],
    variables: Mapping[str, Any],
    *,
    load_data: Callable[[], Data],
    key: jax.Array,
    store: Store | None = None,
    mesh: Mesh | None = None,
    callbacks: Callbacks = Callbacks(),
    identity: Mapping[str, Any] | None = None,
    prepare: Callable[[dict[str, Any], Callable[[], Data]], dict[str, Any]] = lambda given, load_data: given,
) -> dict[str, Any]:
    """Carries out what is left of a training's stages and returns the final variables, on one device.

    A training that goes on from a stored state gives the same bits as one that was never stopped, on the same machine.

    Args:
        stages: see `stage.stages`.
        variables: where the first stage starts.
        load_data: gives the images; called when the first step needs them, so not where everything is done.
        key: folded with each stage's number.
        store: keeps a state at the end of each epoch (where they are shorter than a second: of the first, and of one a
            second), of each stage, and every 20 seconds; None keeps none.
        mesh: the devices that share each batch.
        callbacks: see `Callbacks`.
        identity: noted with each state, for JSON; a stored state of another identity is refused.
        prepare: (variables, load_data) → the variables that a training begins with, where it goes on from no state.

    Raises:
        UserError: when the stored state belongs to another training or environment, or data and network do not fit.
        loop.NonFiniteLossError: when the loss becomes NaN or infinite; the last state before that is kept.
        BaseException: what `callbacks.stop` returned, after the state was saved.
    """
    session = _Session(load_data, key, store, mesh, callbacks, dict(identity or {}))
    saved = None if store is None else store.newest()
    current = {"batch_stats": {}, **variables}
    if saved is not None:
        session.check(saved.notes)
    else:
        current = prepare(current, load_data)
    for stage in stages:
        current = session.carry_out(stage, current, saved)
    if not stages and saved is None and store is not None:
        # A method that trains nothing leaves the network that it started from.
        store.save(0, {"params": current["params"], "batch_stats": current["batch_stats"]}, notes=session.notes(0))
    return current


@dataclass
class _Session:
    """What the stages of a training share while they are carried out."""

    load_data: Callable[[], Data]
    key: jax.Array
    store: Store | None
    mesh: Mesh | None
    callbacks: Callbacks
    identity: dict[str, Any]

    def notes(self, stage: int, **others: Any) -> dict[str, Any]:
        return {"stage": stage, "identity": self.identity, "environment": environment.current(), **others}

    def check(self, notes: dict[str, Any]) -> None:
        """Whether a stored state may go on here.  States of earlier versions do not say, and may."""
        there, here = notes.get("identity") or {}, self.identity
        others = [
            f"{name} was {there[name]!r}, is {here[name]!r}"
            for name in here
            if there.get(name, here[name]) != here[name]
        ]
        numbers, rounding = environment.differences(notes.get("environment") or {}, environment.current())
        if others or numbers:
            raise UserError(
                f"the stored training is another: {'; '.join(others + numbers)}. Set it as it was, or keep this"
                " training elsewhere"
            )
        for difference in rounding:
            self.callbacks.differs(difference)

    def carry_out(self, stage: Stage, variables: dict[str, Any], saved: SavedState | None) -> dict[str, Any]:
        """One stage, from where the saved state left it to its end."""
        saved_stage = -1 if saved is None else saved.notes["stage"]
        if saved_stage > stage.index:
            return variables
        state = stage.init_state(variables)
        losses: list[float] = []
        accuracies: list[float] = []
        last_loss = place = None
        if saved is not None and saved_stage == stage.index:
            assert self.store is not None
            state = self.store.restore_like(state, saved)
            losses, accuracies = list(saved.notes["losses"]), list(saved.notes["accuracies"])
            last_loss, place = saved.notes["last_loss"], saved.notes.get("place")
        done = int(state.step)
        if done == stage.plan.total_steps:
            return state.variables
        with self.callbacks.watch(stage, done) as tell:
            state = self._run(stage, state, losses, accuracies, last_loss, place, tell)
        return sharding.to_one_device(state.variables, self.mesh)

    def _run(
        self,
        stage: Stage,
        state: TrainState,
        losses: list[float],
        accuracies: list[float],
        last_loss: float | None,
        place: Any,
        tell: Callable[[Progress], None],
    ) -> TrainState:
        data = self.load_data()
        reports = loop.fit_stage(
            state,
            data,
            key=jax.random.fold_in(self.key, stage.index),
            task=stage.task,
            step=stage.step,
            hyper=stage.hyper_of(data.labels if isinstance(data, TrainingData) else None),
            plan=stage.plan,
            augmentations=stage.settings.augmentations,
            last_loss=last_loss,
            mesh=self.mesh,
            before_features=lambda done, total: self._before_features(stage, done, total),
            place=place,
        )
        last_saved, saved_before = time.monotonic(), False
        # Leaving it ends the thread that reads data.
        with closing(reports):
            for report in reports:
                state = report.state
                losses, accuracies = losses + report.losses.tolist(), accuracies + report.accuracies.tolist()
                tell(Progress(stage, report, stage.steps_before + report.step, losses, accuracies))
                if report.ends_epoch:
                    losses, accuracies = [], []
                stop = self.callbacks.stop()  # once: a signal may come any time
                ends_stage = report.step == stage.plan.total_steps
                wait = SECONDS_BETWEEN_SAVES
                if report.ends_epoch:
                    # The first at once: there is then a state before the last one, and a full disk is found early.
                    wait = SECONDS_BETWEEN_EPOCHS_SAVED if saved_before else 0.0
                if ends_stage or stop or time.monotonic() - last_saved >= wait:
                    last_saved, saved_before = time.monotonic(), True
                    self._save(stage, report, losses, accuracies, stage.steps_before + report.step)
                if stop:
                    if self.store is not None:
                        self.store.wait()
                    raise stop
        return state

    def _before_features(self, stage: Stage, done: int, total: int) -> None:
        self.callbacks.features(stage, done, total)
        if stop := self.callbacks.stop():
            raise stop

    def _save(
        self, stage: Stage, report: loop.Report, losses: list[float], accuracies: list[float], position: int
    ) -> None:
        if self.store is not None:
            known = {} if report.place is None else {"place": report.place}
            last = float(report.losses[-1])
            notes = self.notes(stage.index, losses=losses, accuracies=accuracies, last_loss=last, **known)
            self.store.save(position, report.state, notes=notes)
