"""Runs end to end on the embedded digits: every method, the files a run leaves, starting points."""

import json
import shutil
import signal
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.cli.interrupts import Interrupted
from experiments.run import command as run
from experiments.run import train, workflow
from experiments.run.command import Args, OptimizerArgs
from experiments.runs import configuration, provenance, recipes
from experiments.runs import folder as runs
from preload_jax import losses
from preload_jax.data import datasets
from preload_jax.devices import environment
from preload_jax.errors import UserError
from preload_jax.guarantees import far_away_limit
from preload_jax.methods import METHODS
from preload_jax.training.optimizers import Optimizer
from preload_jax.training.steps import Hyperparameters

# With a floor under its weights the OOD class wins everywhere at first.
EPOCHS = {
    "standard": 12,
    "nc": 12,
    "oe": 12,
    "preload": 12,
    "preload_certified": 40,
    "mmce": 12,
    "preload_adv": 12,
    "ccu": 12,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def results_of(root, method, **options):
    """The results of a run, which is made where this process has not made it yet: tests may run on several."""
    if METHODS[method].starts_from is not None:
        results_of(root, METHODS[method].starts_from)
    epochs = EPOCHS.get(method, 4) if METHODS[method].stages else None
    args = Args(method=method, root=root, epochs=epochs, quiet=True, **options)
    assert run.main(args) == 0
    return runs.RunDir(root / "digits" / method / f"seed{args.seed}").read_results()


# In the table's order, so that `standard` is there when the others start from it.
@pytest.mark.parametrize("method", METHODS)
def test_each_method_trains_and_beats_chance(root, method, capsys):
    results = results_of(root, method)
    assert results["in_domain"]["accuracy"] > 0.7
    assert results["in_domain"]["size"] == 400
    # Written in sorted order.
    assert list(results["ood"]) == ["faraway", "faraway_rd", "photo", "smooth", "uniform"]
    for row in results["ood"].values():
        assert set(row) == {"fpr95", "auroc", "aupr", "mmc", "size"}
        assert all(0.0 <= row[name] <= 1.0 for name in ("fpr95", "auroc", "aupr", "mmc"))
    far = [results["ood"][name]["fpr95"] for name in ("faraway", "faraway_rd")]
    if METHODS[method].head == "square_logit" or method == "ddu":
        assert far == [0.0, 0.0]
    elif method in ("standard", "oe", "oe_ft", "doe_ft", "energy_ft"):
        assert min(far) > 0.95
    assert "FarAway-RD" in capsys.readouterr().out
    if METHODS[method].in_paper:
        return
    # Along every ray that moves the embedding the limit is the OOD class where it is square, else certainty in a class.
    run = runs.load_run(root / "digits" / method / "seed0")
    limit = far_away_limit(run.model, run.variables, np.random.default_rng(0).normal(size=(100, 8, 8, 1)))
    alive = limit.winner[~(limit.dead | limit.undecided)]
    assert len(alive) > 90
    if method in ("laplace", "laplace_oe", "rgpr", "mc_dropout", "ccu"):
        # Means over networks or weights, or densities: not every ray ends in certainty, and none in an OOD class.
        assert ((alive >= -1) & (alive < 10)).all()
        assert (alive == -1).any()
        return
    assert (alive == 10).all() if METHODS[method].has_ood_class else ((alive >= 0) & (alive < 10)).all()


def test_what_a_run_leaves(root):
    results_of(root, "preload")
    run_dir = runs.RunDir(root / "digits" / "preload" / "seed0")
    config = run_dir.read_config()
    assert (config.dataset, config.method, config.epochs) == ("digits", "preload", 12)
    lines = [json.loads(line) for line in run_dir.metrics.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(12))
    assert lines[-1]["step"] == 120
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert (run_dir.figures / "score_histograms.png").stat().st_size > 10_000
    with np.load(run_dir.scores) as scores:
        assert set(scores) == {"in_domain", "photo", "uniform", "smooth", "faraway", "faraway_rd"}
    # The last one, and the one before, which is a second older or the first.
    before, last = sorted(int(path.name) for path in run_dir.checkpoints.iterdir())
    assert before % 10 == 0
    assert before < last == 120
    # What beside the configuration decides the numbers.
    results = run_dir.read_results()
    assert (results["commit"], results["machine"]) == (provenance.commit(), provenance.machine())
    found = results["environment"]
    assert found == json.loads(json.dumps(environment.current()))
    assert found["jax_default_prng_impl"] == jax.config.jax_default_prng_impl
    assert found["versions"]["jax"] == jax.__version__


def test_a_finished_run_is_reported_not_trained(root, capsys):
    results_of(root, "preload")
    capsys.readouterr()
    before = runs.RunDir(root / "digits" / "preload" / "seed0").results.stat().st_mtime_ns
    assert run.main(Args(root=root, epochs=12, json=True)) == 0
    out = capsys.readouterr()
    assert json.loads(out.out)["method"] == "preload"
    assert "is finished; reporting it" in out.err
    assert runs.RunDir(root / "digits" / "preload" / "seed0").results.stat().st_mtime_ns == before


def test_a_trained_run_is_read_back(root):
    results_of(root, "preload")
    loaded = runs.load_run(root / "digits" / "preload" / "seed0")
    assert loaded.method.name == "preload"
    assert loaded.spec.name == "digits"
    logits = loaded.model.apply(loaded.variables, jnp.zeros((1, 8, 8, 1)))
    assert logits.shape == (1, 11)


@pytest.mark.parametrize("method", ["oe_ft", "preload_ft"])
def test_fine_tuning_trains_a_missing_start_first_and_as_short(tmp_path, capsys, method):
    assert run.main(Args(method=method, root=tmp_path, outliers="uniform", max_steps=2)) == 0
    err = capsys.readouterr().err
    assert f"{method} starts from the standard network, which is not there: training it first" in err
    assert "seed0, for 2 steps at most as this run" in err
    assert "digits standard: 2 steps" in err
    assert f"starting from {tmp_path}/digits/standard/seed0 (accuracy" in err
    for name, stages in (("standard", 1), (method, len(METHODS[method].stages))):
        run_dir = runs.RunDir(tmp_path / "digits" / name / "seed0")
        assert run_dir.is_finished()
        assert run_dir.read_config().max_steps == 2
        lines = [json.loads(line) for line in run_dir.metrics.read_text().splitlines()]
        assert [line["step"] for line in lines] == [2 * (i + 1) for i in range(stages)]


def test_energies_are_said_beside_the_margins(root, capsys):
    results_of(root, "standard")
    args = Args(method="energy_ft", root=root, run_dir=root / "energy", epochs=1)
    assert run.main(args) == 0
    assert "(margin -10)" in capsys.readouterr().err


def test_stage_one_leaves_the_network_as_it_was(root, tmp_path):
    # A run stopped after its first stage: the second has 1 step of learning rate 0.
    results_of(root, "standard")
    args = Args(method="preload_ft", root=root, run_dir=tmp_path, epochs=1, quiet=True)
    args = replace(args, optimizer=OptimizerArgs(learning_rate=0.0))
    assert run.main(args) == 0
    start, tuned = runs.load_run(root / "digits" / "standard" / "seed0"), runs.load_run(tmp_path)
    head = dict(tuned.variables["params"]["head"])
    assert head.pop("ood")
    for a, b in zip(
        [*_leaves(start.variables["params"]["backbone"]), *_leaves(start.variables["params"]["head"])],
        [*_leaves(tuned.variables["params"]["backbone"]), *_leaves(head)],
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def _leaves(tree):
    return jax.tree.leaves(tree)


def test_a_stage_is_what_the_configuration_says():
    config = recipes.get(datasets.get("digits"), "doe_ft")
    config = replace(
        config,
        epochs=4,
        max_steps=10,
        batch_size=64,
        ood_weight=0.7,
        margin_in=-3.0,
        margin_ood=-1.0,
        warmup_epochs=2,
        perturbation_decay=0.2,
        precision="bfloat16",
        optimizer=configuration.OptimizerConfig("sgd", momentum=0.8, learning_rate=0.3, weight_decay=0.01),
    )
    (stage,) = train.stages(config, num_images=256)
    assert (stage.plan.num_images, stage.plan.batch_size, stage.plan.epochs) == (256, 64, 4)
    assert (stage.plan.steps_per_epoch, stage.plan.total_steps) == (4, 10)
    assert stage.hyper == Hyperparameters(0.3, 0.01, {"ood_weight": 0.7}, perturbation_decay=0.2)
    assert stage.task.optimizer == Optimizer("sgd", 0.8, METHODS["doe_ft"].clip_norm)
    # Two of four epochs are half of the ten steps that --max-steps leaves.
    assert (stage.task.total_steps, stage.plan.warmup_steps, stage.task.trainable) == (10, 5, "all")
    assert stage.task.model.backbone.dtype == jnp.bfloat16
    assert stage.task.objective is losses.outlier_exposure
    (stage,) = train.stages(replace(config, method="oe", oe_class_mean=True), num_images=256)
    assert stage.task.objective is losses.outlier_exposure_class_mean
    (stage,) = train.stages(replace(config, method="energy_ft"), num_images=256)
    assert stage.hyper.objective == {"ood_weight": 0.7, "margin_in": -3.0, "margin_ood": -1.0}
    for half, objective in ((True, losses.extra_class), (False, losses.extra_class_whole)):
        (stage,) = train.stages(replace(config, method="preload", objective_half=half), num_images=256)
        assert stage.task.objective is objective


def test_stage_one_has_numbers_of_its_own_and_stage_two_the_configurations():
    init = run.InitArgs(epochs=3, ood_weight=0.25, optimizer=OptimizerArgs(learning_rate=0.5, weight_decay=0.125))
    config = run.resolve(
        Args(method="preload_ft", epochs=7, ood_weight=4.0, optimizer=OptimizerArgs(learning_rate=2.0), init=init)
    )
    first, second = train.stages(config, num_images=256)
    assert (first.trainable, second.trainable) == ("ood_head", "all")
    assert (first.plan.epochs, second.plan.epochs) == (3, 7)
    assert [stage.hyper.objective for stage in (first, second)] == [{"ood_weight": 0.25}, {"ood_weight": 4.0}]
    assert (first.hyper.learning_rate, second.hyper.learning_rate) == (0.5, 2.0)
    assert (first.hyper.weight_decay, second.hyper.weight_decay) == (0.125, config.optimizer.weight_decay)


def test_a_start_that_trained_on_this_runs_validation_images(root):
    results_of(root, "standard")
    args = Args(method="oe_ft", root=root, run_dir=root / "leak", validation="train", epochs=1, quiet=True)
    with pytest.raises(UserError, match="was trained with --validation=test, this run has --validation=train"):
        run.main(args)


def test_a_start_of_another_method(root, tmp_path):
    results_of(root, "preload")
    args = Args(method="oe_ft", root=root, run_dir=tmp_path, start=root / "digits" / "preload" / "seed0", quiet=True)
    with pytest.raises(UserError, match="holds preload on digits; oe_ft needs the run of standard on digits"):
        run.main(args)


def test_overwrite_removes_what_the_old_network_left(root, tmp_path):
    args = Args(root=root, run_dir=tmp_path / "run", epochs=1, quiet=True, shift="rotation", shift_images=20)
    assert run.main(args) == 0
    assert (tmp_path / "run" / "shift_rotation.json").exists()
    assert run.main(replace(args, overwrite=True, shift=None)) == 0
    assert not (tmp_path / "run" / "shift_rotation.json").exists()


def test_a_run_begins_without_what_is_left_of_another_network(tmp_path):
    args = Args(root=tmp_path, run_dir=tmp_path / "run", epochs=1, quiet=True, shift="rotation", shift_images=20)
    assert run.main(args) == 0
    (tmp_path / "run" / "results.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert run.main(replace(args, max_steps=1, shift=None)) == 0
    assert not (tmp_path / "run" / "shift_rotation.json").exists()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stopped_run_says_whether_it_had_begun_to_overwrite(root, tmp_path, capsys, monkeypatch, when):
    folder = tmp_path / "run"
    args = Args(root=root, run_dir=folder, max_steps=2)
    assert run.main(args) == 0
    capsys.readouterr()

    def stopped(*_, **__):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(workflow, "describe" if when == "before" else "warn_if_all_ood", stopped)
    monkeypatch.setattr(sys, "argv", ["run", "--max-steps=3", f"--run-dir={folder}", "--overwrite"])
    assert run.main(replace(args, max_steps=3, overwrite=True)) == 143
    again = capsys.readouterr().err.splitlines()[-1]
    assert again.endswith(f"--run-dir={folder}" + " --overwrite" * (when == "before"))
    assert (folder / "results.json").exists() == (when == "before")
