"""Many devices: the same training, predictions and checkpoints as on one.  `tests/conftest.py` makes eight on a CPU.

Training is compared with float64 networks.  In float32 batch normalisation of small batches amplifies rounding, which
differs between processors, to a thousandth of the loss within three steps: a tolerance for that would prove little.
The head is float32 in any case, and numbers agree to what that rounds.
"""

from functools import cache

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from preload_jax import fit, models
from preload_jax.data.specs import Augmentation
from preload_jax.devices import forward, sharding
from preload_jax.errors import UserError
from preload_jax.training import loop as training
from preload_jax.training.augment import Augmentations
from preload_jax.training.data import TrainingData
from preload_jax.training.plan import Plan
from tests import toy

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices, such as tests/conftest.py makes")
KEY = jax.random.key(0)
SHAPE = (8, 8, 1)
NETWORKS = {
    "mlp": {"widths": (16,)},
    "lenet": {"channels": (4, 8), "width": 16},
    # Batch statistics over all devices' images, and dropout by the image's place in the whole batch.
    "wide_resnet": {"depth": 10, "widen_factor": 1, "dropout": 0.3},
}


def data():
    rng = np.random.default_rng(0)
    images, outliers = (rng.integers(0, 256, (n, *SHAPE), np.uint8) for n in (48, 50))
    return TrainingData(images, rng.integers(0, 3, 48).astype(np.int32), outliers)


@cache
def initial(network):
    model = models.make_classifier(network, "square_logit", num_classes=3, dtype=jnp.float64, **NETWORKS[network])
    return model, training.init_variables(model, SHAPE, key=KEY)


def train(network, devices, *, state=None, source=None, max_steps=4):
    """The last report of a few steps with every kind of randomness, and the losses."""
    mesh = sharding.make_mesh(devices)
    model, variables = initial(network)
    plan = Plan(48, 16, 2, max_steps_per_call=1, max_steps=max_steps)
    # SGD: Adam divides rounding by its own size where a gradient is next to 0.
    task = toy.task("preload", total_steps=4, optimizer="sgd", model=model)
    if state is None:
        state = toy.start("preload", task, variables=variables)
    reports = training.fit_stage(
        state,
        source or data(),
        key=KEY,
        task=task,
        step=toy.step("preload"),
        hyper=toy.hyper("preload", 0.05),
        plan=plan,
        augmentations=Augmentations(Augmentation(probability=0.5, flip=True, pad=1, mode="reflect")),
        mesh=mesh,
    )
    losses = [float(report.losses[0]) for report in reports if (last := report)]
    return last.state, losses


# The WideResNet takes a minute to compile so often.
@pytest.mark.parametrize(
    "network", [pytest.param(name, marks=[pytest.mark.slow] * (name == "wide_resnet")) for name in NETWORKS]
)
def test_eight_devices_train_like_one_and_go_on_with_its_state(network):
    with toy.enable_x64(True):
        one, losses = train(network, 1)
        # Stopped on eight devices, gone on with one, as from a checkpoint; and the reverse.
        half, first = train(network, 8, max_steps=2)
        rest, second = train(network, 1, state=jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), half))
        np.testing.assert_allclose(first + second, losses, rtol=1e-5)
        chex.assert_trees_all_close(rest, one, rtol=1e-4, atol=1e-6)
        assert network != "wide_resnet" or jax.tree.leaves(one.batch_stats)
        half, first = train(network, 1, max_steps=2)
        rest, second = train(network, 8, state=half)
        np.testing.assert_allclose(first + second, losses, rtol=1e-5)
        chex.assert_trees_all_close(rest, one, rtol=1e-4, atol=1e-6)
    assert all(leaf.sharding.is_fully_replicated and len(leaf.devices()) == 8 for leaf in jax.tree.leaves(rest))


def test_each_device_has_its_share_of_a_batch_and_exchanges_no_images():
    mesh = sharding.make_mesh(8)
    task = toy.task("preload", total_steps=4)
    state = toy.start("preload", task)
    placed = jax.tree.map(lambda x: sharding.put(x, mesh), toy.data())
    compiled = training.run_steps.lower(
        sharding.replicate(state, mesh),
        placed,
        KEY,
        toy.hyper("preload"),
        task=task,
        step=toy.step("preload"),
        num_steps=1,
        batch_size=64,
        augmentations=Augmentations(),
        mesh=mesh,
    ).compile()
    program = compiled.as_text()
    # What devices tell each other is sums: gradients, losses, whether all is finite.
    assert "all-reduce" in program
    assert not [name for name in ("all-gather(", "all-to-all(", "collective-permute(") if name in program]
    # 64 + 64 images of 16 pixels, an eighth of them.
    assert "f32[16,16]" in program
    assert "f32[128,16]" not in program


def test_predictions_are_the_same():
    model = toy.model()
    variables = training.init_variables(model, toy.SHAPE, key=KEY)
    images = np.asarray(toy.data().images[:37])
    one, features = forward.predict(model, variables, images, batch_size=10, features=True)
    many, many_features = forward.predict(
        model, variables, images, batch_size=10, features=True, mesh=sharding.make_mesh("all")
    )
    np.testing.assert_allclose(many, one, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(many_features, features, rtol=1e-5, atol=1e-6)


def test_fit_takes_devices():
    images, labels, outliers = (np.asarray(x) for x in jax.tree.leaves(toy.data()))
    reports = {devices: [] for devices in (1, 4)}
    for devices, found in reports.items():
        fit(
            toy.model(),
            images,
            labels,
            outliers,
            epochs=2,
            batch_size=64,
            devices=devices,
            on_report=lambda report, found=found: found.append(report.losses[-1]),
        )
    np.testing.assert_allclose(reports[4], reports[1], rtol=1e-4)


def test_what_does_not_fit():
    assert sharding.make_mesh(1) is None
    assert sharding.make_mesh("all").size == jax.device_count()
    for devices in (0, jax.device_count() + 1):
        with pytest.raises(UserError, match=f"{devices} devices asked for, there are {jax.device_count()} CPU devices"):
            sharding.make_mesh(devices)
    images, labels, outliers = (np.asarray(x) for x in jax.tree.leaves(toy.data()))
    with pytest.raises(
        UserError, match="a batch of 100 cannot be divided among 8 devices; choose a multiple of their number"
    ):
        fit(toy.model(), images, labels, outliers, batch_size=100, devices=8)


def test_an_array_is_divided_or_whole():
    mesh = sharding.make_mesh(4)
    divided = sharding.put(np.arange(8), mesh, sharding.AXIS)
    assert divided.sharding.spec == PartitionSpec("batch")
    assert [shard.data.tolist() for shard in divided.addressable_shards] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    whole = sharding.replicate({"x": np.arange(8)}, mesh)["x"]
    assert [shard.data.shape for shard in whole.addressable_shards] == [(8,)] * 4
    assert sharding.to_one_device({"x": whole}, mesh)["x"].devices() == {jax.devices()[0]}
