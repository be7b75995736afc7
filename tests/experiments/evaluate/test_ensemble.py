"""`--ensemble`: mean probabilities of several runs, in `evaluate` and `predict`, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from experiments.cli.display import Display
from experiments.evaluate.command import Args, main
from experiments.runs import ensembles, trained
from experiments.runs.data import load_splits
from preload_jax.devices import forward
from preload_jax.errors import UserError
from tests.experiments.runs_for_tests import command


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two runs of a step or two, which differ in the seed."""
    root = tmp_path_factory.mktemp("ensemble")
    for seed in (0, 1):
        assert command(root / f"seed{seed}", "--method=standard", "--max-steps=20", f"--seed={seed}", "--quiet") == 0
    return [str(root / f"seed{seed}") for seed in (0, 1)]


def test_it_is_the_mean_of_the_runs(folders, capsys):
    display = Display(quiet=True)
    together = ensembles.read(folders, display=display)
    own = [trained.read(Path(path), None, dataset=None, method=None, recipe=None, display=display) for path in folders]
    images = load_splits(together.config, data_dir=None).test.images[:50]
    found = forward.predict(together.model, together.variables, images)[0]
    mean = np.mean([softmax(forward.predict(each.model, each.variables, images)[0], axis=1) for each in own], axis=0)
    np.testing.assert_allclose(np.exp(found), mean, rtol=1e-4, atol=1e-7)
    assert together.run_dir is None
    capsys.readouterr()
    assert main(Args(ensemble=",".join(folders), ood="smooth", detectors="ddu,react", json=True)) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["ensemble"] == folders
    assert 0.0 < results["ood"]["smooth"]["fpr95"] < 1.0
    # A detector of the features of both networks, and one that needs a head, of which there are two.
    assert "ood" in results["detectors"]["ddu"]
    assert "head" in results["detectors"]["react"]["left_out"]


def test_other_runs_are_refused(folders, monkeypatch):
    display, read = Display(quiet=True), trained.read
    networks = {
        path: read(Path(path), None, dataset=None, method=None, recipe=None, display=display) for path in folders
    }
    monkeypatch.setattr(trained, "read", lambda path, *rest, **options: networks[str(path)])
    second = networks[folders[1]]
    for change, message in (
        ({"validation": "train"}, "differs in --validation: train, and .* has test"),
        ({"data": {"class_names": tuple("abcdefghij")}}, "differs in classes: .*'a'"),
        ({"data": {"image_shape": (8, 8, 3)}}, r"differs in shape of images: \[8, 8, 3\], and"),
    ):
        networks[folders[1]] = changed(second, **change)
        with pytest.raises(UserError, match=message):
            ensembles.read(folders, display=display)
    for path in folders:
        networks[path] = changed(networks[path] if path == folders[0] else second, method="ddu")
    with pytest.raises(UserError, match="a mean of probabilities, of which ddu has no score of its own"):
        ensembles.read(folders, display=display)


def changed(network, data=None, **config):
    spec = replace(network.spec, **(data or {}))
    return replace(network, spec=spec, config=replace(network.config, **config))


def test_a_copy_is_no_second_member_and_other_settings_are_told(folders, tmp_path, capsys):
    shutil.copytree(folders[0], tmp_path / "copy")
    with pytest.raises(UserError, match=f"{tmp_path}/copy holds the same network as {folders[0]}; a network that is c"):
        ensembles.read([*folders, str(tmp_path / "copy")], display=Display(quiet=True))
    assert command(tmp_path / "longer", "--method=standard", "--max-steps=21", "--seed=2", "--quiet") == 0
    capsys.readouterr()
    ensembles.read([folders[0], str(tmp_path / "longer")], display=Display(quiet=True))
    said = capsys.readouterr().err
    assert f"{tmp_path}/longer was not trained as {folders[0]} was: --max-steps 21 (there 20)" in said
    ensembles.read(folders, display=Display(quiet=True))
    assert capsys.readouterr().err == ""
