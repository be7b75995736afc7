"""`certify --detectors`: shares by detector, agreement with the network far out, figure, wrong use."""

import json

import jax
import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest

from experiments.certify import command as certify
from experiments.certify import detectors as by_detector
from experiments.runs import folder
from preload_jax import detectors
from preload_jax.data import datasets
from tests.experiments import runs_for_tests
from tests.experiments.runs_for_tests import ask, command

FEW = ("--num-directions=300", "--num-rays=0")


@pytest.fixture(scope="module", params=["standard", "preload", "preload_certified"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("far") / request.param
    outliers = () if request.param == "standard" else ("--outliers=uniform",)
    assert command(folder, f"--method={request.param}", "--epochs=8", *outliers, "--quiet") == 0
    return folder


def test_shares_agree_with_the_network_far_out(run, capsys):
    capsys.readouterr()
    assert ask(certify, f"--run={run}", "--detectors=all", "--json", "--quiet", *FEW) == 0
    found = json.loads(capsys.readouterr().out)["detectors"]
    assert set(found) == set(detectors.TABLE)
    assert "is not derived" in found["gram"]["left_out"]
    for name in ("msp", "entropy", "gen", "odin"):
        assert found[name]["ood"] == 0.0
    for name in ("mahalanobis", "ddu", "she_euclidean"):
        assert found[name]["ood"] == 1.0
    loaded = folder.load_run(run)
    if run.name != "standard":
        assert found["preload"]["ood"] == 1.0
        assert found["preload"]["undecided"] == 0
    digits = datasets.load("digits")
    directions = jax.random.normal(jax.random.key(0), (300, 8, 8, 1))
    far = detectors.outputs(loaded.model, loaded.variables, np.asarray(jnp.float32(1e6) * directions))
    train = detectors.outputs(loaded.model, loaded.variables, digits.train.images)
    head = tuple(np.asarray(loaded.variables["params"]["head"]["linear"][name]) for name in ("kernel", "bias"))
    for name in ("energy", "knn", "vim", "fdbd", "react"):
        detector = detectors.fit(name, train, digits.train.labels, head=head, num_classes=10)
        share = np.mean(detectors.score(detector, far) < found[name]["threshold"])
        assert found[name]["ood"] == pytest.approx(share, abs=0.01), name
    figure = matplotlib.image.imread(run / "figures" / "detectors_far_away.png")
    assert figure.std() > 0.05
    # What is written is what is printed.
    assert json.loads((run / "certificate.json").read_text())["detectors"] == found


def test_the_table_names_the_rule(run, capsys):
    assert ask(certify, f"--run={run}", "--detectors=msp,knn,rankfeat", "--quiet", *FEW) == 0
    text = capsys.readouterr().out
    assert "Called OOD as t → ∞, of 300 random directions" in text
    assert "never called OOD" in text
    assert "RankFeat was left out" in text
    assert ask(certify, f"--run={run}", "--detectors=,", "--quiet") == 2
    assert "names none; expected all, or some of" in runs_for_tests.errors(capsys)[-1]


def test_what_was_computed_is_shown_where_nothing_can_be_written(run, capsys, monkeypatch):
    runs_for_tests.full_disk(monkeypatch)
    capsys.readouterr()
    assert ask(certify, f"--run={run}", "--detectors=msp", "--json", "--quiet", *FEW) == 2
    shown, said = capsys.readouterr()
    assert said.startswith("error: no space left on the device")
    assert json.loads(shown)["detectors"]["msp"]["ood"] == 0.0


def test_what_is_undecided_is_counted_not_guessed():
    found = {
        "knn": {"rule": "direction", "ood": None, "undecided": 3, "threshold": 0.0},
        "msp": {"rule": "never", "ood": 0.0, "undecided": 0, "threshold": 0.0},
    }
    text = by_detector.table(found, num_directions=3)
    assert "– (3 undecided)" in text
    assert by_detector.draw(found, title="x") is not None
