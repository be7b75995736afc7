"""Tables: means, errors, bold and marks with known answers, the paper's own numbers, formats, wrong input."""

import csv
import dataclasses
import io
import itertools
import json
import math
import subprocess
import sys

import pytest

from experiments.runs import collected, paper_numbers, recipes, titles
from experiments.runs import results as run_results
from experiments.runs.estimates import PAPERS_EXCEPTIONS, Estimate, best, differs, estimate, pool
from experiments.runs.run_dir import RunDir
from experiments.tables import cells, render
from experiments.tables import command as tables
from experiments.tables.command import Args
from preload_jax.data import datasets
from preload_jax.data.specs import DATASETS
from preload_jax.errors import UserError
from preload_jax.methods import METHODS, PAPER
from tests.experiments.results_for_tests import results, write


def build(root, name, methods=tuple(titles.METHOD_TITLES), **filters):
    everything = collected.collect(root)
    selected = collected.select(everything, **{"datasets": (), "methods": (), "seeds": None, **filters})
    return cells.build(cells.MEASURES[name], selected, methods=methods), selected


def text(capsys, root, **options):
    assert tables.main(Args(root=root, **options)) == 0
    return capsys.readouterr().out


def test_titles_are_those_of_the_methods():
    assert {name: method.title for name, method in METHODS.items()} == titles.METHOD_TITLES
    assert {*titles.SCRATCH, *titles.FINE_TUNED} == set(METHODS)
    assert all(name in titles.OOD_TITLES for spec in DATASETS.values() for name in spec.ood_sets)


def test_mean_and_standard_error():
    # 1, 2, 3, 4, 5: s² = 10/4, error = √(2.5 / 5).
    assert estimate([1, 2, 3, 4, 5]) == Estimate(3.0, math.sqrt(0.5), 5)
    assert estimate([7.0]) == Estimate(7.0, None, 1)


def test_pooling_groups_is_pooling_their_values():
    groups = [[1.0, 2.0, 4.0], [0.0, 9.0], [5.0]]
    pooled, direct = pool([estimate(group) for group in groups]), estimate([x for group in groups for x in group])
    assert pooled.count == 6
    assert pooled.mean == pytest.approx(direct.mean)
    assert pooled.error == pytest.approx(direct.error)


@pytest.mark.parametrize(
    ("values", "lower", "expected"),
    [
        ({"a": (0.0, 0.0), "b": (20.0, 20.0)}, True, {"a"}),  # bars that touch
        ({"a": (2.2, 0.5), "b": (2.3, 0.6), "c": (4.0, 0.5)}, True, {"a", "b"}),
        ({"a": (95.0, 0.1), "b": (95.3, 0.1), "c": (95.3, None)}, False, {"b", "c"}),
        ({"a": (1.0, None), "b": (1.0, None)}, True, {"a", "b"}),
        ({}, True, set()),
    ],
)
def test_which_are_best(values, lower, expected):
    assert best({name: Estimate(*value, 5) for name, value in values.items()}, lower_is_better=lower) == expected


def test_when_ours_differs():
    paper = Estimate(10.0, 3.0, 5)
    assert differs(Estimate(14.9, 4.0, 5), paper) is False  # √(3² + 4²) = 5
    assert differs(Estimate(15.1, 4.0, 5), paper) is True
    assert differs(Estimate(15.1, 4.0, 5), paper, rounding=0.2) is False
    # An error that the paper does not print is 0; one seed has none, however far away it is.
    assert differs(Estimate(14.1, 4.0, 5), Estimate(10.0, None, 5)) is True
    assert differs(Estimate(90.0, None, 1), paper) is None


def test_a_table_with_known_numbers(tmp_path):
    for seed, accuracy in enumerate((0.90, 0.92, 0.94)):
        write(tmp_path, results(seed=seed, accuracy=accuracy))
        write(tmp_path, results(method="oe", seed=seed, accuracy=0.95))
    table, _ = build(tmp_path, "accuracy")
    (row,) = table.rows
    assert row.cells["preload"].ours == Estimate(pytest.approx(0.92), pytest.approx(0.02 / math.sqrt(3)), 3)
    assert render.number(row.cells["preload"].ours, table.measure) == "92.0±1.2"
    assert row.cells["oe"].bold
    assert not row.cells["preload"].bold
    assert row.cells["nc"].why == "not run"


def write_shift(folder, levels, *, shift="rotation", num_images=None):
    """A report under shift: rows of (kind, level, ECE)."""
    others = {"accuracy": 0.9, "brier": 0.1, "log_likelihood": -0.2, "mmc": 0.9, "size": 10}
    rows = [{"kind": kind, "level": level, "ece": ece, **others} for kind, level, ece in levels]
    report = {"shift": shift, "num_images": num_images, "levels": rows}
    (folder / f"shift_{shift}.json").write_text(json.dumps(report))


@pytest.mark.parametrize("name", cells.MEASURES)
def test_every_table_has_its_number_and_knows_which_is_better(tmp_path, name):
    worst = {"accuracy": 0.8, "ece": 0.05, "brier": 0.3, "log_likelihood": -0.7, "mmc": 0.6}
    worst_ood = {"fpr95": 0.4, "auroc": 0.7, "aupr": 0.75, "mmc": 0.65}
    size = {"size": 10}
    higher = ("accuracy", "log_likelihood", "auroc", "aupr")
    for method, gain in (("nc", 0.01), ("oe", 0.02), ("preload", 0.0203), ("oe_ft", 0.0)):
        in_domain, ood = (
            {key: value + gain if key in higher else value - gain for key, value in numbers.items()}
            for numbers in (worst, worst_ood)
        )
        values = results(method=method, in_domain=in_domain | size)
        values["ood"] = dict.fromkeys(("photo", "faraway"), ood | size)
        write_shift(write(tmp_path, values), [("rotation", 15, in_domain["ece"])])
    table, _ = build(tmp_path, name, methods=("nc", "oe", "preload", "oe_ft"))
    expected = {
        "faraway": 0.4, "average": 0.4, "fpr95": 0.4, "auroc": 0.7, "aupr": 0.75, "ood_mmc": 0.65, "accuracy": 0.8,
        "ece": 0.05, "shift_ece": 0.05, "mmc": 0.6, "brier": 0.3, "log_likelihood": -0.7,
    }  # fmt: skip
    shown = [row for row in table.rows if row.cells["nc"].ours is not None]
    assert shown
    for row in shown:
        assert row.cells["oe_ft"].ours.mean == expected[name]
        # Alike in all printed digits; the only fine-tuned one has nothing to be better than.
        bold = {method for method, cell in row.cells.items() if cell.bold}
        assert bold == (set() if name == "mmc" else {"oe", "preload"})


def test_a_row_under_shift_is_the_mean_over_kinds_of_one_level(tmp_path):
    levels = [("fog", 1, 0.1), ("snow", 1, 0.3), ("fog", 2, 0.5)]
    write_shift(write(tmp_path, results()), levels)
    nc = write(tmp_path, results(method="nc"))
    write_shift(nc, levels[:2], num_images=7)
    write_shift(nc, [("fog", 1, 0.9)], shift="corruptions")
    table, selected = build(tmp_path, "shift_ece", methods=("preload", "nc"))
    made_here = table.rows.pop(0)
    assert (made_here.ood, made_here.cells["nc"].ours.mean) == ("corruptions made here, severity 1", 0.9)
    # The kinds of one run are one value: their scatter is no error.
    assert [row.cells["preload"].ours for row in table.rows] == [
        Estimate(pytest.approx(x), None, 1) for x in (0.2, 0.5)
    ]
    assert table.rows[0].cells["nc"].ours.mean == pytest.approx(0.2)
    assert table.rows[1].cells["nc"].why == "not evaluated"
    counts = {
        method: selected.of("digits", method)[0]["shifts"]["rotation"]["num_images"] for method in ("nc", "preload")
    }
    assert counts == {"nc": 7, "preload": None}


def test_an_average_is_over_the_sets_that_every_run_has(tmp_path):
    write(tmp_path, results(ood={"photo": 0.1, "uniform": 0.5, "faraway": 1.0}))
    write(tmp_path, results(method="nc", ood={"photo": 0.2}, ood_not_prepared=["uniform"]))
    table, _ = build(tmp_path, "average", methods=("preload", "nc"))
    assert [table.rows[0].cells[method].ours.mean for method in ("preload", "nc")] == [0.1, 0.2]
    assert any("over 1 of 3 sets" in note and "Uniform, Smooth" in note for note in table.notes)


def test_what_is_selected_and_in_what_order(tmp_path):
    for dataset, method, seed in (("mnist", "oe", 10), ("mnist", "oe", 2), ("mnist", "nc", 2), ("digits", "oe", 2)):
        write(tmp_path, results(dataset, method, seed))
    write(tmp_path, results("a.npz", "oe", 0))
    begun = tmp_path / "cifar10" / "nc" / "seed0"
    begun.mkdir(parents=True)
    (begun / "config.json").write_text('{"dataset": "cifar10", "method": "nc", "seed": 0}')
    (tmp_path / "mnist" / "nc" / "seed2" / "config.json").write_text('{"dataset": "mnist", "method": "nc", "seed": 2}')
    (tmp_path / "config.json").write_text("[]")  # not a run's
    everything = collected.collect(tmp_path)
    assert everything.datasets() == ["digits", "mnist", "a.npz"]
    assert list(everything.of("mnist", "oe")) == [2, 10]
    assert everything.why_none("cifar10", "nc") == "unfinished"
    assert everything.why_none("digits", "nc") == "not run"
    for filters, count in (
        ({"datasets": ("mnist",)}, 3), ({"methods": ("nc",)}, 1), ({"seeds": (2, 10)}, 4), ({"seeds": (0,)}, 1),
    ):  # fmt: skip
        chosen = collected.select(everything, **{"datasets": (), "methods": (), "seeds": None, **filters})
        assert len(chosen.results) == count
        assert chosen.why_none("mnist", "nc") == "not run"  # what is finished is not unfinished


def test_table_2_is_over_sets_and_seeds_without_the_far_ones(tmp_path):
    for seed, (photo, uniform) in enumerate(((0.1, 0.3), (0.2, 0.4))):
        write(tmp_path, results(seed=seed, ood={"photo": photo, "uniform": uniform, "faraway": 1.0}))
    table, _ = build(tmp_path, "average", methods=("preload",))
    assert table.rows[0].cells["preload"].ours.mean == pytest.approx(0.25)
    assert table.rows[0].cells["preload"].seeds == 2
    assert table.rows[0].cells["preload"].ours.error == pytest.approx(estimate([0.1, 0.3, 0.2, 0.4]).error)
    far, _ = build(tmp_path, "faraway", methods=("preload",))
    assert [row.ood for row in far.rows] == ["faraway", "faraway_rd"]
    assert far.rows[1].cells["preload"].why == "not measured"


@pytest.mark.parametrize(("accuracy", "different"), [(0.9954, False), (0.994, True)])
def test_a_number_differs_by_more_than_the_papers_rounding(tmp_path, accuracy, different):
    for seed in (0, 1):
        write(tmp_path, results("mnist", "standard", seed, accuracy=accuracy))
    table, _ = build(tmp_path, "accuracy", methods=("standard",))
    assert table.rows[0].cells["standard"].differs is different


def test_one_seed_is_not_marked_and_each_cell_says_its_seeds(tmp_path):
    write(tmp_path, results("mnist", "standard", accuracy=0.5, ood={"fashion_mnist": 0.9, "uniform": 0.9}))
    for name in ("accuracy", "fpr95", "average"):
        cell = build(tmp_path, name, methods=("standard",))[0].rows[0].cells["standard"]
        assert (cell.seeds, cell.differs) == (1, False)
    write(tmp_path, results("mnist", "standard", 1, accuracy=0.5, ood={"fashion_mnist": 0.9}))
    table, _ = build(tmp_path, "fpr95", methods=("standard",))
    seeds = {row.ood: row.cells["standard"].seeds for row in table.rows}
    assert (seeds["fashion_mnist"], seeds["uniform"]) == (2, 1)
    assert "90.0±0.0₂" in render.markdown(table)
    assert "90.0₁" in render.markdown(table)


def test_reasons_for_empty_cells(tmp_path):
    for seed in (0, 1):
        write(tmp_path, results(seed=seed, ood={"photo": 0.1}, ood_not_prepared=["uniform"][seed:]))
    begun = tmp_path / "digits" / "oe" / "seed0"
    begun.mkdir(parents=True)
    (begun / "config.json").write_text('{"dataset": "digits", "method": "oe", "seed": 0}')
    table, _ = build(tmp_path, "fpr95", methods=("nc", "oe", "preload"))
    reasons = {(row.ood, method): cell.why for row in table.rows for method, cell in row.cells.items()}
    assert reasons["photo", "preload"] == ""
    assert reasons["uniform", "preload"] == "not prepared"
    assert reasons["smooth", "preload"] == "not measured"
    assert reasons["photo", "oe"] == "unfinished"
    assert reasons["photo", "nc"] == "not run"


def paper_as_results(root, dataset):
    """Runs that have exactly the paper's means and errors: five values m + e·√5·(±1, ±1, 0)·scale."""
    spread = [1.0, -1.0, 1.0, -1.0, 0.0]  # mean 0, s = 1, so that the error is 1/√5
    for method in PAPER:
        for seed, sign in enumerate(spread):
            ood = {}
            for name in DATASETS[dataset].ood_sets:
                value = paper_numbers.ood("fpr95", dataset, name, method)
                ood[name] = value.mean + sign * value.error * math.sqrt(5)
            accuracy = paper_numbers.in_domain("accuracy", dataset, method).mean
            write(root, results(dataset, method, seed, accuracy=accuracy, ood=ood))


@pytest.mark.parametrize("dataset", ["mnist", "cifar100"])
def test_the_papers_own_numbers_come_out_as_they_went_in(tmp_path, dataset, monkeypatch):
    # Some of the five values are below 0.
    monkeypatch.setattr(run_results, "_RANGES", {})
    paper_as_results(tmp_path, dataset)
    for name in ("fpr95", "accuracy", "faraway"):
        table, _ = build(tmp_path, name, methods=PAPER)
        for row in table.rows:
            for cell in row.cells.values():
                assert cell.ours.mean == pytest.approx(cell.paper.mean)
                assert cell.paper.error is None or cell.ours.error == pytest.approx(cell.paper.error, abs=1e-9)
                assert not cell.differs
    # Table 2 was printed from unrounded numbers.
    table, _ = build(tmp_path, "average", methods=PAPER)
    for cell in table.rows[0].cells.values():
        assert cell.ours.mean == pytest.approx(cell.paper.mean, abs=0.0011)
        assert cell.ours.error == pytest.approx(cell.paper.error, abs=0.0011)
        assert not cell.differs


def test_every_row_of_the_papers_files_is_read():
    for file, count in {"ood_detection": 720, "fpr95_average": 45, "accuracy": 45, "ece": 45}.items():
        assert len(list(paper_numbers.read(f"{file}.csv"))) == count
    numbers = itertools.product(("fpr95", "auroc"), DATASETS, titles.OOD_TITLES, PAPER)
    assert sum(paper_numbers.ood(*number) is not None for number in numbers) == 720
    assert paper_numbers.average("mnist", "ddu", DATASETS["mnist"].ood_sets[:6]) == Estimate(
        pytest.approx(0.477), 0.069, 30
    )
    assert paper_numbers.in_domain("ece", "cifar100", "doe_ft").mean == pytest.approx(0.169)
    assert paper_numbers.ood("fpr95", "digits", "photo", "oe") is None


def test_bold_is_the_papers_bold():
    # As printed in its Table 2.
    printed = {
        "mnist": "nc oe oe_ft doe_ft energy_ft preload_ft",
        "fashion_mnist": "nc preload energy_ft preload_ft",
        "svhn": "nc oe preload oe_ft doe_ft preload_ft",
        "cifar10": "nc preload doe_ft energy_ft preload_ft",
        "cifar100": "nc preload preload_ft",
    }
    same = 0
    for dataset, names in printed.items():
        bold = set()
        for group in titles.GROUPS.values():
            averages = {
                m: paper_numbers.average(dataset, m, DATASETS[dataset].ood_sets[:6]) for m in group if m in PAPER
            }
            bold |= best(averages, lower_is_better=True)
        differing = bold ^ set(names.split())
        assert differing == {method for there, method in PAPERS_EXCEPTIONS if there == dataset}
        same += len(PAPER) - len(differing)
    assert same == 43


def test_an_average_over_fewer_sets_is_compared_with_the_paper_over_the_same(tmp_path):
    write(tmp_path, results("mnist", "ddu", 0, ood={"uniform": 0.8, "smooth": 1.0}, ood_not_prepared=["emnist"]))
    table, _ = build(tmp_path, "average", methods=("ddu",))
    assert table.rows[0].cells["ddu"].paper.mean == pytest.approx((0.813 + 0.975) / 2)
    assert "over 2 of 2 sets" not in " ".join(table.notes)


def test_formats(tmp_path, capsys):
    for seed in range(5):
        write(tmp_path, results("mnist", "standard", seed, accuracy=0.995, ood={"fashion_mnist": 0.5}))
        write(tmp_path, results("mnist", "nc", seed, accuracy=0.5, ood={"fashion_mnist": 0.9}))
    (row,) = build(tmp_path, "accuracy", methods=("standard",))[0].rows
    assert not row.cells["standard"].differs
    for measure in ("fpr95", "auroc"):
        row = build(tmp_path, measure, methods=("standard",))[0].rows[0]
        assert row.cells["standard"].paper == paper_numbers.ood(measure, "mnist", "fashion_mnist", "standard")
    markdown = text(capsys, tmp_path, table="accuracy,fpr95", format="markdown")
    assert "| MNIST | **99.5±0.0₅** [99.5] | *not run* [99.5] |" in markdown
    assert "**50.0±0.0₅** [8.1±0.9]≠" in markdown
    latex = text(capsys, tmp_path, table="fpr95", format="latex")
    assert r"\textbf{50.0$\pm$0.0$_{5}$} {\scriptsize [8.1$\pm$0.9]$\neq$}" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 1
    assert "FPR-95 by OOD set (\\%)" in latex
    rows = list(csv.DictReader(io.StringIO(text(capsys, tmp_path, table="fpr95", method="standard", format="csv"))))
    found = [row for row in rows if row["ood"] == "fashion_mnist"]
    assert [(row["mean"], row["seeds"], row["differs"], row["paper_mean"]) for row in found] == [
        ("0.5", "5", "1", "0.081")
    ]
    shown = text(capsys, tmp_path, table="accuracy", method="standard,nc")
    assert "99.5±0.0₅*" in shown
    assert "[99.5]" in shown


def test_no_sign_of_a_name_breaks_a_table(tmp_path, capsys):
    name = "folder:a\nb|\x1b[31m[red]c"
    values = results(dataset="folder:x\ny", ood={name: 0.1})
    values["ood"][name]["auroc"] = 0.9
    write(tmp_path, {**values, "dataset": "x"})
    (tmp_path / "x" / "preload" / "seed0" / "results.json").write_text(json.dumps(values))
    detectors = {"detectors": {"msp": {"ood": {name: {"auroc": 0.9, "fpr95": 0.1}}}}}
    (tmp_path / "x" / "preload" / "seed0" / "detectors.json").write_text(json.dumps(detectors))
    for options in ({"table": "fpr95"}, {"table": "accuracy"}, {"table": "auroc", "detectors": True}):
        for form in ("terminal", "markdown", "latex"):
            shown = text(capsys, tmp_path, format=form, **options)
            assert "\x1b" not in shown
            assert "folder:x\ny" not in shown
            if options["table"] != "accuracy":
                assert r"folder:a\nb" + (r"\|" if form == "markdown" else "|") + r"\x1b[31m[red]c" in shown


def test_missing_seeds_are_said(tmp_path, capsys):
    for seed in (0, 1, 2):
        write(tmp_path, results(seed=seed))
    write(tmp_path, results(method="nc"))
    write(tmp_path, results("mnist", recipe="released_code"))
    out = text(capsys, tmp_path, table="accuracy")
    assert "MNIST: 1 of the paper's 5 seeds (0) of all methods; one seed has no error." in out
    assert "mixed" not in out
    write(tmp_path, results("mnist", seed=1))
    mixed = "MNIST: runs of different recipes are mixed: ['paper', 'released_code']."
    assert mixed in text(capsys, tmp_path, table="accuracy")
    assert "Digits: 3 seeds (0, 1, 2) of PreLoad." in out
    assert "Digits: 1 seed (0) of NC; one seed has no error." in out
    asked = text(capsys, tmp_path, table="accuracy", dataset="digits", method="preload", seeds="0-2")
    assert "seeds" not in asked.split("≠")[-1].replace("over seeds", "")


@pytest.mark.parametrize(
    ("prepare", "options", "expected"),
    [
        (lambda root: None, {}, "no results.json under"),
        (lambda root: root.rmdir(), {}, "no folder"),
        (lambda root: write(root, results(format=2)), {}, "does not have the digest that was written with it"),
        (lambda root: write(root, results(format=0)), {}, "does not have the digest that was written with it"),
        (lambda root: write(root, {**results(), "format": None}), {}, "is damaged"),
        (lambda root: (write(root, results()) / "results.json").write_text("{"), {}, "is not valid JSON"),
        (
            lambda root: (write(root, results()) / "results.json").write_text('{"format": 1, "seed": 0}'),
            {},
            "lacks dataset, method, in_domain, ood; delete it and run again",
        ),
        (lambda root: write(root, results()), {"seeds": "7"}, "match the filters; there are data sets digits"),
        (lambda root: write(root, results()), {"seeds": "0-99999999999"}, "--seeds must be below 2**32"),
        (lambda root: write(root, results()), {"seeds": "3,0-9999999"}, "names more than 10,000 numbers"),
        (lambda root: write(root, results()), {"seeds": "a"}, "'a' is no number or range"),
        (lambda root: write(root, results()), {"method": "ours"}, "unknown --method 'ours'"),
        (lambda root: write(root, results()), {"table": "3"}, "unknown --table '3'"),
        (lambda root: write(root, results()), {"format": "html"}, "unknown --format 'html'"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, prepare, options, expected):
    root = tmp_path / "runs"
    root.mkdir()
    prepare(root)
    with pytest.raises(UserError) as error:
        tables.main(Args(root=root, **options))
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("changed", ["usual", "elsewhere", None])
def test_of_two_runs_of_one_cell_the_recipes_is_shown_and_else_the_one_at_its_usual_place(tmp_path, changed):
    other = {"not_as_recipe": ["epochs 2 (60)"], "outliers": None}
    places = {"usual": write(tmp_path, results(accuracy=0.9)), "elsewhere": write(tmp_path / "x", results())}
    for name, accuracy in (("usual", 0.9), ("elsewhere", 0.8)):
        values = results(accuracy=accuracy, **(other if name == changed else {}))
        (places[name] / "results.json").write_text(json.dumps(values))
    collection = collected.collect(tmp_path)
    shown = "elsewhere" if changed == "usual" else "usual"
    assert collection.folders["digits", "preload", 0] == places[shown]
    table, _ = build(tmp_path, "accuracy")
    assert table.rows[0].cells["preload"].ours.mean == {"usual": 0.9, "elsewhere": 0.8}[shown]
    assert not table.rows[0].cells["preload"].not_as_recipe
    assert len(collection.notes) == 1
    assert "is left out" in collection.notes[0]


def test_runs_that_are_not_their_recipes_are_marked_and_not_compared(tmp_path, capsys):
    write(tmp_path, results("mnist", "nc", fpr95=0.0, not_as_recipe=["epochs 2 (100)"], outliers=None))
    for method in ("oe", "standard"):
        write(tmp_path, results("mnist", method, fpr95=0.5))
    table, _ = build(tmp_path, "average")
    cell = table.rows[0].cells["nc"]
    assert (cell.not_as_recipe, cell.bold, cell.differs) == (True, False, False)
    assert table.rows[0].cells["oe"].bold
    shown = text(capsys, tmp_path, table="average")
    assert "0.0±0.0₁†" in shown
    assert "MNIST, NC, seed 0 has not its recipe's settings: epochs 2 (100)." in shown
    write(tmp_path, results("mnist", "nc", 1, fpr95=0.2))
    shown = text(capsys, tmp_path, table="average")
    assert "20.0" in shown
    assert "0.0†" not in shown
    assert "epochs 2 (100); left out, since others have them." in shown


def test_what_is_not_the_recipes_is_read_from_config_json_where_results_do_not_say(tmp_path, capsys):
    folder = write(tmp_path, results(method="nc"))
    usual = recipes.get(datasets.get("digits"), "nc")
    RunDir(folder).write_config(usual)
    assert collected.collect(tmp_path).of("digits", "nc")[0]["not_as_recipe"] == []
    RunDir(folder).write_config(dataclasses.replace(usual, epochs=2, start="somewhere"))
    assert collected.collect(tmp_path).of("digits", "nc")[0]["not_as_recipe"] == ["epochs 2 (60)"]
    with_other_network = dataclasses.replace(usual, data=dataclasses.replace(usual.data, backbone="lenet"))
    RunDir(folder).write_config(with_other_network)
    assert "data.backbone lenet (mlp)" in collected.collect(tmp_path).of("digits", "nc")[0]["not_as_recipe"]


def test_an_ood_set_that_training_saw_is_marked(tmp_path, capsys):
    sets = {"photo": 0.1, "smooth": 0.0, "faraway": 0.0}
    write(tmp_path, results(method="oe", ood=sets, outliers="smooth", not_as_recipe=[]))
    write(tmp_path, results(method="standard", ood=sets, outliers=None, not_as_recipe=[]))
    table, _ = build(tmp_path, "fpr95")
    seen = {(row.ood, method) for row in table.rows for method, cell in row.cells.items() if cell.seen}
    assert seen == {("smooth", "oe")}
    assert build(tmp_path, "average")[0].rows[0].cells["oe"].seen
    shown = text(capsys, tmp_path, table="fpr95")
    assert "0.0₁*‡" in shown
    assert "‡: training saw images of this OOD set." in shown
    assert r"$\ddagger$" in text(capsys, tmp_path, table="fpr95", format="latex")


def test_a_lone_run_is_not_the_best(tmp_path):
    write(tmp_path, results())
    for name in ("average", "accuracy", "auroc"):
        assert not any(cell.bold for row in build(tmp_path, name)[0].rows for cell in row.cells.values())


def test_the_command_ends_with_status_2(tmp_path):
    command = [sys.executable, "-m", "experiments.tables", f"--root={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no results.json under")
    assert done.stderr.count("\n") == 1


def test_methods_of_our_own_are_shown_where_they_were_run(tmp_path, capsys):
    write(tmp_path, results("digits", "preload", 0, accuracy=0.9, ood={"photo": 0.1}))
    assert "PreLoad certified" not in text(capsys, tmp_path)
    write(tmp_path, results("digits", "preload_certified", 0, accuracy=0.9, ood={"photo": 0.1}))
    shown = text(capsys, tmp_path)
    assert "PreLoad certified" in shown
    assert "PreLoad-FT certified" not in shown


def test_the_error_of_one_seed_in_table_2_is_explained(tmp_path, capsys):
    write(tmp_path, results("digits", "preload", ood={"photo": 0.8, "uniform": 0.0, "faraway": 0.0}))
    of_one = text(capsys, tmp_path, table="average", format="markdown")
    assert "40.0±40.0₁" in of_one
    assert "(Table 2: over set × seed, of one seed alone over its OOD sets)" in of_one
    write(tmp_path, results("digits", "preload", 1, ood={"photo": 0.8, "uniform": 0.0, "faraway": 0.0}))
    assert "(Table 2: over set × seed)" in text(capsys, tmp_path, table="average", format="markdown")
    assert "(Table 2" not in text(capsys, tmp_path, table="accuracy", format="markdown")


def test_columns_without_any_number_are_left_out(tmp_path, capsys):
    write(tmp_path, results("digits", "preload"))
    assert "not run" not in text(capsys, tmp_path)
    assert "DDU" not in text(capsys, tmp_path)
    # A method that is asked for stays, and on the paper's data sets there are the paper's numbers.
    assert "not run" in text(capsys, tmp_path, method="ddu,preload", table="accuracy")
    write(tmp_path, results("mnist", "preload"))
    assert "DDU" in text(capsys, tmp_path)
