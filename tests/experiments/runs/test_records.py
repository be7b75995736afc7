"""Files of a run: damage is noticed, whatever it is; what earlier versions wrote is still read."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from experiments.evaluate import report
from experiments.runs import collected, configuration, epochs, gaussians, recipes, records, results
from experiments.runs.run_dir import RunDir
from experiments.tables import cells, render, setups
from preload_jax.data import datasets
from preload_jax.errors import UserError
from tests.experiments import results_for_tests

_CONFIG = recipes.get(datasets.get("digits"), "preload_ft")
_LEVELS = [{"kind": "rotation", "level": 15, **results_for_tests.results()["in_domain"]}]
_REPORT = {"shift": "rotation", "label": "rotated", "num_images": None, "levels": _LEVELS}
_EPOCHS = [
    {"stage": 0, "epoch": i, "step": 10 * i, "loss": 1 / (i + 1), "accuracy": 0.1 * i, "learning_rate": 1e-3 / (i + 1)}
    for i in range(6)
]


def flips(content: bytes, *, seed: int, number: int = 200):
    """The content with one bit flipped, again and again."""
    for bit in np.random.default_rng(seed).choice(8 * len(content), number, replace=8 * len(content) < number):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << (bit % 8)
        yield bytes(changed)


@pytest.fixture
def run_dir(tmp_path):
    made = RunDir(tmp_path)
    made.write_config(_CONFIG)
    records.write(made.results, results_for_tests.results(method="preload_ft"))
    records.write(tmp_path / "shift_rotation.json", _REPORT)
    return made


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("results.json", lambda path: results.read(path)),
        ("config.json", lambda path: RunDir(path.parent).read_config()),
        ("shift_rotation.json", lambda path: collected.read_shift(path)),
    ],
)
def test_a_flipped_bit_is_noticed_or_harmless(run_dir, name, read):
    path = run_dir.path / name
    content, right = path.read_bytes(), read(path)
    said = []
    for changed in flips(content, seed=1):
        path.write_bytes(changed)
        try:
            assert read(path) == right
        except UserError as error:
            said.append(str(error))
    assert len(said) > 100
    assert all(str(path) in line and "\n" not in line for line in said)


def test_a_flipped_bit_of_an_epoch_costs_no_other_epoch(tmp_path):
    path = tmp_path / "metrics.jsonl"
    content = "".join(records.line(line) for line in _EPOCHS).encode()
    for changed in flips(content, seed=2):
        path.write_bytes(changed)
        said = []
        epochs.keep(path, up_to=100, warn=said.append)
        left, damaged = records.lines(path.read_bytes(), epochs.is_epoch)
        assert not damaged
        assert all(line in _EPOCHS for line in left)
        # A flipped newline makes one line of two.
        assert len(left) >= len(_EPOCHS) - 2
        assert bool(said) == (len(left) < len(_EPOCHS))


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_of_a_truncated_file_every_whole_line_is_kept(tmp_path, cut):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes("".join(records.line(line) for line in _EPOCHS).encode()[:-cut])
    said = []
    epochs.keep(path, up_to=100, warn=said.append)
    kept = [json.loads(line)["epoch"] for line in path.read_text().splitlines()]
    assert kept == [0, 1, 2, 3, 4, 5][: None if cut == 1 else 5]
    assert len(said) == (cut != 1)


@pytest.mark.parametrize(
    "junk", [b"\xff\xfe\x00", b"[" * 100_000, b"null", b"{}", b'{"step": "3"}', b"\x85", b"1" * 9999]
)
def test_any_bytes_between_good_lines_cost_none_of_them(tmp_path, junk):
    path = tmp_path / "metrics.jsonl"
    lines = [records.line(line).encode() for line in _EPOCHS]
    path.write_bytes(b"".join(lines[:2]) + junk + b"\n" + b"".join(lines[2:]))
    said = []
    epochs.keep(path, up_to=30, warn=said.append)
    assert path.read_bytes() == b"".join(lines[:4])
    assert said == [f"{path}: left out damaged lines (3); the other epochs are kept"]


@pytest.mark.parametrize("number", ["1e999", "-1e400", "NaN", "Infinity", "[2.5e999]", '{"a": 1e309}', "9" * 9999])
@pytest.mark.parametrize("name", ["config.json", "results.json", "shift_rotation.json"])
def test_a_number_that_cannot_be_kept_is_damage(run_dir, name, number):
    read = {"config.json": lambda path: RunDir(path.parent).read_config(), "results.json": results.read}
    path = run_dir.path / name
    path.write_text(path.read_text().replace("{", '{"seed": ' + number + ",", 1))
    with pytest.raises(UserError) as error:
        read.get(name, collected.read_shift)(path)
    assert str(error.value).startswith(f"{path} is not valid JSON (")
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("number", ["1e999", "-1e400", "[2.5e999]"])
def test_such_a_line_is_a_damaged_one(tmp_path, number):
    path, said = tmp_path / "metrics.jsonl", []
    lines = [records.line(line) for line in _EPOCHS]
    path.write_text(lines[0] + lines[1].replace('"loss": 0.5', f'"loss": {number}') + lines[2])
    epochs.keep(path, up_to=30, warn=said.append)
    assert path.read_text() == lines[0] + lines[2]
    assert said == [f"{path}: left out damaged lines (2); the other epochs are kept"]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.json", lambda run: run.read_config()),
        ("results.json", lambda run: run.read_results()),
        ("scores.npz", lambda run: run.read_scores()),
        ("metrics.jsonl", lambda run: epochs.keep(run.metrics, up_to=3)),
        ("shift_rotation.json", lambda run: collected.read_shift(run.path / "shift_rotation.json")),
        ("rule.json", lambda run: records.read(run.rule, advice="")),
        ("ddu.npz", lambda run: gaussians.read(run.ddu)),
        ("setup.toml", lambda run: setups._said(run.path / "setup.toml")),
    ],
)
def test_a_pipe_in_place_of_a_file_is_refused(run_dir, name, read):
    path = run_dir.path / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(UserError) as error:
        read(run_dir)
    expected = "not a regular file; expected a plain file: move it away, or give another path"
    assert str(error.value) == f"{path}: {expected}"


def test_epochs_of_earlier_versions_are_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({k: v for k, v in e.items() if k != "learning_rate"}) + "\n" for e in _EPOCHS))
    said = []
    epochs.keep(path, up_to=20, warn=said.append)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 10, 20]
    assert not said


def test_writing_has_one_form(tmp_path):
    values = results_for_tests.results()
    for name, order in (("a", values), ("b", dict(reversed(values.items())))):
        records.write(tmp_path / name, order)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.write(tmp_path / "c", {"a": math.nan})
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("value", [95.0, -0.1, "0.5", None])
def test_impossible_metrics_of_detectors_and_shifts_are_damage(tmp_path, value):
    detectors, shift = tmp_path / "detectors.json", tmp_path / "shift_rotation.json"
    records.write(detectors, {"detectors": {"msp": {"ood": {"photo": {"auroc": value}}}}})
    records.write(shift, {**_REPORT, "levels": [{**_LEVELS[0], "accuracy": value}]})
    for read, path in ((collected.read_detectors, detectors), (collected.read_shift, shift)):
        with pytest.raises(UserError, match="is damaged"):
            read(path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 100_000, b"[]", b"3", b'"x"', b"null", b"9" * 9999])
@pytest.mark.parametrize("name", ["results.json", "config.json", "shift_rotation.json"])
def test_any_bytes_are_one_clear_line(run_dir, content, name):
    (run_dir.path / name).write_bytes(content)
    read = {
        "results.json": run_dir.read_results,
        "config.json": run_dir.read_config,
        "shift_rotation.json": lambda: collected.collect(run_dir.path),
    }[name]
    with pytest.raises(UserError, match=r"is not valid JSON|is damaged"):
        read()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("epochs", "10"), ("epochs", 1.5), ("epochs", None), ("epochs", True), ("seed", {}), ("method", 3)),
        *(("optimizer", "adam"), ("optimizer", {"learning_rate": "x"}), ("ood_weight", 10**400), ("data", [])),
        *(("dataset", None), ("start", 3), ("max_steps", "no"), ("init", None), ("objective_half", 1), ("epochs", 0)),
        ("data", {"name": "digits"}),
    ],
)
def test_a_configuration_of_another_shape_is_one_clear_line(tmp_path, field, value):
    values = configuration.as_dict(_CONFIG) | {field: value}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(UserError) as error:
        RunDir(tmp_path).read_config()
    assert "\n" not in str(error.value)


def test_what_earlier_versions_wrote_is_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(configuration.as_dict(_CONFIG)))
    assert RunDir(tmp_path).read_config() == _CONFIG
    for path in sorted(Path("results").glob("**/results.json")):
        assert results.read(path)["in_domain"]["size"] > 0
    assert {"digits", "mnist", "fashion_mnist", "cifar10"} <= set(collected.collect(Path("results")).datasets())


def test_what_was_read_can_be_shown_in_every_table(tmp_path):
    values = results_for_tests.results()
    records.write(tmp_path / "results.json", values)
    read = RunDir(tmp_path).read_results()
    assert list(read["ood"]) == sorted(values["ood"])
    shown = report.table(read)
    assert shown == report.table(values)
    collection = collected.collect(tmp_path)
    for measure in cells.MEASURES.values():
        render.terminal(cells.build(measure, collection, methods=("preload",)))


def test_a_newer_format_is_not_called_damaged(tmp_path):
    path = tmp_path / "a.json"
    records.write(path, {"a": 1})
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(
        UserError, match=r"a\.json is of format 3, this version reads formats up to 2: update preload_jax"
    ):
        records.read(path, advice="delete it")
