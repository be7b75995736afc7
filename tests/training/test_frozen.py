"""Features computed once: the same training of w' and b as with the whole network in each step, and when it is done."""

import os
from dataclasses import replace
from functools import cache
from typing import ClassVar

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from preload_jax import fit, models
from preload_jax.api import attach
from preload_jax.data.specs import Augmentation
from preload_jax.devices import sharding
from preload_jax.training import data as training_data
from preload_jax.training import doe, frozen
from preload_jax.training import loop as training
from preload_jax.training.augment import Augmentations
from preload_jax.training.data import TrainingData
from preload_jax.training.plan import Plan
from tests import toy

KEY = jax.random.key(0)
# 4 steps an epoch in calls of 2; the pass is in batches of 32, the last of which are padded.
PLAN = Plan(num_images=68, batch_size=16, epochs=4, max_steps_per_call=2)
CROP = Augmentation(probability=1.0, flip=True, pad=1, mode="edge")


class ConvBatchNorm(nn.Module):
    """What training mode changes: batch statistics, and dropout."""

    @nn.compact
    def __call__(self, images, *, train=False):
        x = nn.BatchNorm(use_running_average=not train)(nn.Conv(16, (3, 3))(images))
        return nn.Dropout(0.3, deterministic=not train)(nn.relu(x)).mean(axis=(1, 2))


# The images' shape and that of outliers, whose channels are made to fit.
NETWORKS = {
    "dense": ((8, 8, 1), (8, 8, 3), models.MLP(widths=(16,))),
    "batch_norm": ((8, 8, 3), (8, 8, 1), ConvBatchNorm()),
}


def data(network, num_outliers=50):
    rng = np.random.default_rng(0)
    shape, outlier_shape, _ = NETWORKS[network]
    images, outliers = (
        rng.integers(0, 256, (n, *s), np.uint8) for n, s in ((68, shape), (num_outliers or 0, outlier_shape))
    )
    labels = rng.integers(0, 3, 68).astype(np.int32)
    return TrainingData(images, labels, None if num_outliers is None else outliers)


@cache
def initial(network):
    """The task of a stage, and the network's variables; BN's statistics are not those it starts with."""
    shape, _, backbone = NETWORKS[network]
    model = models.Classifier(backbone, models.SquareLogitHead(3, initial_scale="inverse_width"))
    variables = training.init_variables(model, shape, key=KEY)
    variables["batch_stats"] = jax.tree.map(lambda x: 1.5 * x + 0.1, variables["batch_stats"])
    # SGD: Adam divides rounding by its own size where a gradient is next to 0.
    task = toy.task("preload_ft", total_steps=PLAN.total_steps, trainable="ood_head", optimizer="sgd", model=model)
    return task, variables


def start(network):
    task, variables = initial(network)
    return toy.start("preload_ft", task, variables=variables)


class Another(models.Classifier):
    """A classifier that may do other things, so that all of it is in each step."""


def train(network, placement, devices, *, state=None, kind=models.Classifier):
    """Copies of the states after each call, and the losses and accuracies of all steps."""
    mesh, task = sharding.make_mesh(devices), initial(network)[0]
    reports = training.fit_stage(
        start(network) if state is None else jax.tree.map(jnp.asarray, state),
        training_data.place(data(network), placement, mesh=mesh),
        key=KEY,
        task=replace(task, model=kind(task.model.backbone, task.model.head)),
        step=toy.step("preload_ft"),
        hyper=toy.hyper("preload_ft", 0.3),
        plan=PLAN,
        mesh=mesh,
    )
    found = [(jax.tree.map(np.array, r.state), r.losses, r.accuracies) for r in reports]
    states, losses, accuracies = zip(*found, strict=True)
    return states, np.concatenate(losses), np.concatenate(accuracies)


@pytest.mark.parametrize(
    ("network", "placement", "devices"),
    [("dense", "device", 1), ("dense", "host", 1), ("dense", "host", 2), ("batch_norm", "device", 2)],
)
def test_it_is_the_training_with_the_whole_network(network, placement, devices):
    if jax.device_count() < devices:
        pytest.skip(f"needs {devices} devices, there are {jax.device_count()}")
    states, losses, accuracies = train(network, placement, devices)
    expected, expected_losses, expected_accuracies = train(network, placement, devices, kind=Another)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    np.testing.assert_array_equal(accuracies, expected_accuracies)
    chex.assert_trees_all_close(states, expected, rtol=1e-4, atol=1e-6)
    before, after = (s.params["head"]["ood"]["raw_weights"] for s in (start(network), states[-1]))
    assert np.abs(after - before).max() > 1e-2
    # All else is reported as it was, to the bit, and the stage goes on from the middle of an epoch.
    kept = {**states[-1].params, "head": {**states[-1].params["head"], "ood": start(network).params["head"]["ood"]}}
    chex.assert_trees_all_equal((kept, states[-1].batch_stats), (start(network).params, start(network).batch_stats))
    rest, rest_losses, _ = train(network, placement, devices, state=states[2])
    np.testing.assert_array_equal(rest_losses, losses[6:])
    chex.assert_trees_all_equal(rest[-1], states[-1])


class Counting(nn.Module):
    """Tells `seen` of the images that go through it."""

    seen: ClassVar[list[int]] = []

    @nn.compact
    def __call__(self, images, *, train=False):
        jax.debug.callback(lambda: self.seen.append(len(images)))
        return nn.relu(nn.Dense(16)(images.reshape(len(images), -1)))


def test_attach_passes_over_each_image_once():
    images, labels, outliers = (np.asarray(x) for x in jax.tree.leaves(toy.data()))
    plain = models.Classifier(Counting(), models.LinearHead(3))
    variables = fit(plain, images, labels, epochs=1)
    jax.effects_barrier()
    Counting.seen.clear()
    attach(plain, variables, images, labels, outliers, epochs=12, batch_size=64)
    jax.effects_barrier()
    # 256 images and 300 outliers in batches of 128, and a look at 256 training images before and afterwards; each
    # network is asked about seven times before, with each size of batch.  Steps would see 6,144 beside the looks.
    looks = 8 * 256
    assert 5 * 128 <= sum(n for n in Counting.seen if n > 8) - looks <= 5 * 128 + 256 + 7 * (128 + 256)


@pytest.mark.parametrize(
    ("num_outliers", "told"),
    # In batches of 16 + 16, outliers first; of 16 where there are none.
    [(50, [(0, 118), (32, 118), (50, 118), (82, 118), (114, 118)]), (None, [(i, 68) for i in range(0, 68, 16)])],
)
def test_the_pass_says_how_many_images_are_done(num_outliers, told):
    found = []
    frozen.head_only(
        start("dense"),
        data("dense", num_outliers),
        task=initial("dense")[0],
        plan=PLAN,
        mesh=None,
        before_batch=lambda *numbers: found.append(numbers),
    )
    assert found == told


def saves_work(network="dense", *, num_outliers=50, on_host=True, step=None, policies=(), plan=PLAN, **changes):
    given = data(network, num_outliers)
    if not on_host:
        given = jax.tree.map(jnp.asarray, given)
    return frozen.saves_work(
        start(network),
        given,
        task=replace(initial(network)[0], **changes),
        step=step or toy.step("preload_ft"),
        plan=plan,
        augmentations=Augmentations(*policies),
    )


def test_it_is_done_where_nothing_changes_from_epoch_to_epoch():
    assert saves_work()
    assert not saves_work(trainable="all")
    assert not saves_work(step=doe.worst_case_step)
    assert not saves_work(policies=(CROP,))
    assert not saves_work(policies=(None, CROP))
    # A policy leaves grey outliers of the images' shape alone, and of no outliers makes nothing.
    random = Augmentations(None, CROP).are_random
    assert not random((8, 8, 1), (8, 8, 1))
    assert random((8, 8, 3), (8, 8, 3))
    assert not random((8, 8, 3), None)


def test_it_is_done_where_it_passes_over_fewer_images_than_the_steps():
    # 16 steps of 16 + 16 images.
    assert saves_work(num_outliers=16 * 32 - 68 - 1)
    assert not saves_work(num_outliers=16 * 32 - 68)
    # Without outliers 4 or 8 steps of 16 images, against 68.
    assert not saves_work(num_outliers=None, plan=replace(PLAN, epochs=1))
    assert saves_work(num_outliers=None, plan=replace(PLAN, epochs=2))


ROW = 4 * 16  # bytes of one image's features


@pytest.mark.parametrize(
    ("host", "device", "on_host", "expected"),
    [
        (4 * ROW * 118, None, True, True),
        (4 * ROW * 118 - 1, None, True, False),
        (None, 4 * ROW * 118, False, True),
        (None, 4 * ROW * 118 - 1, False, False),
        # Three calls of 2 steps of 16 + 16 images.
        (None, 4 * ROW * 192, True, True),
        (None, 4 * ROW * 192 - 1, True, False),
    ],
)
def test_it_is_done_where_features_have_room(monkeypatch, host, device, on_host, expected):
    class Device:
        def memory_stats(self):
            return None if device is None else {"bytes_limit": device}

    if host is None:  # A system that does not say.
        monkeypatch.delattr(os, "sysconf")
    else:
        monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": host}.__getitem__)
    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    assert saves_work(on_host=on_host) == expected
