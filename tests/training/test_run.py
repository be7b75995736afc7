"""A training and its store: what is kept and when, stopping, going on, stages that count on, other trainings."""

import contextlib
import threading
from dataclasses import dataclass, field
from typing import Any

import chex
import jax
import numpy as np
import pytest

from preload_jax import methods
from preload_jax.errors import UserError
from preload_jax.training import loop, run, stage
from preload_jax.training.run import Callbacks
from preload_jax.training.stage import Numbers, Settings
from tests import toy

KEY = jax.random.key(3)


@dataclass
class Kept:
    """One state of a store in memory."""

    position: int
    tree: Any
    notes: dict[str, Any]


@dataclass
class Memory:
    """A store in memory."""

    kept: list[Kept] = field(default_factory=list)

    def newest(self):
        return self.kept[-1] if self.kept else None

    def restore_like(self, template, saved):
        return jax.tree.map(lambda like, x: jax.numpy.asarray(x, like.dtype), template, saved.tree)

    def save(self, position, tree, *, notes):
        self.kept.append(Kept(position, jax.tree.map(np.array, tree), notes))

    def wait(self):
        pass


def stages(name, *, steps_per_call=2, epochs=2):
    row = methods.get(name)
    numbers = Numbers(epochs=epochs, learning_rate=1e-2)
    settings = Settings(row, numbers, ood_head=numbers, batch_size=64)
    return stage.stages(toy.model(row.head), settings, num_images=256, steps_per_call=steps_per_call)


def train(name, store=None, *, epochs=2, **options):
    model = toy.model(methods.get(name).head)
    variables = loop.init_variables(model, toy.SHAPE, key=jax.random.key(0))
    return run.train(stages(name, epochs=epochs), variables, load_data=toy.data, key=KEY, store=store, **options)


def watching(found):
    """Callbacks that note what they are told."""

    @contextlib.contextmanager
    def watch(each, done):
        found.append((each.index, done))
        yield found.append

    return Callbacks(watch=watch)


def test_progress_is_told_after_each_call_and_counts_over_all_stages():
    found = []
    train("preload_ft", callbacks=watching(found))
    assert [each for each in found if isinstance(each, tuple)] == [(0, 0), (1, 0)]
    progress = [each for each in found if not isinstance(each, tuple)]
    # Two stages of two epochs of four steps, two a call.
    assert [each.position for each in progress] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert [each.report.step for each in progress] == [2, 4, 6, 8] * 2
    assert [len(each.losses) for each in progress] == [2, 4] * 4
    second = progress[1]
    assert second.loss == pytest.approx(np.mean([*progress[0].report.losses, *second.report.losses]))
    assert second.accuracy == pytest.approx(np.mean([*progress[0].report.accuracies, *second.report.accuracies]))


def test_a_state_is_kept_after_each_epoch_and_others_when_time_has_passed(monkeypatch):
    monkeypatch.setattr(run, "SECONDS_BETWEEN_EPOCHS_SAVED", 0.0)
    store = Memory()
    train("preload", store)
    assert [kept.position for kept in store.kept] == [4, 8]
    monkeypatch.setattr(run, "SECONDS_BETWEEN_SAVES", 0.0)
    store = Memory()
    train("preload", store)
    assert [kept.position for kept in store.kept] == [2, 4, 6, 8]


def test_of_short_epochs_the_first_is_kept_one_in_a_while_and_the_last_of_each_stage(monkeypatch):
    monkeypatch.setattr(run, "SECONDS_BETWEEN_EPOCHS_SAVED", 1e6)
    store = Memory()
    train("preload_ft", store, epochs=4)
    # Two stages of four epochs of four steps.
    assert [kept.position for kept in store.kept] == [4, 16, 20, 32]


class Stop(BaseException):
    """What a caller stops with."""


@pytest.mark.parametrize("name", ["preload", "preload_ft", "doe_ft"])
def test_stopped_after_any_call_it_goes_on_to_the_bit(name):
    whole = train(name)
    store, stops = Memory(), 0
    while True:
        told = []

        def stop(told=told, limit=1 + stops % 2):
            # After one call, or two; nobody is asked to stop while features are computed first.
            return Stop() if sum(isinstance(each, run.Progress) for each in told) == limit else None

        try:
            variables = train(name, store, callbacks=Callbacks(watch=watching(told).watch, stop=stop))
        except Stop:
            stops += 1
            continue
        break
    assert stops > 2
    chex.assert_trees_all_equal(variables, whole)


def test_nothing_is_loaded_where_everything_is_done():
    store = Memory()
    whole = train("preload", store)

    def load():
        raise AssertionError("it loads data")

    again = run.train(stages("preload"), whole, load_data=load, key=KEY, store=store)
    chex.assert_trees_all_equal(again, whole)


def test_a_method_that_trains_nothing_keeps_what_it_started_from():
    store = Memory()
    variables = loop.init_variables(toy.model("linear"), toy.SHAPE, key=jax.random.key(0))
    assert run.train([], variables, load_data=toy.data, key=KEY, store=store) == variables
    (kept,) = store.kept
    chex.assert_trees_all_equal(kept.tree, variables)


def test_states_of_another_identity_are_refused_and_older_ones_which_have_none_are_not():
    store = Memory()
    with pytest.raises(Stop):
        train("preload", store, identity={"colour": "red"}, callbacks=Callbacks(stop=Stop))
    with pytest.raises(UserError, match="the stored training is another: colour was 'red', is 'blue'"):
        train("preload", store, identity={"colour": "blue"})
    del store.kept[-1].notes["identity"], store.kept[-1].notes["environment"]
    chex.assert_trees_all_equal(train("preload", store, identity={"colour": "blue"}), train("preload"))


def test_what_the_callers_report_raises_ends_it_and_its_thread():
    seen = []

    @contextlib.contextmanager
    def watch(each, done):
        def tell(progress):
            seen.extend(thread for thread in threading.enumerate() if thread.name.startswith("training-data"))
            raise Stop

        yield tell

    model = toy.model()
    variables = loop.init_variables(model, toy.SHAPE, key=jax.random.key(0))
    with pytest.raises(Stop):
        run.train(
            stages("preload"),
            variables,
            load_data=lambda: jax.tree.map(np.asarray, toy.data()),
            key=KEY,
            callbacks=Callbacks(watch=watch),
        )
    assert seen
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("training-data")]
