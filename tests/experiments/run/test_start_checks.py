"""Whether a trained network is what a run can start from."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.run import command as run
from experiments.run.command import Args
from experiments.run.start_checks import moved, require_fits
from preload_jax.errors import UserError


@pytest.fixture
def configs(tmp_path):
    """Of a run of OE-FT, and of the network that it starts from, on the user's own data."""
    labels = np.repeat([0, 1, 2], 20)
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), np.uint8)
    np.savez(tmp_path / "own.npz", images=images, labels=labels, class_names=["ant", "bee", "cow"])
    config = run.resolve(Args(dataset=str(tmp_path / "own.npz"), method="oe_ft", outliers="uniform"))
    return config, replace(config, method="standard")


@pytest.mark.parametrize("given", [False, True])
def test_another_spelling_of_the_same_data_is_the_same(configs, given, tmp_path, monkeypatch):
    config, there = configs
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for spelled in ("~/own.npz", "./own.npz", f"{tmp_path}/../{tmp_path.name}/own.npz"):
        require_fits(replace(there, dataset=spelled), config, of=tmp_path, given=given)
        assert moved(spelled, config.dataset) == ""


def test_own_data_may_have_moved_for_a_start_that_the_user_gave(configs, tmp_path):
    config, there = configs
    elsewhere = replace(there, dataset="folder:/on/another/machine")
    require_fits(elsewhere, config, of=tmp_path, given=True)
    assert moved(elsewhere.dataset, config.dataset) == (
        f"; it was trained on folder:/on/another/machine, which is taken for {config.dataset}: classes and image size"
        " are the same"
    )
    with pytest.raises(UserError, match="holds standard on folder:/on/another/machine; oe_ft needs the run"):
        require_fits(elsewhere, config, of=tmp_path, given=False)
    with pytest.raises(UserError, match="holds standard on mnist; oe_ft needs the run of standard"):
        require_fits(replace(there, dataset="mnist"), config, of=tmp_path, given=True)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("ant", "cow", "bee"), "in another order: its class 1 is cow, and here it is bee; labels would mean other cl"),
        (("ant", "bee", "dog"), "knows the classes ant, bee, dog, and .* has ant, bee, cow now; labels would mean"),
    ],
)
def test_other_classes_are_refused_wherever_the_data_are(configs, names, message, tmp_path):
    config, there = configs
    other = replace(there, dataset="folder:/on/another/machine", data=replace(there.data, class_names=names))
    with pytest.raises(UserError, match=message):
        require_fits(other, config, of=tmp_path, given=True)
