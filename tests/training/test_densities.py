"""CCU's densities: where they start, what a step does to them, and that a training with them goes on to the bit."""

import math

import chex
import jax
import numpy as np
import pytest

from preload_jax import fit, methods, models, predict
from preload_jax.errors import UserError
from preload_jax.models.ccu_head import Densities
from preload_jax.training import densities, stage, steps
from tests import toy

IMAGES, LABELS, OUTLIERS = (np.asarray(x) for x in jax.tree.leaves(toy.data()))
FLOAT_IMAGES, FLOAT_OUTLIERS = IMAGES / 255.0, OUTLIERS / 255.0


@pytest.fixture(scope="module")
def started():
    return densities.measured(FLOAT_IMAGES, FLOAT_OUTLIERS, components=3)


def network(components=3):
    return models.make_classifier("mlp", "ccu", num_classes=3, components=components, widths=(8,))


def trained(**options):
    numbers = {"epochs": 2, "batch_size": 64, "learning_rate": 1e-2, "method": "ccu"}
    return fit(options.pop("model", network()), IMAGES, LABELS, OUTLIERS, **(numbers | options))


def test_the_metric_is_that_of_the_images_covariance(started):
    whitening = np.asarray(started["batch_stats"]["whitening"], np.float64)
    rows = FLOAT_IMAGES.reshape(len(IMAGES), -1)
    np.testing.assert_allclose(np.linalg.inv(whitening @ whitening.T), np.cov(rows.T, bias=True), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(started["batch_stats"]["center"].reshape(-1), rows.mean(axis=0), rtol=1e-5)


def test_eigenvalues_have_a_floor_of_a_millionth_of_the_largest():
    images = FLOAT_IMAGES.copy()
    images[:, 0, 0] = 0.25
    whitening = np.asarray(densities.measured(images, FLOAT_OUTLIERS, components=1)["batch_stats"]["whitening"])
    found = np.sort(np.linalg.eigvalsh(np.linalg.inv((whitening @ whitening.T).astype(np.float64))))
    largest = np.linalg.eigvalsh(np.cov(images.reshape(len(images), -1).T, bias=True))[-1]
    np.testing.assert_allclose(found[[0, -1]], [1e-6 * largest, largest], rtol=1e-2)


def test_one_gaussian_each_is_known():
    found = densities.measured(FLOAT_IMAGES, FLOAT_OUTLIERS, components=1)
    params, whitening = found["params"], np.asarray(found["batch_stats"]["whitening"], np.float64)
    center = np.asarray(found["batch_stats"]["center"]).reshape(-1)
    for name, images in (("in", FLOAT_IMAGES), ("out", FLOAT_OUTLIERS)):
        white = (images.reshape(len(images), -1) - center) @ whitening
        np.testing.assert_allclose(params[f"{name}_means"][0], white.mean(axis=0), atol=1e-3 * np.abs(white).max())
        log_variance = float(params[f"{name}_log_variances"][0])
        np.testing.assert_allclose(log_variance, np.log(white.var(axis=0).mean()), atol=1e-2)


def test_theta_is_at_least_twice_sigma():
    # Outliers that lie closer together than the images.
    found = densities.measured(FLOAT_IMAGES, 0.5 + 1e-3 * FLOAT_OUTLIERS, components=2)["params"]
    np.testing.assert_allclose(
        found["out_log_variances"].min(), found["in_log_variances"].max() + math.log(4), rtol=1e-5
    )


def test_a_steps_gradient_is_that_of_the_papers_objective():
    """Adam's first step moves each number by the learning rate, against its gradient's sign: by finite differences."""
    task, images = toy.task("ccu", total_steps=10, model=network()), toy.batch(32)
    row, rate = methods.get("ccu"), 1e-3
    own = {"density_learning_rate": rate}
    hyper = steps.Hyperparameters(1e-2, objective=stage.objective_numbers(row, 2.0, 0.0, 0.0), own=own)
    state = toy.start("ccu", task)
    variables = densities.prepared(
        task.model, state.variables, toy.data(), ood_weight=2.0, augmentations=densities.Augmentations(), seed=0
    )
    assert float(variables["batch_stats"]["head"]["log_prior_odds"]) == pytest.approx(math.log(2.0))
    state = steps.init_state(variables, task=task, init_memory=densities.init_memory)
    after, metrics = jax.jit(lambda s: densities.densities_step(s, images, jax.random.key(0), task=task, hyper=hyper))(
        state
    )

    def objective(params):
        """−E log p(y, x) − λ E 1/K Σ log p(c, z), the paper's eq. 8, from joint probabilities in float64."""
        found = {
            **variables,
            "params": {**variables["params"], "head": {**variables["params"]["head"], "densities": params}},
        }
        total = 0.0
        for x, weight, labels in ((images.images, 1.0, images.labels), (images.outliers, 2.0, None)):
            log_p = np.asarray(apply(found, x), np.float64)
            log_in, log_out = (np.asarray(each, np.float64) for each in of_densities(found, x))
            chosen = log_p.mean(axis=1) if labels is None else log_p[np.arange(len(x)), np.asarray(labels)]
            total -= weight * (chosen + np.logaddexp(log_in, math.log(2.0) + log_out)).mean()
        return total

    apply = jax.jit(lambda v, x: task.model.apply(v, x))
    of_densities = jax.jit(
        lambda v, x: Densities(3).apply(
            {"params": v["params"]["head"]["densities"], "batch_stats": v["batch_stats"]["head"]["densities"]}, x
        )
    )
    before, moved = variables["params"]["head"]["densities"], after.params["head"]["densities"]
    for name in ("in_log_variances", "out_log_variances"):
        for k in range(3):
            step = {each: np.array(x) for each, x in before.items()}
            lower, upper = ({**step, name: step[name] + sign * 0.02 * np.eye(3)[k]} for sign in (-1, 1))
            slope = (objective(upper) - objective(lower)) / 0.04
            if abs(slope) > 0.05:  # Beyond what rounding moves.
                np.testing.assert_allclose(moved[name][k] - step[name][k], -rate * np.sign(slope), rtol=1e-3)
    # The loss that is told is the classifier's.
    log_p = np.asarray(apply(variables, images.images))[np.arange(32), images.labels]
    expected = -log_p.mean() - 2.0 * np.asarray(apply(variables, images.outliers)).mean()
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-5)


def test_weight_decay_leaves_the_densities_alone_and_a_rate_of_0_keeps_them():
    kept = trained(weight_decay=10.0, own={"density_learning_rate": 0.0})["params"]["head"]["densities"]
    started = densities.prepared(
        network(), {"params": {}, "batch_stats": {}}, toy.data(),
        ood_weight=1.0, augmentations=densities.Augmentations(), seed=0,
    )["params"]["head"]["densities"]  # fmt: skip
    chex.assert_trees_all_close(kept, started, rtol=1e-6)
    moved = trained(own={"density_learning_rate": 0.1})["params"]["head"]["densities"]
    assert all(np.abs(moved[name] - kept[name]).max() > 0.01 for name in kept)
    assert moved["out_log_variances"].min() >= moved["in_log_variances"].max() + math.log(4) - 1e-5


def test_it_learns_and_is_uniform_elsewhere():
    model = models.make_classifier("mlp", "ccu", num_classes=3, components=3, widths=(16, 16))
    variables = trained(model=model, epochs=12, learning_rate=3e-2)
    assert (predict(model, variables, IMAGES).label == LABELS).mean() > 0.9
    np.testing.assert_allclose(predict(model, variables, OUTLIERS).probabilities, 1 / 3, atol=0.05)
    assert float(variables["batch_stats"]["head"]["log_prior_odds"]) == 0.0


def test_stopped_and_gone_on_with_it_is_the_same_to_the_bit(tmp_path):
    class Stopped(Exception):
        pass

    def stop(report):
        raise Stopped

    whole = trained()
    with pytest.raises(Stopped):
        trained(checkpoint_dir=tmp_path, on_report=stop)
    chex.assert_trees_all_equal(trained(checkpoint_dir=tmp_path), whole)


def test_a_trained_network_gets_densities_and_keeps_those_it_has():
    standard = models.make_classifier("mlp", "linear", num_classes=3, widths=(8,))
    start = fit(standard, IMAGES, LABELS, epochs=1)
    found = trained(variables=start, learning_rate=0.0, weight_decay=0.0)
    chex.assert_trees_all_close(found["params"]["head"]["linear"], start["params"]["head"]["linear"])
    assert np.ptp(found["params"]["head"]["densities"]["in_means"]) > 0.0
    again = trained(variables=found, own={"density_learning_rate": 0.0}, seed=1)
    chex.assert_trees_all_close(again["params"]["head"]["densities"], found["params"]["head"]["densities"])


def test_what_makes_no_densities_is_refused():
    for images, outliers, components, words in (
        (FLOAT_IMAGES[:2], FLOAT_OUTLIERS, 3, "2 images for 3 components"),
        (FLOAT_IMAGES, FLOAT_OUTLIERS[:2], 3, "2 outliers for 3 components"),
        (np.zeros_like(FLOAT_IMAGES), FLOAT_OUTLIERS, 3, "images that differ"),
        (np.full_like(FLOAT_IMAGES, np.nan), FLOAT_OUTLIERS, 3, "NaN"),
    ):
        with pytest.raises(UserError, match=words):
            densities.measured(images, outliers, components=components)
    with pytest.raises(UserError, match="must be above 0"):
        trained(ood_weight=0.0)
    with pytest.raises(UserError, match="CCU takes all training images at once"):
        fit(network(), [(IMAGES[:64], LABELS[:64])], outliers=[OUTLIERS[:64]], method="ccu")
