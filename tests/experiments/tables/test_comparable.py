"""Which runs are compared: those of a recipe, and on one's own data those that share their settings."""

import json
import re
import shutil

from experiments.runs import collected, records
from experiments.tables import by_detector, cells, comparable, leaderboard, render
from tests.experiments.results_for_tests import results, write

SETS = {"uniform": 0.1, "smooth": 0.1, "faraway": 0.5}


def run(root, method, seed=0, *, fpr95=0.1, changed=(), outliers=None, dataset="folder:photos", **others):
    """A finished run on one's own data."""
    sets = dict.fromkeys(SETS, fpr95)
    told = {"not_as_recipe": list(changed), "outliers": outliers, "ood": sets}
    return write(root, results(dataset, method, seed, **told, **others))


def marks(root, measure="fpr95"):
    """By OOD set and method: "b" for bold, the marks of other settings and of images that training saw."""
    collection = collected.collect(root)
    methods = list(dict.fromkeys(method for _, method, _ in collection.results))
    table = cells.build(cells.MEASURES[measure], collection, methods=methods)
    return {
        (row.ood, method): "b" * cell.bold + render.marks(cell)
        for row in table.rows
        for method, cell in row.cells.items()
        if cell.ours is not None
    }


def notes(root, methods=("standard", "nc", "preload", "oe", "preload_ft", "ddu")):
    return list(comparable.of(collected.collect(root), "folder:photos", methods).notes)


def test_outliers_of_ones_own_data_are_no_other_settings(tmp_path):
    run(tmp_path, "standard", fpr95=0.9)
    run(tmp_path, "nc", outliers="smooth", fpr95=0.2)
    own = "folder:../others"
    run(tmp_path, "preload", outliers=own, changed=[f"outliers {own} (smooth)"], fpr95=0.0)
    found = marks(tmp_path)
    assert found["faraway", "preload"] == "b"
    assert found["faraway", "nc"] == ""
    assert notes(tmp_path) == [
        "folder:photos: the methods were not trained on the same outliers: Smooth (NC); folder:../others (PreLoad)."
    ]


def test_an_ood_set_of_ones_own_data_that_training_saw_is_never_bold(tmp_path):
    run(tmp_path, "standard", fpr95=0.9)
    run(tmp_path, "nc", outliers="smooth", fpr95=0.0)
    run(tmp_path, "oe", outliers="uniform", fpr95=0.1)
    found = marks(tmp_path)
    assert (found["smooth", "nc"], found["smooth", "oe"], found["uniform", "nc"]) == ("‡", "b", "b")
    assert marks(tmp_path, "average")[None, "nc"] == "‡"
    page = leaderboard.page(tmp_path)
    assert "| NC | 0.0‡ | 90.0‡ | **0.0** |" in page
    assert "‡: training saw images of one of these sets; on one's own data that is not compared." in page
    assert "folder:photos: the methods were not trained on the same outliers: Smooth (NC); Uniform (OE)." in page


def test_a_built_in_set_that_training_saw_may_be_bold(tmp_path):
    run(tmp_path, "standard", fpr95=0.9, dataset="digits")
    run(tmp_path, "nc", outliers="smooth", fpr95=0.0, dataset="digits")
    assert marks(tmp_path)["smooth", "nc"] == "b‡"
    assert "**0.0**‡" in leaderboard.page(tmp_path)


def test_runs_on_ones_own_data_that_share_settings_are_compared(tmp_path):
    for method, fpr95 in (("standard", 0.5), ("nc", 0.4), ("preload", 0.2)):
        run(tmp_path, method, fpr95=fpr95, changed=["epochs 6 (60)", "batch_size 16 (32)"])
    assert marks(tmp_path)["faraway", "preload"] == "b"
    assert not notes(tmp_path)
    # What a method has of its own it may choose.
    run(tmp_path, "preload", fpr95=0.2, changed=["epochs 6 (60)", "batch_size 16 (32)", "ood_weight 0.3 (1.0)"])
    assert marks(tmp_path)["faraway", "preload"] == "b"


def test_a_run_on_ones_own_data_with_settings_unlike_most_is_not_compared(tmp_path):
    for method in ("standard", "nc"):
        run(tmp_path, method, fpr95=0.5, changed=["epochs 6 (60)"])
    run(tmp_path, "preload", fpr95=0.2)
    # It fine-tunes, for as many epochs as fine-tuning takes.
    run(tmp_path, "preload_ft", fpr95=0.2)
    found = marks(tmp_path)
    assert (found["faraway", "preload"], found["faraway", "preload_ft"]) == ("†", "")
    (note,) = notes(tmp_path)
    assert note == "folder:photos, PreLoad, seed 0 is not compared: it has epochs 60, not 6 as most runs have."
    page = leaderboard.page(tmp_path)
    assert "| PreLoad | 20.0† |" in page
    assert note in page
    assert render.OTHER_SETTINGS in page


def test_training_settings_do_not_count_where_nothing_is_trained(tmp_path):
    run(tmp_path, "standard", changed=["epochs 6 (60)"])
    run(tmp_path, "ddu")
    assert "†" not in "".join(marks(tmp_path).values())


def test_seeds_on_ones_own_data_with_other_settings_than_most_are_left_out(tmp_path):
    for seed, outliers in enumerate(("folder:a", "folder:b", "folder:a")):
        run(tmp_path, "oe", seed, fpr95=0.1 * outliers.endswith("a"), outliers=outliers)
    shown = comparable.of(collected.collect(tmp_path), "folder:photos", ["oe"]).shown
    assert sorted(shown["oe"]) == [0, 2]
    assert notes(tmp_path) == ["folder:photos, OE, seed 1 is left out: it has other settings than the other seeds."]
    assert re.search(r"\| OE \| 10\.0±0\.0 \|.*\| 2 \|", leaderboard.page(tmp_path))


def test_seeds_of_other_settings_are_in_no_mean_of_a_leaderboard_or_of_detectors(tmp_path):
    short = ["max_steps 20 (None)"]
    for seed, changed, fpr95 in ((0, short, 0.9), (1, (), 0.1)):
        folder = run(tmp_path, "standard", seed, changed=changed, fpr95=fpr95, dataset="digits")
        by_set = {name: {"fpr95": fpr95, "auroc": 0.5, "aupr": 0.5} for name in SETS}
        records.write(folder / "detectors.json", {"detectors": {"msp": {"ood": by_set, "seconds": {"fit": 1.0}}}})
    run(tmp_path, "nc", changed=short, fpr95=0.0, dataset="digits")
    page = leaderboard.page(tmp_path)
    assert "| Standard | 10.0 |" in page
    assert "| NC | 0.0† |" in page
    assert "Digits, Standard, seed 0 has not its recipe's settings: max_steps 20 (None); left out, since" in page
    (table,) = by_detector.build("fpr95", collected.collect(tmp_path), methods=["standard"])
    assert table.seeds == (1,)
    assert table.rows["msp"]["uniform"].mean == 0.1


def test_a_set_up_without_the_recipes_settings_is_compared_among_itself(tmp_path):
    for method, fpr95 in (("standard", 0.9), ("nc", 0.1)):
        run(tmp_path, method, changed=["epochs 2 (60)"], fpr95=fpr95, dataset="digits")
    page = leaderboard.page(tmp_path)
    assert "| NC | **10.0** |" in page
    assert "†" not in page


def test_a_copy_that_is_left_out_is_told(tmp_path):
    folder = run(tmp_path, "standard", dataset="digits")
    run(tmp_path, "nc", dataset="digits")
    shutil.copytree(folder, tmp_path / "copy")
    assert f"{tmp_path}/copy is left out: {folder} is of digits, standard, seed 0, too;" in leaderboard.page(tmp_path)


def test_an_ensemble_of_other_settings_is_marked_beside_runs_of_the_recipe(tmp_path):
    for method in ("standard", "nc"):
        run(tmp_path, method, dataset="digits")
    folder = run(tmp_path, "nc", 7, changed=["max_steps 20 (None)"], fpr95=0.0, dataset="digits")
    written = json.loads((folder / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps({**written, "ensemble": ["a", "b"]}))
    page = leaderboard.page(tmp_path)
    assert "| NC, ensemble of 2 | 0.0† |" in page
    # Digits are nobody's own data.
    assert render.NOT_RECIPES in page
    assert render.OTHER_SETTINGS not in page


def test_seeds_of_other_settings_are_in_no_mean_where_no_run_has_the_recipes(tmp_path):
    run(tmp_path, "standard", 0, changed=["max_steps 20 (None)"], fpr95=0.9, dataset="digits")
    run(tmp_path, "standard", 1, changed=["max_steps 200 (None)"], fpr95=0.1, dataset="digits")
    run(tmp_path, "nc", changed=["max_steps 20 (None)"], fpr95=0.5, dataset="digits")
    page = leaderboard.page(tmp_path)
    assert "| Standard | 90.0 |" in page
    assert "Digits, Standard, seed 1 is left out: it has other settings than the other seeds." in page
