"""Training images at rest: streamed from host memory they train to the bit as on the device, and no thread stays."""

import contextlib
import threading
from dataclasses import replace

import chex
import jax
import numpy as np
import pytest

from preload_jax import fit
from preload_jax.data.specs import Augmentation
from preload_jax.devices import sharding
from preload_jax.training import data as training_data
from preload_jax.training import loop as training
from preload_jax.training.augment import Augmentations
from preload_jax.training.data import TrainingData
from preload_jax.training.plan import Plan
from tests import toy

KEY = jax.random.key(0)
# 8 steps an epoch, in calls of 2, and outliers that go round again within an epoch.
PLAN = Plan(num_images=256, batch_size=32, epochs=2, max_steps_per_call=2)


def host_data(num_outliers=100):
    data = toy.data()
    return TrainingData(*(np.array(x) for x in (data.images, data.labels, data.outliers[:num_outliers])))


def reports(data, *, devices=1, state=None, plan=PLAN):
    """The generator of a stage's reports."""
    task = toy.task("preload", total_steps=PLAN.total_steps)
    policy = Augmentation(probability=0.5, flip=True, pad=1, mode="edge")
    return training.fit_stage(
        toy.start("preload", task) if state is None else state,
        data,
        key=KEY,
        task=task,
        step=toy.step("preload"),
        hyper=toy.hyper("preload"),
        plan=plan,
        augmentations=Augmentations(policy, policy),
        mesh=sharding.make_mesh(devices),
    )


def train(data, **options):
    """Copies of the states after each call, and the losses."""
    found = [(jax.tree.map(np.array, r.state), r.losses) for r in reports(data, **options)]
    return [state for state, _ in found], np.concatenate([losses for _, losses in found])


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("training-data")]


@pytest.mark.parametrize("devices", [1, 4])
def test_streamed_images_train_to_the_bit_as_those_on_the_device(devices, tmp_path):
    if jax.device_count() < devices:
        pytest.skip(f"needs {devices} devices, there are {jax.device_count()}")
    host = host_data()
    np.save(tmp_path / "outliers.npy", host.outliers)
    mapped = replace(host, outliers=np.load(tmp_path / "outliers.npy", mmap_mode="r"))
    mesh = sharding.make_mesh(devices)
    states, losses = train(training_data.place(host, "device", mesh=mesh), devices=devices)
    streamed, streamed_losses = train(training_data.place(mapped, "host", mesh=mesh), devices=devices)
    np.testing.assert_array_equal(streamed_losses, losses)
    chex.assert_trees_all_equal(streamed[-1], states[-1])
    # Gone on within an epoch.
    rest, rest_losses = train(mapped, devices=devices, state=jax.tree.map(jax.numpy.asarray, streamed[0]))
    np.testing.assert_array_equal(rest_losses, losses[2:])
    chex.assert_trees_all_equal(rest[-1], states[-1])
    assert not threads()


def test_no_thread_stays_when_training_is_left_early():
    with contextlib.closing(reports(host_data())) as left:
        next(left)
        assert len(threads()) == 1
    assert not threads()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not threads()


def interrupted():
    with contextlib.closing(reports(host_data())) as stopped:
        next(stopped)
        raise KeyboardInterrupt


class Failing(np.ndarray):
    """An array whose rows can be read so many times."""

    reads = 0

    def __getitem__(self, rows):
        if isinstance(rows, np.ndarray):
            self.reads += 1
            if self.reads > 2:
                raise OSError(5, "Input/output error", "outliers.npy")
        return super().__getitem__(rows)


def test_what_the_thread_raises_reaches_the_caller():
    host = host_data()
    running = reports(replace(host, outliers=host.outliers.view(Failing)))
    assert [next(running).step, next(running).step] == [2, 4]
    with pytest.raises(OSError, match="Input/output error"):
        next(running)
    assert not threads()


def test_it_reads_two_calls_ahead_and_no_more():
    host = host_data()
    counted = host.outliers.view(Failing)
    counted.reads = -100
    with contextlib.closing(reports(replace(host, outliers=counted))) as running:
        next(running)
        # Of two in hand the one that was computed is the first.
        assert 1 <= counted.reads + 100 <= 2
        next(running)
        assert 2 <= counted.reads + 100 <= 3


def test_a_chunk_holds_what_one_call_may_take():
    cifar = (32, 32, 3)
    assert training_data.steps_per_chunk(128, cifar, cifar) == 85
    assert training_data.steps_per_chunk(128, (1_000, 1_000, 3)) == 1


def test_automatic_placement(monkeypatch):
    host = host_data()
    # A CPU's memory is the host's.
    assert training_data.place(host, "auto").on_host
    assert training_data.place(host, "host").on_host
    assert not training_data.place(host, "device").on_host

    class Device:
        def memory_stats(self):
            return {"bytes_limit": self.limit}

    device = Device()
    device.limit = 2 * sum(array.nbytes for array in (host.images, host.labels, host.outliers))
    with monkeypatch.context() as patch:
        patch.setattr(jax, "local_devices", lambda: [device])
        assert not training_data.place(host, "auto").on_host
        device.limit -= 1
        assert training_data.place(host, "auto").on_host


def test_fit_streams():
    host = host_data()
    options = {"epochs": 2, "batch_size": 64}
    found = [
        fit(toy.model(), host.images, host.labels, host.outliers, data_placement=placement, **options)
        for placement in ("device", "host")
    ]
    chex.assert_trees_all_equal(*found)
