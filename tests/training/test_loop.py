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

from preload_jax import losses
from preload_jax.data.specs import Augmentation
from preload_jax.errors import UserError
from preload_jax.methods import METHODS
from preload_jax.training import data as training_data
from preload_jax.training import loop as training
from preload_jax.training.augment import Augmentations
from preload_jax.training.plan import Plan
from tests import toy

KEY = jax.random.key(0)


def fit(name, *, epochs=3, state=None, plan=None, hyper=None, **options):
    """The reports of a stage."""
    plan = plan or Plan(num_images=256, batch_size=32, epochs=epochs)
    task = toy.task(name, total_steps=plan.total_steps, **options)
    reports = training.fit_stage(
        state if state is not None else toy.start(name, task),
        toy.data(),
        key=KEY,
        task=task,
        step=toy.step(name),
        hyper=hyper or toy.hyper(name),
        plan=plan,
    )
    # Copies: the next call consumes a report's state.
    return [replace(report, state=jax.tree.map(np.array, report.state)) for report in reports]


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.stages])
def test_every_method_learns(name):
    hyper = toy.hyper(name, 3e-2, weight_decay=0.0, ood_weight=0.1, margin_ood=-1.5)
    if name == "mmce":
        # With the usual λ it stops here at two classes that it does not tell apart, and is as confident as it is right.
        hyper = hyper._replace(objective={"mmce_weight": 0.5})
    warmup_steps = 48 if name == "doe_ft" else 0
    reports = fit(name, plan=Plan(256, 32, 12, warmup_steps=warmup_steps), hyper=hyper)
    # Asked about the images themselves: mixup's own accuracy is of mixed ones.
    model = toy.task(name, total_steps=1).model
    variables = jax.tree.map(jnp.asarray, reports[-1].state.variables)
    logits = model.apply(variables, toy.batch(256).images)
    assert np.mean(np.argmax(logits, axis=1) == toy.data().labels) > 0.9
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
        # Wherever a call is taken up, it ends where it would have.
        assert taken == 1 or plan.steps_from(step + 1) == taken - 1
        lengths.add(taken)
        step += taken
    assert step == min(epochs * (num_images // batch_size), max_steps or 10**6)
    assert len(lengths) <= 4  # each length is a compilation


def test_a_plan_that_can_be_cut_evenly_is():
    # 468 steps (60,000 images in batches of 128) at most 50 at a time: 12 calls of 39, not 9 of 50 and one of 18.
    plan = Plan(60_000, 128, 1, max_steps_per_call=50)
    assert plan.steps_from(0) == 39
    # All of an epoch where that is allowed; where no equal division is near, one call is shorter.
    assert Plan(1_000, 10, 1, max_steps_per_call=100).steps_from(0) == 100
    assert [Plan(95, 1, 1, max_steps_per_call=50).steps_from(step) for step in (0, 48)] == [48, 47]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 257}, r"batch_size 257 is larger than the data \(256 training images\)"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"max_steps_per_call": 0}, "max_steps_per_call must be at least 1, got 0"),
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
    assert not np.array_equal(few[:100], few[100:200])
    # Images and outliers have orders of their own, each another in every epoch.
    keys = jax.random.split(KEY)
    orders = [order for epoch in (0, 1) for order in training_data.epoch_orders(keys, epoch, 256, 256, 256)]
    assert len({np.asarray(order).tobytes() for order in orders}) == 4


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
    task = toy.task("preload", total_steps=plan.total_steps)
    other = list(
        training.fit_stage(
            toy.start("preload", task),
            toy.data(),
            key=jax.random.key(1),
            task=task,
            step=toy.step("preload"),
            hyper=toy.hyper("preload"),
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
    state = toy.start("preload_ft", toy.task("preload_ft", total_steps=8, trainable="ood_head"))
    before = jax.tree.map(np.array, state)
    after = fit("preload_ft", epochs=1, trainable="ood_head", state=state)[-1].state
    changed = {**after.params, "head": {**after.params["head"], "ood": before.params["head"]["ood"]}}
    chex.assert_trees_all_equal(changed, before.params)
    chex.assert_trees_all_equal(after.batch_stats, before.batch_stats)
    assert not np.array_equal(after.params["head"]["ood"]["raw_weights"], before.params["head"]["ood"]["raw_weights"])


@pytest.mark.parametrize("name", ["preload", "doe_ft"])
def test_with_x64_enabled_a_stage_keeps_its_types(name):
    hyper = jax.tree.map(np.float64, toy.hyper(name))
    # Numbers of a wider type than the parameters' are what is tested: they are mixed on purpose.
    with toy.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        (report,) = fit(name, epochs=1, hyper=hyper)
    types = {leaf.dtype.name for leaf in jax.tree.leaves(report.state)}
    assert types == {"float32", "int32"}
    assert report.losses[-1] < report.losses[0]


def test_the_starting_variables_survive_training():
    task = toy.task("preload", total_steps=24)
    variables = training.init_variables(task.model, toy.SHAPE, key=KEY)
    before = jax.tree.map(np.array, variables)
    fit("preload", state=toy.start("preload", task, variables=variables))
    chex.assert_trees_all_equal(variables, before)


def test_a_loss_that_is_not_finite_stops_with_its_step():
    with pytest.raises(training.NonFiniteLossError) as caught:
        fit("standard", hyper=toy.hyper("standard", 1e30))
    assert caught.value.step >= 1
    assert np.isfinite(caught.value.last_finite)
    assert "the loss is not finite at step" in str(caught.value)
    assert 0 < caught.value.learning_rate <= 1e30


def _run(step, plan, *, last_loss=None, at=0):
    """The reports of a stage of another step, from a step on."""
    task = toy.task("preload", total_steps=plan.total_steps)
    state = replace(toy.start("preload", task), step=jnp.array(at, jnp.int32))
    hyper = toy.hyper("preload", 0.2)
    return training.fit_stage(
        state, toy.data(), key=KEY, task=task, step=step, hyper=hyper, plan=plan, last_loss=last_loss
    )


def _breaking(state, batch, key, *, task, hyper):
    """Does nothing; the loss is the step's number, and no number at step 8."""
    loss = jnp.where(state.step == 8, jnp.nan, state.step.astype(jnp.float32))
    return replace(state, step=state.step + 1), {"loss": loss, "accuracy": loss}


def _spoiling(state, batch, key, *, task, hyper):
    """Spoils one parameter at step 8."""
    state, metrics = _breaking(state, batch, key, task=task, hyper=hyper)
    bias = jnp.where(state.step == 9, jnp.inf, state.params["head"]["ood"]["bias"])
    head = {**state.params["head"], "ood": {**state.params["head"]["ood"], "bias": bias}}
    return replace(state, params={**state.params, "head": head}), {**metrics, "loss": jnp.float32(3.0)}


def test_reports_number_steps_and_epochs():
    plan = Plan(256, 32, 3, max_steps_per_call=4, max_steps=22)
    reports = list(_run(_breaking, plan, at=12))
    assert [(r.step, r.epoch, r.ends_epoch) for r in reports] == [(16, 1, True), (20, 2, False), (22, 2, True)]
    assert np.concatenate([r.losses for r in reports]).tolist() == list(range(12, 22))


@pytest.mark.parametrize(
    ("step", "at", "per_call", "last_loss", "expected", "message"),
    [
        (_breaking, 6, 1, None, (8, 7.0), "the loss is not finite at step 8; the last finite loss was 7,"),
        (_breaking, 4, 8, None, (8, 7.0), "the loss is not finite at step 8; the last finite loss was 7,"),
        (_breaking, 8, 8, 0.5, (8, 0.5), "the loss is not finite at step 8; the last finite loss was 0.5,"),
        (_breaking, 8, 8, None, (8, None), "the loss is not finite at step 8; there was no finite loss before it,"),
        (_spoiling, 8, 1, 0.5, (8, 3.0), "the parameters are not finite at step 8; the last finite loss was 3,"),
    ],
)
def test_what_is_not_finite_is_told_with_what_was_before(step, at, per_call, last_loss, expected, message):
    # One epoch of 16 steps.
    plan = Plan(256, 16, 1, max_steps_per_call=per_call)
    with pytest.raises(training.NonFiniteLossError, match=message) as caught:
        list(_run(step, plan, last_loss=last_loss, at=at))
    assert (caught.value.step, caught.value.last_finite) == expected
    assert caught.value.learning_rate == pytest.approx(0.1)  # half-way


def _watched(state, batch, key, *, task, hyper):
    return replace(state, step=state.step + 1), {"key": jax.random.key_data(key), **batch._asdict()}


def _watch(data, augmentations=Augmentations()):  # noqa: B008
    """The keys and the batches of eight steps, four an epoch."""
    task = toy.task("preload", total_steps=8)
    state, found = toy.start("preload", task), []
    for _ in range(2):
        state, metrics = training.run_steps(
            state,
            data,
            KEY,
            toy.hyper("preload"),
            task=task,
            step=_watched,
            num_steps=4,
            batch_size=8,
            augmentations=augmentations,
        )
        found.append(metrics)
    return {name: np.concatenate([metrics[name] for metrics in found]) for name in ("key", *toy.steps.Batch._fields)}


def test_steps_take_images_with_their_labels_and_outliers_in_orders_of_their_own():
    rows = np.arange(32)
    images = np.broadcast_to(rows[:, None, None, None], (32, *toy.SHAPE)).astype(np.uint8)
    data = training_data.TrainingData(*map(jnp.asarray, (images, rows.astype(np.int32), images + np.uint8(100))))
    seen = _watch(data)
    np.testing.assert_allclose(seen["images"][..., 0, 0, 0] * 255, seen["labels"], rtol=1e-6)
    outliers = (seen["outliers"][..., 0, 0, 0] * 255).round() - 100
    orders = [*seen["labels"].reshape(2, 32), *outliers.reshape(2, 32)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), rows)
    assert len(np.unique(orders, axis=0)) == 4


def test_no_two_steps_draw_the_same():
    rng = np.random.default_rng(0)
    image, outlier = rng.integers(100, 256, (1, 4, 4, 1), np.uint8), rng.integers(100, 256, (1, 6, 6, 1), np.uint8)
    data = training_data.TrainingData(
        jnp.asarray(image.repeat(32, axis=0)), jnp.zeros(32, jnp.int32), jnp.asarray(outlier.repeat(32, axis=0))
    )
    # Zeros come to images that are padded; outliers are larger and cropped.
    policies = (
        Augmentation(0.5, flip=False, pad=1, mode="constant"),
        Augmentation(0.5, flip=False, pad=0, mode="edge"),
    )
    seen = _watch(data, Augmentations(*policies))
    for name in ("key", "images", "outliers"):
        assert len({x.tobytes() for x in seen[name]}) == 8
    assert seen["images"].min() == 0
    assert seen["outliers"].min() >= np.float32(100 / 255)


@pytest.mark.parametrize("num_outliers", [32, 20])
def test_a_step_goes_down_the_objective_of_both_kinds_of_images(num_outliers):
    task = toy.task("preload", total_steps=10, optimizer="sgd")
    hyper = toy.hyper("preload", 0.1, weight_decay=0.1, ood_weight=0.5)
    batch = toy.batch(32)._replace(outliers=toy.batch(32).outliers[:num_outliers])
    before = replace(toy.start("preload", task), step=jnp.array(3))
    after, metrics = jax.jit(lambda s: toy.steps.gradient_step(s, batch, KEY, task=task, hyper=hyper))(before)

    @jax.jit
    def objective(params):
        logits_in, logits_ood = (task.model.apply({"params": params}, x) for x in (batch.images, batch.outliers))
        return losses.extra_class(logits_in, batch.labels, logits_ood, ood_weight=0.5), logits_in

    (loss, logits_in), gradients = jax.value_and_grad(objective, has_aux=True)(before.params)
    # Nesterov's first step is 1.9 times the gradient.
    rate = 0.05 * (1 + np.cos(np.pi * 0.3))
    expected = jax.tree.map(lambda w, g: w - rate * 1.9 * (g + 0.1 * w), before.params, gradients)
    chex.assert_trees_all_close(after.params, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["accuracy"], (logits_in.argmax(axis=1) == batch.labels).mean())


def test_dropout_goes_with_the_key():
    task = toy.task("standard", total_steps=4, model=toy.noisy_model())
    state, hyper = toy.start("standard", task), toy.hyper("standard")
    batch = toy.batch(32)._replace(outliers=None)
    step = jax.jit(lambda key: toy.steps.gradient_step(state, batch, key, task=task, hyper=hyper)[1])
    first, second = (step(jax.random.key(i))["loss"] for i in (0, 1))
    assert first != second


def test_an_ood_head_is_added_beside_the_trained_classes():
    variables = training.init_variables(toy.model("linear"), toy.SHAPE, key=KEY)

    def added(seed):
        fresh = training.init_variables(toy.model(), toy.SHAPE, key=jax.random.key(seed))
        return training.add_ood_head(variables, fresh)

    grown = added(1)
    images = jax.random.uniform(KEY, (5, *toy.SHAPE))
    plain, with_ood = toy.model("linear").apply(variables, images), toy.model().apply(grown, images)
    np.testing.assert_array_equal(with_ood[:, :-1], plain)
    again, other = added(1), added(2)
    weights = [v["params"]["head"]["ood"]["raw_weights"] for v in (grown, again, other)]
    np.testing.assert_array_equal(weights[1], weights[0])
    assert not np.array_equal(weights[2], weights[0])


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
    batch, hyper, take = toy.batch(64), toy.hyper(name), toy.step(name)
    plain = toy.task(name, total_steps=10, optimizer="sgd")
    one, metrics = jax.jit(lambda s, b: take(s, b, KEY, task=plain, hyper=hyper))(toy.start(name, plain), batch)
    spread = replace(plain, axis_name="devices")
    step = spread_out(lambda s, b: take(s, b, KEY, task=spread, hyper=hyper), devices)
    many, many_metrics = step(toy.start(name, spread), batch)
    chex.assert_trees_all_close(many.params, one.params, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(many.memory, one.memory, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(many_metrics["loss"], metrics["loss"], rtol=1e-5)


@cache
def _batch_norm_network():
    model = toy.models.make_classifier(
        "wide_resnet", "square_logit", num_classes=3, depth=10, widen_factor=1, dropout=0.0
    )
    return model, training.init_variables(model, (8, 8, 3), key=KEY)


def _batch_norm_step(trainable, *, optimizer="adam", devices=None):
    """One step of a network with BN: its state before and after, and the batch.  Under pmap on so many devices."""
    take = toy.steps.gradient_step
    model, variables = _batch_norm_network()
    task = toy.task("preload_ft", total_steps=4, trainable=trainable, optimizer=optimizer, model=model)
    rng = np.random.default_rng(0)
    images, outliers = (jnp.asarray(rng.random((6, 8, 8, 3)), jnp.float32) for _ in range(2))
    batch = toy.steps.Batch(images, jnp.arange(6) % 3, outliers)
    state = toy.start("preload_ft", task, variables=variables)
    before = jax.tree.map(np.array, state)
    hyper = toy.hyper("preload_ft", 0.1)
    if devices is None:
        return model, before, jax.jit(lambda s: take(s, batch, KEY, task=task, hyper=hyper))(state)[0], batch
    backbone = model.backbone.clone(axis_name="devices")
    task = replace(task, model=model.clone(backbone=backbone), axis_name="devices")
    split = jax.tree.map(lambda x: x.reshape(devices, -1, *x.shape[1:]), batch)
    step = jax.pmap(lambda s, b: take(s, b, KEY, task=task, hyper=hyper), axis_name="devices", in_axes=(None, 0))
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
