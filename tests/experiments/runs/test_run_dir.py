"""What is in a run's folder, damaged: scores.npz."""

import io

import numpy as np
import pytest

from experiments.figures import command as figures
from experiments.runs import collected, configuration, recipes, records
from experiments.runs.run_dir import RunDir
from preload_jax import metrics
from preload_jax.data import datasets
from preload_jax.errors import UserError
from tests.experiments.results_for_tests import results, write


def _flipped(content: bytes) -> bytes:
    """One bit of the numbers is another."""
    return content[:400] + bytes([content[400] ^ 1]) + content[401:]


def _saved(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


_SCORES = {"in_domain": np.arange(300.0), "photo": -np.arange(200.0, dtype=np.float32)}


def _results():
    """Of these scores."""
    found = results(ood={"photo": 0.0})
    found["ood"]["photo"] |= {"size": 200, "auroc": metrics.auroc(_SCORES["in_domain"], _SCORES["photo"])}
    return found


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (_flipped, "BadZipFile"),
        (lambda content: content[:3000], "BadZipFile"),
        (lambda content: b"", "EOFError"),
        (lambda content: b"not an archive", "ValueError"),
        (lambda content: content[:-10], "BadZipFile"),
        (lambda content: _saved(in_domain=_SCORES["in_domain"]), "no scores of photo"),
        (lambda content: _saved(photo=_SCORES["photo"]), "no scores of in_domain"),
        (lambda content: _saved(in_domain=np.full(3, np.nan), photo=_SCORES["photo"]), "no scores of in_domain"),
        (lambda content: _saved(in_domain=np.array(["a"]), photo=np.empty(0)), "no scores of in_domain, photo"),
        (lambda content: _saved(in_domain=np.array([{}]), photo=_SCORES["photo"]), "ValueError"),
        (lambda content: _saved(in_domain=np.ones((3, 2)), photo=np.arange(3)), "no scores of in_domain, photo"),
    ],
)
def test_damaged_scores_are_one_line(tmp_path, damage, expected):
    run_dir = RunDir(write(tmp_path, _results()))
    run_dir.scores.write_bytes(_saved(**_SCORES, other=np.ones(3)))
    assert {name: len(scores) for name, scores in run_dir.read_scores().items()} == {"in_domain": 300, "photo": 200}
    run_dir.scores.write_bytes(damage(run_dir.scores.read_bytes()))
    with pytest.raises(UserError) as caught:
        run_dir.read_scores()
    assert str(caught.value).startswith(f"{run_dir.scores} is damaged ({expected}")
    assert str(caught.value).endswith("; delete it and results.json, and run again")
    with pytest.raises(UserError, match="is damaged"):
        figures.main(figures.Args(root=tmp_path, output=tmp_path, figure="roc"))


@pytest.mark.parametrize(
    "other", [{"photo": -np.arange(199.0)}, {"photo": 300 - np.arange(200.0)}, {"in_domain": -np.arange(300.0)}]
)
def test_scores_of_another_run_are_refused(tmp_path, other):
    run_dir = RunDir(write(tmp_path, _results()))
    run_dir.scores.write_bytes(_saved(**{**_SCORES, **other}))
    with pytest.raises(UserError, match=r"scores.npz is of another run than results.json beside it: its scores do not"):
        run_dir.read_scores()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dataset": "mnist"}, "dataset 'mnist', and 'digits' there"),
        ({"method": "standard"}, "method 'standard', and 'preload' there"),
        ({"seed": 1}, "seed 1, and 0 there"),
        ({"recipe": "tuned"}, "recipe 'tuned', and 'paper' there"),
        ({"config_digest": "0" * 64}, "other settings than there"),
    ],
)
def test_results_of_another_run_are_refused(tmp_path, changes, expected):
    config = recipes.get(datasets.get("digits"), "preload")
    run_dir = RunDir(tmp_path)
    run_dir.write_config(config)
    whole = results(config_digest=records.digest(configuration.as_dict(config)))
    for known in (whole, results()):
        records.write(run_dir.results, known)
        assert run_dir.read_results()["method"] == "preload"
    records.write(run_dir.results, {**whole, **changes})
    for read in (run_dir.read_results, lambda: collected.collect(tmp_path)):
        with pytest.raises(UserError, match=f"results.json is of another run than config.json beside it: {expected}"):
            read()


def test_a_folder_that_is_not_there_is_said_to_be_with_what_is(tmp_path):
    for name in ("standard", "preload", ".hidden"):
        (tmp_path / "digits" / name).mkdir(parents=True)
    with pytest.raises(UserError) as refused:
        RunDir(tmp_path / "digits" / "standrd" / "seed0").read_config()
    assert str(refused.value) == (
        f"{tmp_path}/digits/standrd/seed0: no such folder (did you mean 'standard'?); {tmp_path}/digits holds preload,"
        " standard; expected the folder of a run"
    )
    with pytest.raises(UserError, match=r"standard/seed0: no such folder; .*/standard holds no folders; expected"):
        RunDir(tmp_path / "digits" / "standard" / "seed0").read_config()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file: a file, not a folder; expected the folder of a run"):
        RunDir(tmp_path / "file").read_config()
    with pytest.raises(UserError, match=r"no config.json in .*/digits: it is not the folder of a run"):
        RunDir(tmp_path / "digits").read_config()
