"""Reasons for a verdict, and the guaranteed rule, on the command line."""

import json

import numpy as np
import pytest
from PIL import Image

from experiments.predict import command as predict
from preload_jax.data import datasets
from tests.experiments import runs_for_tests
from tests.experiments.runs_for_tests import ask, command


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("why") / "certified"
    assert command(folder, "--method=preload_certified", "--epochs=40", "--outliers=uniform", "--quiet") == 0
    return folder


@pytest.fixture(scope="module")
def standard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("why") / "standard"
    assert command(folder, "--method=standard", "--epochs=15", "--quiet") == 0
    return folder


@pytest.fixture
def images(tmp_path):
    """A digit, the same far away, and one in 0 … 255 as floating point."""
    digit = datasets.load("digits").test.images[0]
    folder = tmp_path / "images"
    folder.mkdir()
    Image.fromarray(digit[..., 0]).save(folder / "digit.png")
    np.save(tmp_path / "far.npy", 1e4 * digit.astype(np.float32))
    np.save(tmp_path / "bytes.npy", digit.astype(np.float32))
    return folder, tmp_path / "far.npy", tmp_path / "bytes.npy"


def answers(capsys, run, *options):
    capsys.readouterr()  # of the training, where this is the first to ask
    assert ask(predict, f"--run={run}", *options, "--json", "--quiet") == 0
    return json.loads(capsys.readouterr().out)


def test_each_reason_is_said(run, images, capsys):
    digit, far, big = answers(capsys, run, *images)["images"]
    assert digit["image"].endswith("digit.png")
    assert (digit["is_ood"], digit["why"], digit["p_value"]) == (False, [], None)
    assert far["is_ood"]
    assert "the OOD class is the most probable of all" in far["why"]
    assert any("typical distances from the training data, beyond the certified" in reason for reason in far["why"])
    assert any(reason.startswith("its pixels run from 0 to ") for reason in big["why"])


@pytest.mark.parametrize("kind", ["run", "standard"])
def test_a_rule_with_a_guaranteed_rate(kind, images, capsys, request):
    network = request.getfixturevalue(kind)
    found = answers(capsys, network, images[0], "--false-alarm-rate=0.05")
    (digit,) = found["images"]
    assert 0.05 < digit["p_value"] <= 1
    assert not digit["is_ood"]
    assert "with 95 % confidence at most 5 % of in-domain images are" in found["rule"]
    test = datasets.load("digits").test.images
    np.save(images[0].parent / "test.npy", test)
    rows = answers(capsys, network, images[0].parent / "test.npy", "--false-alarm-rate=0.1")["images"]
    # Test images are in-domain, too: of 0.1, three standard errors of 400 images.
    assert np.mean([row["is_ood"] for row in rows]) <= 0.1 + 3 * np.sqrt(0.09 / len(rows))
    assert ask(predict, f"--run={network}", images[0], "--false-alarm-rate=0.05", "--quiet") == 0
    assert "p-value" in capsys.readouterr().out


def test_a_score_below_the_threshold_is_said(standard, images, tmp_path, capsys):
    np.save(tmp_path / "grey.npy", np.full((8, 8, 1), 90, np.uint8))
    (grey,) = answers(capsys, standard, tmp_path / "grey.npy", "--false-alarm-rate=0.3")["images"]
    assert grey["is_ood"]
    assert any(reason.startswith("the score is below ") for reason in grey["why"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--false-alarm-rate=0", "--false-alarm-rate must lie between 0 and 1, both excluded, got 0.0"),
        ("--false-alarm-rate=1e-4", "takes at least 29956: hold out more, or promise"),
    ],
)
def test_rates_that_cannot_be_promised(run, images, option, message, capsys):
    assert ask(predict, f"--run={run}", images[0], option, "--quiet") == 2
    assert message in runs_for_tests.errors(capsys)[-1]
