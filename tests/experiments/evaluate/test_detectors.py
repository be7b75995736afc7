"""`evaluate --detectors`, on networks and on files of features: numbers, averages, table, figure, wrong use."""

import json
import shutil

import matplotlib.image
import numpy as np
import pytest

from experiments.certify import command as certify
from experiments.cli import detector_list
from experiments.evaluate import command as evaluate
from experiments.evaluate import detectors as by_detector
from experiments.evaluate import features
from experiments.paper import command as paper
from experiments.run import command as run_command
from experiments.runs import averages
from experiments.tables import command as tables
from preload_jax import detectors, metrics
from preload_jax.errors import UserError
from tests.experiments import runs_for_tests
from tests.experiments.runs_for_tests import ask, command


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two seeds of Standard on the digits, each with three detectors."""
    root = tmp_path_factory.mktemp("detectors")
    for seed in (0, 1):
        options = ("--method=standard", "--max-steps=30", f"--seed={seed}", f"--root={root}", "--quiet")
        assert ask(run_command, *options, "--detectors=msp,knn,rankfeat") == 0
    return root


@pytest.fixture(scope="module")
def run(root):
    return root / "digits" / "standard" / "seed0"


def test_a_run_keeps_what_detectors_do(run, capsys):
    there = json.loads((run / "detectors.json").read_text())["detectors"]
    results = json.loads((run / "results.json").read_text())
    assert set(there) == {"msp", "knn", "rankfeat"}
    # An MLP has no feature maps of two positions.
    assert "RankFeat needs" in there["rankfeat"]["left_out"] or "maps" in there["rankfeat"]["left_out"]
    for name, row in results["ood"].items():
        # Standard's own score ranks as the largest probability.
        assert there["msp"]["ood"][name]["auroc"] == pytest.approx(row["auroc"], abs=1e-6)
    capsys.readouterr()
    before = (run / "detectors.json").read_bytes()
    options = ("--method=standard", "--max-steps=30", f"--run-dir={run}", "--detectors=msp,knn", "--json", "--quiet")
    assert ask(run_command, *options) == 0
    assert json.loads(capsys.readouterr().out)["detectors"].keys() == {"msp", "knn"}
    assert (run / "detectors.json").read_bytes() == before
    assert ask(run_command, *options[:3], "--detectors=energy", "--quiet") == 0
    after = json.loads((run / "detectors.json").read_text())["detectors"]
    assert set(after) == {"msp", "knn", "rankfeat", "energy"}
    assert after["knn"] == there["knn"]


def test_tables_show_detectors(root, tmp_path, capsys):
    def table(*options):
        assert ask(tables, f"--root={root}", "--detectors", *options) == 0
        return capsys.readouterr().out

    text = table("--table=auroc", "--format=markdown")
    assert "**AUROC by OOD set (%) ↑; Digits, networks of Standard, seeds 0, 1**" in text
    assert "| KNN |" in text
    assert "RankFeat" not in text
    lines = table("--format=csv").splitlines()
    assert lines[0] == "table,dataset,method,detector,ood,mean,standard_error,values,bold"
    assert {line.split(",")[0] for line in lines[1:]} == {"fpr95", "auroc", "aupr"}
    assert all(line.split(",")[7] == "2" for line in lines[1:])
    assert r"\caption{AUROC by OOD set (\%) $\uparrow$; Digits" in table("--table=auroc", "--format=latex")
    assert "KNN" in table("--table=fpr95")
    with pytest.raises(UserError, match="unknown --table 'accuracy'"):
        tables.main(tables.Args(root=root, detectors=True, table="accuracy"))
    (tmp_path / "seed0").mkdir()
    shutil.copy(root / "digits" / "standard" / "seed0" / "results.json", tmp_path / "seed0")
    with pytest.raises(UserError, match=r"no run under .* has detectors; give experiments\.run or paper"):
        tables.main(tables.Args(root=tmp_path, detectors=True))


def test_a_damaged_record_of_detectors_is_named(root, tmp_path, capsys):
    broken = tmp_path / "digits" / "standard" / "seed0"
    broken.mkdir(parents=True)
    source = root / "digits" / "standard" / "seed1"
    for name in ("results.json", "config.json"):
        (broken / name).write_bytes((source / name).read_bytes())
    content = (source / "detectors.json").read_text()
    for text in (content.replace('"auroc"', '"aurox"', 1), "{}", "[]", '{"detectors": {"msp": {"ood": []}}}', "{"):
        (broken / "detectors.json").write_text(text)
        assert ask(tables, f"--root={tmp_path}", "--detectors") == 2
        assert "detectors.json" in capsys.readouterr().err


def test_overwriting_a_run_removes_them(root, capsys):
    folder = root / "again"
    assert command(folder, "--method=standard", "--max-steps=2", "--detectors=msp", "--quiet") == 0
    assert command(folder, "--method=standard", "--max-steps=3", "--overwrite", "--quiet") == 0
    assert not (folder / "detectors.json").exists()


def test_evaluate_draws_and_averages(run, tmp_path, capsys):
    figure = tmp_path / "scores.png"
    options = ("--ood=photo,uniform,faraway", "--near=photo", "--detectors=msp,energy,ddu", f"--figure={figure}")
    assert ask(evaluate, f"--run={run}", *options, "--json", "--quiet") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["averages"]["near"]["sets"] == ["photo"]
    assert found["averages"]["far_away"]["fpr95"] == found["ood"]["faraway"]["fpr95"]
    for row in found["detectors"].values():
        assert row["averages"]["far"]["auroc"] == row["ood"]["uniform"]["auroc"]
        assert row["seconds"]["fit"] >= 0
    assert matplotlib.image.imread(figure).std() > 0.05
    assert ask(evaluate, f"--run={run}", *options[:3], "--quiet") == 0
    text = capsys.readouterr().out
    assert "FPR-95 ↓ / AUROC ↑ of each detector, in percent" in text
    assert "near-OOD, mean" in text
    assert ask(evaluate, f"--run={run}", *options[:3], "--ood-positive", "--quiet") == 0
    assert "AUPR (OOD) ↑" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--detectors=msp,energy", "--recalibrate=temperature"])
def test_what_was_computed_is_shown_where_the_figure_cannot_be_written(run, tmp_path, capsys, monkeypatch, option):
    runs_for_tests.full_disk(monkeypatch)
    capsys.readouterr()
    options = (f"--run={run}", "--ood=uniform", option, "--quiet")
    assert ask(evaluate, *options, f"--figure={tmp_path}/a.png") == 2
    shown, said = capsys.readouterr()
    assert (
        said == f"error: no space left on the device ({tmp_path}/a.png); free some, or choose another --run-dir or"
        " --data-dir\n"
    )
    assert ask(evaluate, *options) == 0
    assert shown == capsys.readouterr().out


def test_the_best_of_each_column_is_marked():
    def row(fpr, auroc):
        numbers = {"fpr95": fpr, "auroc": auroc, "aupr": 0.5, "fpr95_ood_positive": 0.5, "aupr_ood_positive": 0.5}
        return {"ood": {"uniform": numbers}, "seconds": {"fit": 1.0, "score": 0.25}}

    text = by_detector.table({"msp": row(0.5, 0.9), "knn": row(0.25, 0.8), "gram": {"left_out": "no maps"}})
    assert "50.0 / 90.0*" in text
    assert "25.0* / 80.0" in text
    assert "1.2" in text
    assert "Gram was left out: no maps" in text
    assert "*" not in by_detector.table({"msp": row(0.5, 0.9)})


def test_groups_of_openood():
    rows = {name: {"fpr95": value, "size": 10} for name, value in (("a", 0.2), ("b", 0.4), ("c", 1.0), ("faraway", 0))}
    found = averages.of(rows, ["a", "b"])
    assert {group: row["sets"] for group, row in found.items()} == {
        "near": ["a", "b"],
        "far": ["c"],
        "far_away": ["faraway"],
    }
    assert found["near"]["fpr95"] == pytest.approx(0.3)
    with pytest.raises(UserError, match="--near names d, which is not among the OOD test sets: a, b, c, faraway"):
        averages.of(rows, ["d"])


@pytest.fixture
def files(tmp_path):
    """Features of three classes and of two OOD sets, with the last layer's head in the training file."""
    rng = np.random.default_rng(0)
    means, head = 3.0 * np.eye(3, 5), (np.eye(5, 3), np.zeros(3))

    def made(n, center):
        labels = rng.integers(0, 3, n)
        x = (center(labels) + rng.normal(size=(n, 5))).astype(np.float32)
        return {"features": x, "logits": (x @ head[0] + head[1]).astype(np.float32), "labels": labels}

    train, test = (made(n, lambda labels: means[labels]) for n in (300, 120))
    np.savez(tmp_path / "train.npz", kernel=head[0], bias=head[1], **train)
    np.savez(tmp_path / "test.npz", **test)
    for name, shift in (("close", 3.0), ("distant", 60.0)):
        ood = made(90, lambda labels, shift=shift: np.full((len(labels), 5), -shift))
        del ood["labels"]
        np.savez(tmp_path / f"{name}.npz", **ood)
    return tmp_path


def of_files(files, *options):
    return (
        f"--features={files}/train.npz,{files}/test.npz",
        f"--ood={files}/close.npz,{files}/distant.npz",
        *options,
    )


def test_features_of_any_network(files, capsys):
    assert ask(evaluate, *of_files(files, f"--near={files}/close.npz", "--json", "--quiet")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["detectors"].keys() == set(features.default_detectors())
    left_out = {name for name, row in found["detectors"].items() if "left_out" in row}
    assert left_out == set()
    train, test, close = (dict(np.load(files / f"{name}.npz")) for name in ("train", "test", "close"))
    detector = detectors.fit("mahalanobis", detectors.Outputs(train["features"]), train["labels"])
    scores = [detectors.score(detector, detectors.Outputs(part["features"])) for part in (test, close)]
    row = found["detectors"]["mahalanobis"]
    assert row["ood"]["close"]["auroc"] == pytest.approx(float(metrics.auroc(*scores)))
    assert row["ood"]["distant"]["fpr95"] == 0
    assert row["averages"]["near"]["sets"] == ["close"]
    assert 0.8 < found["accuracy"] < 1
    assert ask(evaluate, *of_files(files, "--detectors=knn,vim", "--quiet")) == 0
    assert "accuracy on" in capsys.readouterr().out


def changed(files, name, **arrays):
    """train.npz with other arrays, None for none, under another name."""
    values = {**np.load(files / "train.npz"), **arrays}
    np.savez(files / name, **{key: value for key, value in values.items() if value is not None})
    return f"--features={files}/{name},{files}/test.npz"


def test_a_head_that_does_not_give_the_logits_is_said(files, capsys):
    kernel = np.load(files / "train.npz")["kernel"]
    assert ask(evaluate, changed(files, "other.npz", kernel=2.0 * kernel), f"--ood={files}/distant.npz") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "features · kernel + bias are not its logits: they differ by up to" in said
    assert ask(evaluate, *of_files(files, "--detectors=vim")) == 0
    assert "are not its logits" not in capsys.readouterr().err


def test_files_say_whether_there_is_an_ood_class(files, capsys):
    """Where the last class lacks examples, the file has to say."""
    train = np.load(files / "train.npz")
    fewer = train["labels"] != train["logits"].shape[1] - 1
    some = {name: train[name][fewer] for name in ("features", "logits", "labels")}
    options = (f"--ood={files}/distant.npz", "--json", "--quiet", "--detectors=msp,preload")
    assert ask(evaluate, changed(files, "few.npz", kernel=None, bias=None, **some), *options) == 2
    said = runs_for_tests.errors(capsys)[-1]
    assert "if the last of the 3 logits is of an OOD class, give num_classes=2, and else num_classes=3" in said
    given = {"kernel": None, "bias": None, "num_classes": np.array(2), **some}
    changed(files, "tested.npz", **given)
    both = changed(files, "said.npz", **given).replace("test.npz", "tested.npz")
    assert ask(evaluate, both, *options) == 0
    assert "ood" in json.loads(capsys.readouterr().out)["detectors"]["preload"]


def test_nothing_measured_is_an_error(files, capsys):
    features = changed(files, "few.npz", logits=None, kernel=None, bias=None)
    assert ask(evaluate, features, f"--ood={files}/distant.npz", "--detectors=vim,dice") == 2
    said = runs_for_tests.errors(capsys)[-1]
    assert "no detector could be measured: vim: head is missing" in said
    assert "dice: head is missing" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give one of --run=DIR, a finished run, --weights=FILE, and --features=TRAIN.npz,TEST.npz"),
        (("--features=HERE/labelled.npz,HERE/test.npz", "--ood=HERE/close.npz"), "labelled.npz: labels run to 7"),
        (
            ("--features=HERE/train.npz,HERE/test.npz", "--ood=HERE/close.npz", "--figure=HERE/a.xyz"),
            "a.xyz: figures are PNG files; expected a name such as scores.png",
        ),
        (("--features=HERE/classes.npz,HERE/test.npz", "--ood=HERE/close.npz"), "num_classes must be an integer"),
        (("--features=a.npz",), "expected two files, TRAIN.npz,TEST.npz"),
        (("--features=HERE/train.npz,HERE/test.npz",), "--features needs --ood"),
        (("--features=HERE/train.npz,HERE/gone.npz", "--ood=HERE/close.npz"), "gone.npz: no such file"),
        (("--features=HERE/train.npz,HERE/test.npz", "--ood=HERE/odd.npz"), "odd.npz: has ['a']; expected some of"),
        (("--features=HERE/half.npz,HERE/test.npz", "--ood=HERE/close.npz"), "has one of 'kernel' and 'bias'"),
        (("--features=HERE/text.npz,HERE/test.npz", "--ood=HERE/close.npz"), "text.npz: labels are <U1"),
        (("--features=HERE/train.npz,HERE/test.npz", "--ood=HERE/close.npz", "--near=x.npz"), "--near names x, which"),
        (
            ("--features=HERE/rows.npz,HERE/test.npz", "--ood=HERE/close.npz"),
            "different numbers of rows (features 3",
        ),
        (("--features=HERE/nan.npz,HERE/test.npz", "--ood=HERE/close.npz"), "features hold NaN or infinity in 3 of 3"),
        (("--features=HERE/none.npz,HERE/test.npz", "--ood=HERE/close.npz"), "features have no rows"),
        (
            ("--features=HERE/whole.npz,HERE/test.npz", "--ood=HERE/close.npz"),
            "features are int64 [3, 5]; expected",
        ),
        (
            ("--features=HERE/wide.npz,HERE/test.npz", "--ood=HERE/close.npz"),
            "features have 6 columns and the kernel",
        ),
        (("--features=HERE/train.npz,HERE/test.npz", "--ood=HERE/other.npz"), "features have 6 columns, those of"),
        (
            ("--features=HERE/train.npz,HERE/test.npz", "--ood=HERE/in_domain.npz"),
            "the in-domain scores have",
        ),
        (("--features=HERE/train.npz,HERE/labels.npz", "--ood=HERE/close.npz"), "labels run to 3; expected 0 to 2"),
        (("--features=HERE/train.npz,HERE/test.npz", "--run=R"), "--run is of a network, and --features has none"),
        (
            ("--features=HERE/train.npz,HERE/test.npz", "--ood=HERE/close.npz,HERE/b/close.npz"),
            "two OOD files have",
        ),
        (("--run=R", "--figure=a.png"), "--figure draws detectors or recalibrations; give one of --detectors=all"),
        (
            ("--features=HERE/train.npz,HERE/test.npz", "--ood=HERE/close.npz", "--detectors=msp", "--figure=HERE"),
            "a folder, not a file; expected a file for the figure",
        ),
    ],
)
def test_wrong_use(files, options, message, capsys):
    np.savez(files / "odd.npz", a=np.ones(3))
    np.savez(files / "labelled.npz", logits=np.ones((3, 3)), labels=np.array([0, 1, 7]))
    np.savez(files / "classes.npz", logits=np.ones((3, 3)), num_classes=np.array([3, 4]))
    np.savez(files / "half.npz", features=np.ones((3, 5)), kernel=np.ones((5, 3)))
    np.savez(files / "rows.npz", features=np.ones((3, 5)), logits=np.ones((2, 3)))
    np.savez(files / "nan.npz", features=np.full((3, 5), np.nan))
    np.savez(files / "none.npz", features=np.ones((0, 5)))
    np.savez(files / "whole.npz", features=np.ones((3, 5), int))
    np.savez(files / "wide.npz", features=np.ones((3, 6)), kernel=np.ones((5, 3)), bias=np.ones(3))
    np.savez(files / "other.npz", features=np.ones((3, 6)))
    np.savez(files / "labels.npz", features=np.ones((2, 5)), logits=np.ones((2, 3)), labels=np.array([0, 3]))
    np.savez(files / "text.npz", features=np.ones((3, 5)), labels=np.array(["a", "b", "c"]))
    assert ask(evaluate, *(option.replace("HERE", str(files)) for option in options)) == 2
    err = runs_for_tests.errors(capsys)
    assert len(err) == 1
    assert message in err[0]


def test_of_detectors_that_are_left_out_the_table_says_how_many():
    row = {"ood": {"photo": {"fpr95": 0.1, "auroc": 0.9}}, "seconds": {"fit": 1.0, "score": 1.0}}
    shown = by_detector.table({"msp": row, "knn": row, "vim": {"left_out": "head is missing"}}, width=100)
    assert "2 of 3 detectors could be measured" in shown
    assert "could be measured" not in by_detector.table({"msp": row}, width=100)


def test_the_list_is_as_wide_as_was_asked_for(monkeypatch):
    for columns, widest in (("70", 70), ("", 121), ("none", 121)):
        monkeypatch.setenv("COLUMNS", columns)
        assert max(map(len, detector_list.table().splitlines())) == widest


def test_detectors_are_listed(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert ask(evaluate, "--detectors=list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(detectors.TABLE)
    assert rows[0] == {
        "name": "msp",
        "title": "MSP",
        "reference": "Hendrycks and Gimpel, ICLR 2017",
        "year": 2017,
        "needs": ["logits"],
    }
    assert ask(evaluate, "--detectors=list") == 0
    shown = capsys.readouterr().out
    for module, options in ((run_command, ()), (paper, ()), (certify, ("--run=x",))):
        assert ask(module, *options, "--detectors=list") == 0
        assert capsys.readouterr().out == shown
    assert ask(run_command, "--detectors=list", "--optimizer.name=adam") == 2
    assert runs_for_tests.errors(capsys) == [
        "error: --detectors=list shows which there are, and --optimizer changes nothing; leave one out"
    ]
    assert shown.startswith(f"{len(detectors.TABLE)} detectors")
    assert all(name in shown and row.reference in shown for name, row in detectors.TABLE.items())
    assert ask(evaluate, "--detectors=list", "--run=x") == 2
    assert "--run changes nothing; leave one out" in capsys.readouterr().err
