"""Shifts in the grid: which are possible here, going on within an evaluation, Figure 3 and its table."""

import builtins
import json
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.cli.display import Display
from experiments.evaluate import shift as shift_report
from experiments.figures import pictures as drawing
from experiments.paper import command as paper
from experiments.paper import grid
from experiments.paper.command import Args
from experiments.paper.grid import Job
from experiments.run import command as run
from experiments.runs import collected, configuration, recipes, records
from experiments.runs import folder as runs
from experiments.tables import cells
from experiments.tables import command as tables
from preload_jax import methods
from preload_jax.data import datasets, shift
from preload_jax.data.catalogue import CORRUPTIONS
from preload_jax.data.preparing.prepare import prepare
from preload_jax.data.splits import Arrays
from preload_jax.devices import forward
from preload_jax.errors import UserError
from tests import published_files
from tests.experiments.results_for_tests import results, write

NUM_LEVELS = len(CORRUPTIONS) * len(shift.SEVERITIES)


@pytest.fixture
def prepared(tmp_path):
    """A data folder with a CIFAR-10-C of two images a level, of classes 0 and 1."""
    published_files.cifar10_c(tmp_path / "CIFAR-10-C", n=2)
    prepare("cifar10_c", data_dir=tmp_path / "data", source=tmp_path, check_sizes=False)
    return tmp_path / "data"


def predict(model, variables, images, **options):
    """In place of a WideResNet, which takes six seconds a level: says of every image that it is of class 0."""
    return np.tile(9.0 * np.eye(1, 10, dtype=np.float32), (len(images), 1)), None


@pytest.fixture
def network(monkeypatch):
    """A trained CIFAR-10 network, with four test images."""

    def load_run(path, *, on_damaged):
        config = recipes.get(datasets.get("cifar10"), "nc")
        return SimpleNamespace(
            dir=runs.RunDir(path), config=config, method=methods.get("nc"), model=None, variables=None
        )

    splits = SimpleNamespace(test=Arrays(published_files.random_images(4, (32, 32, 3)), np.zeros(4, np.int32)))
    monkeypatch.setattr(forward, "predict", predict)
    monkeypatch.setattr(runs, "load_run", load_run)
    monkeypatch.setattr(datasets, "load", lambda *arguments, **options: splits)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder with a finished CIFAR-10 run."""
    folder = write(tmp_path / "runs", results("cifar10", "nc", ood={"svhn": 0.1}))
    config = run.resolve(run.Args(dataset="cifar10", method="nc"))
    runs.write_json(folder / "config.json", configuration.as_dict(config))
    # No compiled programs in the user's folder.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")
    return tmp_path / "runs"


def command(root, data_dir, **options):
    return paper.main(Args(dataset="cifar10", method="nc", seeds="0", root=root, data_dir=data_dir, **options))


@pytest.mark.usefixtures("network")
def test_the_published_corruptions_go_through_the_grid(root, prepared, capsys):
    assert command(root, prepared) == 0
    out, err = capsys.readouterr()
    assert "1 done, 1 were finished, 0 failed" in out
    assert f"python -m experiments.figures --figure=shift --root={root}" in err
    folder = Job("cifar10", "nc", 0).run_dir(root).path
    report = json.loads((folder / "shift_cifar10_c.json").read_text())
    there = [(row["kind"], row["level"]) for row in report["levels"]]
    assert there == [(kind, severity) for kind in CORRUPTIONS for severity in shift.SEVERITIES]
    assert {row["accuracy"] for row in report["levels"]} == {0.5}
    assert not (folder / "shift_cifar10_c.jsonl").exists()

    report.pop("digest")
    levels = [{**row, "accuracy": 0.25} for row in report["levels"]]
    records.write(folder / "shift_cifar10_c.json", {**report, "levels": levels})
    assert command(root, prepared) == 0
    assert "0 done, 2 were finished" in capsys.readouterr().out
    again = json.loads((folder / "shift_cifar10_c.json").read_text())
    assert {row["accuracy"] for row in again["levels"]} == {0.25}

    table = cells.build(cells.MEASURES["shift_ece"], collected.collect(root), methods=["nc", "oe"])
    assert [row.ood for row in table.rows] == [f"CIFAR-10-C, severity {level}" for level in shift.SEVERITIES]
    assert table.rows[0].cells["nc"].ours.mean == pytest.approx(0.5, abs=0.01)
    assert table.rows[0].cells["oe"].why == "not run"
    request = drawing.Request(root=root, output=root / "pictures", datasets=(), methods=(), seed=0, data_dir=None)
    (picture,) = drawing.draw(request, names=("shift",), asked=True)
    assert picture.name == "figure3_cifar10_c.png"


@pytest.mark.usefixtures("network")
def test_corruptions_made_here_take_the_place_of_files_that_are_not_prepared(root, tmp_path, capsys, monkeypatch):
    # The package itself is tested with the library's shifts.
    fake = SimpleNamespace(corrupt=lambda image, *, corruption_name, severity, seed=0: image // severity)
    monkeypatch.setitem(sys.modules, "imagecorruptions", fake)
    assert command(root, tmp_path / "data", shift_images=2) == 0
    out, err = capsys.readouterr()
    assert "1 done, 1 were finished, 0 failed" in out
    assert "--dataset=cifar10_c" in err
    assert "until then cifar10 is evaluated under corruptions made here" in err
    report = json.loads((Job("cifar10", "nc", 0).run_dir(root).path / "shift_corruptions.json").read_text())
    assert (len(report["levels"]), report["num_images"], report["levels"][0]["size"]) == (NUM_LEVELS, 2, 2)


@pytest.mark.usefixtures("network")
def test_a_shift_that_is_not_possible_is_left_out_with_a_line(root, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "imagecorruptions", None)
    assert command(root, tmp_path / "data") == 0
    out, err = capsys.readouterr()
    assert "0 done, 1 were finished, 0 failed" in out
    assert "left out 1 evaluations of cifar10 under cifar10_c: cifar10_c is not prepared" in err
    assert "can't be made in its place: making corruptions needs the package imagecorruptions-imaug" in err
    with pytest.raises(UserError, match="cifar10_c is not prepared"):
        command(root, tmp_path / "data", shift="cifar10_c")
    # One that was evaluated where it was possible counts as finished.
    (Job("cifar10", "nc", 0).run_dir(root).path / "shift_cifar10_c.json").write_text("{}")
    assert command(root, tmp_path / "data", list=True) == 0
    assert "0 of 2 to do" in capsys.readouterr().out


def test_a_named_shift_is_left_out_where_it_has_other_classes(root, prepared, capsys):
    args = Args(dataset="digits,cifar10", method="nc", seeds="0", shift="cifar10_c", list=True, json=True, root=root)
    assert paper.main(Args(**{**vars(args), "data_dir": prepared})) == 0
    out, err = capsys.readouterr()
    assert "left out 1 evaluations of digits under cifar10_c: --shift=cifar10_c has the classes of cifar10" in err
    listed = json.loads(out)["cells"]
    assert [(cell["dataset"], cell["shift"], cell["state"]) for cell in listed] == [
        ("digits", None, "to do"),
        ("cifar10", None, "finished"),
        ("cifar10", "cifar10_c", "to do"),
    ]


@pytest.mark.usefixtures("network")
def test_an_evaluation_goes_on_where_it_stopped(root, prepared, monkeypatch):
    run_dir, options = Job("cifar10", "nc", 0).run_dir(root), {"data_dir": prepared, "display": Display(quiet=True)}
    so_far, really, lines = run_dir.path / "shift_cifar10_c.jsonl", open, []

    def stopping_open(file, mode="r", *args, **given):
        if mode == "a" and os.path.basename(file) == so_far.name:
            lines.append(1)
            if len(lines) == 8:
                raise KeyboardInterrupt
        return really(file, mode, *args, **given)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", stopping_open)
        with pytest.raises(KeyboardInterrupt):
            shift_report.obtain(run_dir, "cifar10_c", **options)
    # Marked, to see that they are not evaluated again.
    kept = [json.loads(line) for line in so_far.read_text().splitlines()]
    for row in kept:
        row.pop("digest")
    of_one_image = {**kept[0], "kind": CORRUPTIONS[-1], "num_images": 1}
    so_far.write_text("".join(records.line({**row, "accuracy": 0.25}) for row in [*kept, of_one_image]))
    with open(so_far, "a") as file:
        file.write('{"kind": "gaus')  # killed while it wrote
    report = shift_report.obtain(run_dir, "cifar10_c", **options)
    assert [row["accuracy"] for row in report["levels"]] == [0.25] * 7 + [0.5] * (NUM_LEVELS - 7)
    # Levels of another number of images are of no use, and a full report is not lost to a smaller one.
    with pytest.raises(UserError, match="is of all test images, more than --shift-images=1"):
        shift_report.obtain(run_dir, "cifar10_c", num_images=1, **options)
    (run_dir.path / "shift_cifar10_c.json").write_text(json.dumps({**report, "num_images": 1}))
    report = shift_report.obtain(run_dir, "cifar10_c", **options)
    assert [row["accuracy"] for row in report["levels"]] == [0.5] * NUM_LEVELS
    run_dir.clear()
    assert not list(run_dir.path.glob("shift*"))


def test_cost_of_a_shift_grows_with_its_images():
    (cell,) = (cell for cell in paper.plan(Args(dataset="cifar10", method="nc", seeds="0")) if cell.shift)
    full, tenth = (grid.seconds([cell], accelerator=False, shift_images=n) for n in (None, 1_000))
    assert tenth == pytest.approx(full / 10)


def test_no_table_of_shifts_without_evaluations(tmp_path, capsys):
    write(tmp_path, results())
    with pytest.raises(UserError, match="no run was evaluated under shift"):
        tables.main(tables.Args(root=tmp_path, table="shift_ece"))
    assert tables.main(tables.Args(root=tmp_path)) == 0
    assert "shift" not in capsys.readouterr().out
    (tmp_path / "digits" / "preload" / "seed0" / "shift_rotation.json").write_text("{}")
    with pytest.raises(UserError, match=r"shift_rotation\.json is damaged"):
        tables.main(tables.Args(root=tmp_path))
