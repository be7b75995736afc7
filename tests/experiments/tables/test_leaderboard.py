"""The leaderboard: known means by group, order, origins and digests, set-ups, ensembles, detectors, wrong input."""

import hashlib
import re
import shlex

import pytest

from experiments import cli
from experiments.run import command as run
from experiments.runs import averages, collected, provenance, recipes, records
from experiments.tables import command as tables
from experiments.tables import leaderboard
from experiments.tables.command import Args
from preload_jax.data.specs import DATASETS
from preload_jax.errors import UserError
from tests.experiments.results_for_tests import results, write

SETS = {"fashion_mnist": 0.4, "emnist": 0.2, "uniform": 0.5, "smooth": 0.1, "faraway": 1.0, "faraway_rd": 0.0}


def rows(text):
    """The rows by their first cell, without bold; of a method those of the table, not where it comes from."""
    lines = [line for line in text.replace("**", "").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    found = {}
    for first, *others in cells:
        found.setdefault(first, others)
    return found


def test_means_over_groups_and_seeds(tmp_path):
    for seed, change in enumerate((-0.1, 0.1)):
        sets = {**SETS, "faraway": 0.9}
        write(tmp_path, results("mnist", "oe", seed, ood={name: abs(v + change) for name, v in sets.items()}))
    found = rows(leaderboard.page(tmp_path))
    # By seed: near (0.3 + 0.1) / 2, (0.5 + 0.3) / 2; far (0.4 + 0.0) / 2, (0.6 + 0.2) / 2; far away (0.8 + 0.1) / 2, …
    assert found["OE"][:6] == ["30.0±10.0", "90.0±0.0", "30.0±10.0", "90.0±0.0", "50.0±5.0", "90.0±0.0"]
    assert found["OE"][6:9] == ["90.0±0.0", "2.0±0.0", "2"]


def test_near_sets_are_those_of_the_data_set_or_those_named(tmp_path):
    write(tmp_path, results("mnist", "oe", ood=SETS))
    assert "Near-OOD: F-MNIST, E-MNIST. Far-OOD: Uniform, Smooth. Far away: FarAway, FarAway-RD." in leaderboard.page(
        tmp_path
    )
    named = tables.text(Args(root=tmp_path, leaderboard=True, near="smooth"))
    assert "Near-OOD: Smooth. Far-OOD: F-MNIST, E-MNIST, Uniform." in named
    for dataset, names in averages.NEAR.items():
        assert set(names) <= set(DATASETS[dataset].ood_sets)


def test_the_rows_are_in_order_of_auroc_over_sets_that_all_have(tmp_path):
    for method, auroc in (("oe", 0.6), ("nc", 0.9), ("standard", 0.7)):
        values = results("mnist", method, ood={"uniform": 0.1, "smooth": 0.1} if method != "nc" else {"uniform": 0.1})
        for row in values["ood"].values():
            row["auroc"] = auroc
        write(tmp_path, values)
    text = leaderboard.page(tmp_path)
    assert [title for title in rows(text) if title in ("OE", "NC", "Standard")] == ["NC", "Standard", "OE"]
    assert "Not in the means, because some row lacks them: Smooth." in text


def test_where_the_numbers_come_from(tmp_path):
    told = {"commit": "0123456789abcdef modified", "machine": "one TPU", "not_as_recipe": ["epochs 2 (100)"]}
    place = write(tmp_path, results("mnist", "oe", 3, ood=SETS, outliers="folder:/home/me/tiny", **told))
    old = write(tmp_path, results("mnist", "standard", ood=SETS))
    text = leaderboard.page(tmp_path)
    digests = [hashlib.sha256((p / "results.json").read_bytes()).hexdigest()[:12] for p in (place, old)]
    command = "python -m experiments.run --dataset=mnist --method=oe --epochs=2"
    assert f"| OE | 3 | `{command}` | `0123456789ab modified` | one TPU | `{digests[0]}` |" in text
    assert f"| Standard | 0 | unknown | unknown | unknown | `{digests[1]}` |" in text


def test_an_installed_copy_is_known_by_its_version(tmp_path):
    write(tmp_path, results("mnist", "oe", ood=SETS, commit=None, version="0.1.0"))
    assert "| OE | 0 | unknown | version 0.1.0 | unknown |" in leaderboard.page(tmp_path)
    (tmp_path / "setup.toml").write_text('commit = "abc"\n')
    assert "| OE | 0 | unknown | `abc` | unknown |" in leaderboard.page(tmp_path)


def test_a_set_up_says_what_its_files_do_not(tmp_path):
    for name in ("old", "new"):
        write(tmp_path / name, results("mnist", "oe", ood=SETS))
    (tmp_path / "old" / "setup.toml").write_text(
        'title = "Old"\nnote = "As it was."\nmachine = "a PC"\ncommit = "abc"\n'
        '[mnist]\ncommand = "train METHOD"\nmachine = "a workstation"\n'
    )
    text = leaderboard.page(tmp_path)
    assert text.index("## MNIST: new") < text.index("## MNIST: Old\n\nAs it was.\n")
    assert "| OE | 0 | `train oe` | `abc` | a workstation |" in text
    assert {name: list(found.results) for name, found in collected.setups(tmp_path).items()} == {
        "new": [("mnist", "oe", 0)],
        "old": [("mnist", "oe", 0)],
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title", "is no TOML file"),
        ("titel = 'x'", "titel = 'x'; expected some of ['title', 'note', 'command', 'commit', 'machine'"),
        ("title = 3", "title = 3; expected"),
        ("mnist = 'x'", "mnist = 'x'; expected"),
        ("[mnist]\ntitle = 'x'", "title = 'x'; expected some of ['command', 'commit', 'machine']"),
    ],
)
def test_a_wrong_setup_file_is_one_line(tmp_path, text, expected):
    write(tmp_path, results("mnist", "oe"))
    (tmp_path / "setup.toml").write_text(text)
    with pytest.raises(UserError) as error:
        leaderboard.page(tmp_path)
    assert expected in str(error.value)
    assert "\n" not in str(error.value).replace("\\n", "")


def test_ensembles_and_detectors_have_rows(tmp_path):
    for seed in (0, 1):
        place = write(tmp_path, results(seed=seed, method="standard"))
        row = {"fpr95": 0.5 + 0.1 * seed, "auroc": 0.7, "aupr": 0.8}
        found = {"msp": {"ood": {"photo": row, "faraway": row}}, "preload": {"left_out": "no OOD class"}}
        records.write(place / "detectors.json", {"detectors": found})
    members = ["runs/seed0", "runs/seed1"]
    values = results(method="standard", accuracy=0.99, not_as_recipe=[], outliers=None, ensemble=members)
    (place.parent / "ensemble2").mkdir()
    records.write(place.parent / "ensemble2" / "results.json", values)
    text = leaderboard.page(tmp_path)
    assert rows(text)["MSP"] == ["55.0±5.0", "70.0±0.0", "55.0±5.0", "70.0±0.0", "2"]
    assert "Standard, ensemble of 2 | –" in text
    assert "| `python -m experiments.evaluate --ensemble=runs/seed0,runs/seed1` |" in text
    assert "99.0" in text
    assert rows(text)["Detectors on Standard"][0] == "0, 1"
    # It is no seed of Standard's.
    assert tables.text(Args(root=tmp_path, table="accuracy", format="markdown")).count("90.0±0.0₂") == 1


def test_training_images_that_are_tested_are_marked(tmp_path):
    write(tmp_path, results("mnist", "oe", ood=SETS, not_as_recipe=[], outliers="emnist"))
    text = leaderboard.page(tmp_path)
    assert rows(text)["OE"][:3] == ["30.0‡", "90.0‡", "30.0"]
    assert "‡: training saw images of one of these sets." in text


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"epochs": 3, "max_steps": 7, "optimizer": run.OptimizerArgs("sgd", 0.5)},
        {"outliers": "uniform", "objective_half": False, "recipe": "released_code"},
    ],
)
def test_the_command_of_a_run_makes_its_configuration(changes):
    config = run.resolve(run.Args(dataset="digits", method="preload", seed=2, **changes))
    values = {"dataset": "digits", "method": "preload", "seed": 2, "recipe": config.recipe, **recipes.origin(config)}
    words = shlex.split(provenance.command(values))
    assert words[:3] == ["python", "-m", "experiments.run"]
    assert run.resolve(cli.parse(run.Args, words[3:], prog="x")) == config


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"near": "emnist"}, "--near=emnist is of --leaderboard"),
        ({"leaderboard": True, "format": "csv"}, "--format is of the tables, and --leaderboard shows everything"),
        ({"leaderboard": True, "seeds": "0"}, "--seeds is of the tables"),
    ],
)
def test_options_that_do_not_belong_together(tmp_path, options, expected):
    write(tmp_path, results())
    with pytest.raises(UserError, match=re.escape(expected)):
        tables.text(Args(root=tmp_path, **options))


def test_a_near_set_that_nobody_tested_is_refused(tmp_path):
    write(tmp_path, results("mnist", "oe"))
    with pytest.raises(UserError, match="--near names kmnst, which is not among the OOD test sets"):
        leaderboard.page(tmp_path, near=["kmnst"])


def test_a_folder_in_place_of_the_setup_file_is_refused(tmp_path):
    write(tmp_path, results("mnist", "oe"))
    (tmp_path / "setup.toml").mkdir()
    with pytest.raises(UserError, match=r"setup\.toml cannot be read"):
        leaderboard.page(tmp_path)
