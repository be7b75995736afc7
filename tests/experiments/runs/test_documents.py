"""A run's files: every flipped bit is noticed or harmless, and what is wrong is said in one line."""

import json

import numpy as np
import pytest

from experiments.runs import collected, configuration, documents, recipes
from experiments.runs import folder as runs
from experiments.runs.folder import RunDir
from preload_jax.data import datasets
from preload_jax.errors import DataError, UserError
from tests.experiments.results_for_tests import results, write
from tests.formats.test_records import flips

CONFIG = recipes.get(datasets.get("digits"), "preload_ft")
SCORES = {"in_domain": np.linspace(0, 1, 50, dtype=np.float32), "photo": np.zeros(3, np.float32)}
SHIFT = {"shift": "rotation", "num_images": None, "levels": [{"kind": "rotation", "level": 15, "ece": 0.25}]}


@pytest.fixture
def run_dir(tmp_path):
    found = RunDir(tmp_path / "run")
    runs.write_json(found.config, configuration.as_dict(CONFIG))
    runs.write_json(found.results, results())
    runs.write_json(found.path / "shift_rotation.json", SHIFT)
    found.write_scores(SCORES)
    return found


READERS = {
    "config.json": lambda run_dir: configuration.as_dict(run_dir.read_config()),
    "results.json": lambda run_dir: run_dir.read_results(),
    "shift_rotation.json": lambda run_dir: collected.read_shift(run_dir.path / "shift_rotation.json"),
    "scores.npz": lambda run_dir: {name: scores.tolist() for name, scores in run_dir.read_scores().items()},
}


@pytest.mark.parametrize("name", READERS)
def test_200_flipped_bits_are_noticed_or_harmless(run_dir, name):
    path, expected, noticed = run_dir.path / name, READERS[name](run_dir), []
    for changed in flips(path.read_bytes(), count=200, seed=7):
        path.write_bytes(changed)
        try:
            assert READERS[name](run_dir) == expected
        except (UserError, DataError) as error:
            noticed.append(str(error))
    assert len(noticed) > 100
    assert all(str(path) in message and "\n" not in message for message in noticed)


@pytest.mark.parametrize("name", READERS)
def test_a_file_cut_anywhere(run_dir, name):
    path, whole = run_dir.path / name, (run_dir.path / name).read_bytes()
    for length in range(0, len(whole) - 1, 1 + len(whole) // 50):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=str(path)):
            READERS[name](run_dir)


def changed(**change):
    return json.dumps({**results(), **change})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed(in_domain={}), "in_domain.accuracy is missing, expected a finite number"),
        (changed(in_domain=None), "in_domain is null, expected a table of names"),
        (changed(ood={"photo": {"auroc": 0.5}}), "ood.photo.fpr95 is missing, expected a finite number"),
        (changed(ood={"photo": {"fpr95": "0.1", "auroc": 1, "aupr": 1, "mmc": 1}}), 'ood.photo.fpr95 is "0.1"'),
        (changed(ood=[]), "ood is [], expected a table of names"),
        (changed(seed="0"), 'seed is "0", expected a whole number'),
        (changed(dataset=["digits"]), "expected text"),
        (changed(ood_not_prepared="svhn"), "expected a list"),
        ("[]", "it holds list, expected a table of names"),
        ("{", "not valid JSON"),
        ("\x00", "not valid JSON"),
    ],
)
def test_results_that_are_not_what_they_should_be(run_dir, text, words):
    run_dir.results.write_text(text)
    for read in (run_dir.read_results, lambda: collected.read(run_dir.results)):
        with pytest.raises(UserError) as caught:
            read()
        assert words in str(caught.value)
        assert str(caught.value).startswith(f"{run_dir.results} is damaged (")
        assert str(caught.value).endswith("; delete it and run again")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": "ten"}, 'epochs is "ten", expected a whole number'),
        ({"optimizer": {"name": "adam", "learning_rate": None}}, "optimizer.learning_rate is null"),
        ({"seed": 0.5}, "seed is 0.5, expected a whole number"),
        ({"method": None}, "method is null, expected text"),
        ({"oe_class_mean": 1}, "oe_class_mean is 1, expected true or false"),
    ],
)
def test_configurations_with_values_of_other_kinds(run_dir, change, words):
    run_dir.config.write_text(json.dumps({**configuration.as_dict(CONFIG), **change}))
    with pytest.raises(UserError, match=words):
        run_dir.read_config()


def test_files_of_older_versions_are_read(run_dir):
    for path in (run_dir.config, run_dir.results):
        plain = {name: value for name, value in json.loads(path.read_text()).items() if name != "digest"}
        path.write_text(json.dumps(plain, indent=2))
    np.savez(run_dir.scores, **SCORES)
    assert run_dir.read_config() == CONFIG
    assert run_dir.read_results() == results()
    assert run_dir.read_scores().keys() == SCORES.keys()


def test_the_published_results_are_read(request):
    root = request.config.rootpath / "results"
    assert len(collected.collect(root).results) == 45


def test_the_same_run_writes_the_same_bytes(run_dir, tmp_path):
    other = RunDir(tmp_path / "other")
    runs.write_json(other.results, dict(reversed(results().items())))
    other.write_scores(dict(reversed(SCORES.items())))
    for name in ("results.json", "scores.npz"):
        assert (other.path / name).read_bytes() == (run_dir.path / name).read_bytes()


def test_a_missing_file_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"no results\.json in .*: the run is not finished"):
        RunDir(tmp_path).read_results()
    with pytest.raises(UserError, match=r"no a\.json in .*: look elsewhere"):
        documents.read(tmp_path / "a.json", {}, missing="look elsewhere", damaged="")


def test_a_damaged_file_among_others_is_named(tmp_path):
    folder = write(tmp_path, results())
    write(tmp_path, results(method="oe"))
    (folder / "results.json").write_text(changed(in_domain={}))
    with pytest.raises(UserError, match=r"preload/seed0/results\.json is damaged \(in_domain.accuracy is missing"):
        collected.collect(tmp_path)
