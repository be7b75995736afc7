"""Training: plans, order, stages, resuming, freezing, non-finite losses, and the step under pmap and shard_map."""

from dataclasses import replace
from functools import cache

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, PartitionSpec

from preload_jax import training, training_data
from preload_jax.errors import UserError
from preload_jax.losses import Hyperparameters
from preload_jax.methods import METHODS
from preload_jax.plan import Plan
from tests import toy

KEY = jax.random.key(0)


def start(name, task):
    variables = training.init_variables(task.model, toy.SHAPE, key=KEY)
    return training.init_state(variables, task=task, method=toy.method(name))


def fit(name, *, epochs=3, state=None, plan=None, hyper=None, **options):
    """The reports of a stage."""
    plan = plan or Plan(num_images=256, batch_size=32, epochs=epochs)
    task = toy.task(toy.method(name), total_steps=plan.total_steps, **options)
    reports = training.fit_stage(
        state if state is not None else start(name, task),
        toy.data(),
        key=KEY,
        task=task,
        step=toy.method(name).step,
        hyper=hyper or Hyperparameters(learning_rate=1e-2, margin_in=-3.0, margin_ood=-1.0),
        plan=plan,
    )
    # Copies: the next call consumes a report's state.
    return [replace(report, state=jax.tree.map(np.array, report.state)) for report in reports]


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.stages])
def test_every_method_learns(name):
    hyper = Hyperparameters(learning_rate=3e-2, weight_decay=0.0, margin_in=-3.0, margin_ood=-1.5, ood_weight=0.1)
    reports = fit(name, epochs=12, warmup_steps=48, hyper=hyper)
    assert np.mean(reports[-1].accuracies) > 0.9
    chex.assert_tree_all_finite(reports[-1].state)
    assert [r.ends_epoch for r in reports] == [True] * 12


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 4), st.integers(1, 60), st.none() | st.integers(1, 90))
def test_a_plan_takes_every_step_once_and_crosses_no_epoch(num_images, batch_size, epochs, per_call, max_steps):
    if batch_size > num_images:
        batch_size = num_images
    plan = Plan(num_images, batch_size, epochs, per_call, max_steps)
    step, lengths = 0, set()
    while taken := plan.steps_from(step):
        assert taken <= per_call
        assert step // plan.steps_per_epoch == (step + taken - 1) // plan.steps_per_epoch
        lengths.add(taken)
        step += taken
    assert step == plan.total_steps
    assert len(lengths) <= 4  # each length is a compilation


def test_a_plan_that_can_be_cut_evenly_is():
    # 468 steps (60,000 images in batches of 128) at most 50 at a time: 12 calls of 39, not 9 of 50 and one of 18.
    plan = Plan(60_000, 128, 1, max_steps_per_call=50)
    assert plan.steps_from(0) == 39


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 257}, r"batch_size 257 is larger than the data \(256 training images\)"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
    ],
)
def test_plans_that_make_no_sense(change, message):
    with pytest.raises(UserError, match=message):
        replace(Plan(256, 32, 1), **change)


def test_an_epoch_sees_each_image_once_and_outliers_in_a_fresh_order():
    orders = [training_data.epoch_order(jax.random.fold_in(KEY, e), 256, 256) for e in (0, 1)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(256))
    assert not np.array_equal(*orders)
    np.testing.assert_array_equal(orders[0], training_data.epoch_order(jax.random.fold_in(KEY, 0), 256, 256))
    # Too few outliers for an epoch: each is used once before any is used again.
    few = np.asarray(training_data.epoch_order(KEY, 100, 250))
    assert np.bincount(few[:200], minlength=100).tolist() == [2] * 100


def test_going_on_from_a_saved_state_is_bit_identical():
    whole = fit("preload", epochs=4)
    saved = whole[1].state
    rest = fit("preload", plan=Plan(256, 32, 4), state=jax.tree.map(jnp.asarray, saved))
    assert len(rest) == 2
    chex.assert_trees_all_equal(rest[-1].state, whole[-1].state)


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    a, b = fit("preload")[-1].state, fit("preload")[-1].state
    chex.assert_trees_all_equal(a, b)
    plan = Plan(num_images=256, batch_size=32, epochs=3)
    task = toy.task(toy.method("preload"), total_steps=plan.total_steps)
    other = list(
        training.fit_stage(
            start("preload", task),
            toy.data(),
            key=jax.random.key(1),
            task=task,
            step=toy.method("preload").step,
            hyper=Hyperparameters(learning_rate=1e-2),
            plan=plan,
        )
    )[-1].state
    assert not np.array_equal(a.params["head"]["linear"]["kernel"], other.params["head"]["linear"]["kernel"])


def test_one_step_a_call_is_the_same_training():
    one = fit("preload", plan=Plan(256, 32, 1, max_steps_per_call=1))
    assert len(one) == 8
    whole = fit("preload", epochs=1)
    # Another compiled program, so equal to rounding, not to the bit.
    chex.assert_trees_all_close(one[-1].state.params, whole[-1].state.params, atol=1e-5, rtol=1e-4)


def test_the_head_alone_is_trained_in_the_first_stage():
    method = toy.method("preload_ft")
    task = toy.task(method, total_steps=8, trainable="ood_head")
    state = start("preload_ft", task)
    before = jax.tree.map(np.array, state)
    after = fit("preload_ft", epochs=1, trainable="ood_head", state=state)[-1].state
    changed = {**after.params, "head": {**after.params["head"], "ood": before.params["head"]["ood"]}}
    chex.assert_trees_all_equal(changed, before.params)
    chex.assert_trees_all_equal(after.batch_stats, before.batch_stats)
    assert not np.array_equal(after.params["head"]["ood"]["raw_weights"], before.params["head"]["ood"]["raw_weights"])


@pytest.mark.parametrize("name", ["preload", "doe_ft"])
def test_with_x64_enabled_a_stage_keeps_its_types(name):
    hyper = Hyperparameters(*map(np.float64, (1e-2, 5e-4, 1.0, 0.0, 0.0, 0.6)))
    with toy.enable_x64(True):
        (report,) = fit(name, epochs=1, hyper=hyper)
    types = {leaf.dtype.name for leaf in jax.tree.leaves(report.state)}
    assert types == {"float32", "int32"}
    assert report.losses[-1] < report.losses[0]


def test_the_starting_variables_survive_training():
    method = toy.method("preload")
    task = toy.task(method, total_steps=24)
    variables = training.init_variables(task.model, toy.SHAPE, key=KEY)
    before = jax.tree.map(np.array, variables)
    fit("preload", state=training.init_state(variables, task=task, method=method))
    chex.assert_trees_all_equal(variables, before)


def test_a_loss_that_is_not_finite_stops_with_its_step():
    with pytest.raises(training.NonFiniteLossError) as caught:
        fit("standard", hyper=Hyperparameters(learning_rate=1e30))
    assert caught.value.step >= 1
    assert np.isfinite(caught.value.last_finite)
    assert "the loss is not finite at step" in str(caught.value)
    assert 0 < caught.value.learning_rate <= 1e30


def test_an_ood_head_is_added_beside_the_trained_classes():
    variables = training.init_variables(toy.model("linear"), toy.SHAPE, key=KEY)
    grown = training.add_ood_head(variables, toy.model(), toy.SHAPE, key=jax.random.key(1))
    images = jax.random.uniform(KEY, (5, *toy.SHAPE))
    plain, with_ood = toy.model("linear").apply(variables, images), toy.model().apply(grown, images)
    np.testing.assert_array_equal(with_ood[:, :-1], plain)


def _under_pmap(step, devices):
    def call(state, batch):
        split = jax.tree.map(lambda x: x.reshape(devices, -1, *x.shape[1:]), batch)
        return jax.tree.map(lambda x: x[0], jax.pmap(step, axis_name="devices", in_axes=(None, 0))(state, split))

    return call


def _under_shard_map(step, devices):
    if not hasattr(jax, "shard_map"):
        pytest.skip("this JAX has no jax.shard_map")
    mesh = Mesh(np.array(jax.devices()[:devices]), ("devices",))
    return jax.jit(
        jax.shard_map(step, mesh=mesh, in_specs=(PartitionSpec(), PartitionSpec("devices")), out_specs=PartitionSpec())
    )


@pytest.mark.parametrize("spread_out", [_under_pmap, _under_shard_map])
@pytest.mark.parametrize("name", ["preload", "doe_ft"])
def test_the_step_on_many_devices_is_that_on_one(name, spread_out):
    devices = 4
    if jax.device_count() < devices:
        pytest.skip(f"needs {devices} devices, there are {jax.device_count()}")
    method = toy.method(name)
    batch = _batch(64)
    hyper = Hyperparameters(learning_rate=1e-2)
    plain = toy.task(method, total_steps=10, optimizer="sgd")
    one, metrics = jax.jit(lambda s, b: method.step(s, b, KEY, task=plain, hyper=hyper))(start(name, plain), batch)
    spread = replace(plain, axis_name="devices")
    step = spread_out(lambda s, b: method.step(s, b, KEY, task=spread, hyper=hyper), devices)
    many, many_metrics = step(start(name, spread), batch)
    chex.assert_trees_all_close(many.params, one.params, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(many.memory, one.memory, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(many_metrics["loss"], metrics["loss"], rtol=1e-5)


def _batch(n):
    data = toy.data()
    return toy.steps.Batch(data.images[:n] / 255.0, data.labels[:n], data.outliers[:n] / 255.0)


@cache
def _batch_norm_network():
    model = toy.models.make_classifier(
        "wide_resnet", "square_logit", num_classes=3, depth=10, widen_factor=1, dropout=0.0
    )
    return model, training.init_variables(model, (8, 8, 3), key=KEY)


def _batch_norm_step(trainable, *, optimizer="adam", devices=None):
    """One step of a network with BN: its state before and after, and the batch.  Under pmap on so many devices."""
    method = toy.method("preload_ft")
    model, variables = _batch_norm_network()
    task = replace(toy.task(method, total_steps=4, trainable=trainable, optimizer=optimizer), model=model)
    rng = np.random.default_rng(0)
    images, outliers = (jnp.asarray(rng.random((6, 8, 8, 3)), jnp.float32) for _ in range(2))
    batch = toy.steps.Batch(images, jnp.arange(6) % 3, outliers)
    state = training.init_state(variables, task=task, method=method)
    before = jax.tree.map(np.array, state)
    hyper = Hyperparameters(learning_rate=0.1)
    if devices is None:
        return model, before, jax.jit(lambda s: method.step(s, batch, KEY, task=task, hyper=hyper))(state)[0], batch
    backbone = model.backbone.clone(axis_name="devices")
    task = replace(task, model=model.clone(backbone=backbone), axis_name="devices")
    split = jax.tree.map(lambda x: x.reshape(devices, -1, *x.shape[1:]), batch)
    step = jax.pmap(lambda s, b: method.step(s, b, KEY, task=task, hyper=hyper), axis_name="devices", in_axes=(None, 0))
    return model, before, jax.tree.map(lambda x: x[0], step(state, split)[0]), batch


def test_the_first_stage_leaves_batch_statistics_alone():
    _, before, after, _ = _batch_norm_step("ood_head")
    assert jax.tree.leaves(before.batch_stats)
    chex.assert_trees_all_equal(after.batch_stats, before.batch_stats)
    chex.assert_trees_all_equal(after.params["backbone"], before.params["backbone"])
    chex.assert_trees_all_equal(after.params["head"]["linear"], before.params["head"]["linear"])


def test_batch_norm_sees_in_domain_and_ood_images_in_one_pass():
    model, before, after, batch = _batch_norm_step("all")
    both = jnp.concatenate([batch.images, batch.outliers])
    apply = jax.jit(lambda v: model.apply(v, both, train=True, mutable=["batch_stats"])[1]["batch_stats"])
    expected = apply({"params": before.params, "batch_stats": before.batch_stats})
    chex.assert_trees_all_close(after.batch_stats, expected, rtol=1e-4, atol=1e-6)


def test_batch_norm_under_pmap_sees_all_devices_images():
    if jax.device_count() < 2:
        pytest.skip("needs 2 devices")
    _, before, one, _ = _batch_norm_step("all", optimizer="sgd")
    _, _, many, _ = _batch_norm_step("all", optimizer="sgd", devices=2)
    chex.assert_trees_all_close(many.batch_stats, one.batch_stats, rtol=1e-4, atol=1e-6)
    changed = [jax.tree.map(np.subtract, after.params, before.params) for after in (one, many)]
    chex.assert_trees_all_close(*changed, rtol=1e-2, atol=1e-5)
