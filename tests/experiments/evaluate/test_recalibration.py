"""`evaluate --recalibrate`: fitted to half of the validation images, numbers, guarantees, table, figure, wrong use."""

import json

import matplotlib.image
import numpy as np
import pytest

from experiments.cli.display import Display
from experiments.evaluate import command as evaluate
from experiments.evaluate import recalibration as commanded
from experiments.runs import trained
from experiments.runs.data import load_splits
from preload_jax import guarantees, metrics, models, recalibration
from preload_jax.devices import forward
from preload_jax.errors import UserError
from tests.experiments import runs_for_tests
from tests.experiments.runs_for_tests import command


def ask(*options, status=0):
    assert runs_for_tests.ask(evaluate, *options) == status


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recalibrate") / "preload"
    assert command(folder, "--epochs=10", "--outliers=uniform", "--quiet") == 0
    return folder


@pytest.fixture(scope="module")
def network(run):
    display = Display(quiet=True, json=False)
    return trained.read(run, None, dataset=None, method=None, recipe=None, display=display)


@pytest.fixture(scope="module")
def splits(network):
    return load_splits(network.config, data_dir=None)


def test_the_halves_share_no_image_and_every_class(splits):
    fitting, rest = commanded.halves(splits)
    assert (len(fitting), len(rest.validation)) == (50, 50)
    assert rest.test is splits.test
    both = np.concatenate([fitting.images, rest.validation.images]).reshape(100, -1)
    whole = splits.validation.images.reshape(100, -1)
    np.testing.assert_array_equal(np.unique(both, axis=0), np.unique(whole, axis=0))
    difference = np.bincount(fitting.labels, minlength=10) - np.bincount(rest.validation.labels, minlength=10)
    assert np.abs(difference).max() <= 2
    again, _ = commanded.halves(splits)
    np.testing.assert_array_equal(again.images, fitting.images)


def test_the_numbers_are_the_librarys(run, network, splits, tmp_path, capsys):
    figure = tmp_path / "reliability.png"
    ask(f"--run={run}", "--ood=uniform", "--recalibrate=all", f"--figure={figure}", "--json", "--quiet")
    results = json.loads(capsys.readouterr().out)
    found = results["recalibration"]
    # 50 images are too few for the rule, which may not have those that the maps were fitted to.
    assert (found["fitted_to"], found["tested_on"], results["rule"]) == (50, 400, None)
    assert results["validation"]["size"] == 50
    rows = found["methods"]
    assert list(rows) == ["none", *recalibration.TABLE]
    for name in ("accuracy", "ece", "brier", "log_likelihood", "mmc"):
        assert rows["none"][name] == pytest.approx(results["in_domain"][name], abs=1e-6)
    bound = guarantees.confidence_bound(
        network.variables["params"]["head"], nonnegative=True, **models.head_options(network.model.head)
    )
    assert rows["none"]["largest_log_odds"] == pytest.approx(bound.log_odds.max(), rel=1e-9)
    fitting, rest = commanded.halves(splits)
    logits, asked = (forward.predict(network.model, network.variables, x.images)[0] for x in (fitting, rest.test))
    for name in recalibration.TABLE:
        fitted = recalibration.fit(name, logits, fitting.labels, has_ood_class=True)
        assert rows[name]["record"] == fitted.record()
        p = np.asarray(fitted.probabilities(asked))[:, :10]
        assert rows[name]["ece"] == pytest.approx(metrics.expected_calibration_error(p, rest.test.labels), abs=1e-5)
        assert rows[name]["ece_low"] <= rows[name]["ece"] <= rows[name]["ece_high"]
        assert rows[name]["adaptive_ece"] == metrics.adaptive_calibration_error(p, rest.test.labels)
        assert rows[name]["safe_radius"] > 0.0
        assert p.max() <= rows[name]["largest_confidence"] * (1 + 1e-6)
    # z_c ≤ z_{K+1} does not depend on the temperature.
    assert rows["temperature"]["safe_radius"] == pytest.approx(rows["none"]["safe_radius"], rel=1e-6)
    assert rows["temperature"]["accuracy"] == rows["none"]["accuracy"]
    assert matplotlib.image.imread(figure).std() > 0.1


def test_the_table_says_what_was_done(run, capsys):
    ask(f"--run={run}", "--ood=uniform", "--recalibrate=temperature,spline", "--quiet")
    text = capsys.readouterr().out
    assert "Recalibration of the classes, in percent" in text
    assert "as it is" in text
    assert "Dirichlet" not in text
    assert "Fitted to 50 validation images, tested on 400 test images." in " ".join(text.split())
    assert "Temperature: all logits over T = " in text


def test_what_cannot_be_fitted_is_left_out(network, splits):
    fitting, rest = commanded.halves(splits)
    fewer = fitting.take(np.flatnonzero(fitting.labels != 3))
    found, probabilities = commanded.of_network(
        ["vector", "spline"], network, fewer, rest.test, display=Display(quiet=True, json=False)
    )
    assert "class 3 of 10 has no example" in found["methods"]["vector"]["left_out"]
    assert list(probabilities) == ["none", "spline"]
    assert "Vector is left out: class 3 of 10 has no example" in " ".join(commanded.table(found).split())


def test_wrong_use(run, tmp_path, capsys):
    ask(f"--run={run}", f"--figure={tmp_path}/x.png", status=2)
    assert "--figure draws detectors or recalibrations; give one of" in capsys.readouterr().err
    both = ("--recalibrate=all", "--detectors=msp")
    ask(f"--run={run}", *both, f"--figure={tmp_path}/x.png", status=2)
    ask(f"--run={run}", "--recalibrate=,", status=2)
    assert "--recalibrate=, names none; expected all, or some of" in capsys.readouterr().err
    ask(f"--run={run}", "--recalibrate=all", f"--export={tmp_path}/x.safetensors", status=2)
    assert "--recalibrate is of an evaluation, and --export makes none" in capsys.readouterr().err
    with pytest.raises(UserError, match="--recalibrate is of a network, and --features has none"):
        evaluate.main(evaluate.Args(features="a,b", recalibrate="all"))
