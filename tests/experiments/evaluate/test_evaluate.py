"""Evaluating again: a run gives its own results, an exported file the same, and all nine methods' torch files."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from experiments.cli.display import Display
from experiments.evaluate import command as evaluate
from experiments.evaluate import report
from experiments.runs import trained
from preload_jax.errors import UserError
from preload_jax.formats import weights
from preload_jax.methods import METHODS
from preload_jax.models import make_classifier
from tests import torch_files
from tests.experiments import results_for_tests, runs_for_tests
from tests.experiments.runs_for_tests import command


def ask(*options, status=0):
    assert runs_for_tests.ask(evaluate, *options) == status


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate") / "preload"
    assert command(folder, "--max-steps=20", "--outliers=uniform", "--quiet") == 0
    return folder


@pytest.fixture
def few(tmp_path):
    """A small OOD set."""
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), np.uint8)
    np.save(tmp_path / "few.npy", images)
    return tmp_path / "few.npy"


def test_a_run_again_is_what_it_was_and_so_is_its_file(run, tmp_path, capsys):
    results = (run / "results.json").read_bytes()
    values = json.loads(results)
    ask(f"--run={run}", "--json")
    again = capsys.readouterr()
    # Digest and all: it may be kept as a results.json.
    assert json.loads(again.out) == values
    assert "evaluating" in again.err
    file = tmp_path / "network.safetensors"
    ask(f"--run={run}", f"--export={file}")
    assert capsys.readouterr().out == f"exported  {file}\n"
    ask(f"--weights={file}", "--json", "--quiet")
    from_file = capsys.readouterr()
    assert from_file.err == ""
    assert json.loads(from_file.out) | {"digest": values["digest"]} == values | {"weights": str(file)}
    assert (run / "results.json").read_bytes() == results


def test_other_sets_another_split_and_both_directions(run, few, capsys):
    ask(f"--run={run}", f"--ood=uniform,{few}", "--validation=none", "--ood-positive", "--json")
    results = json.loads(capsys.readouterr().out)
    assert results["in_domain"]["size"] == 500
    assert list(results["ood"]) == ["uniform", str(few)]
    assert results["positive_class"] == "in_domain"
    row = results["ood"][str(few)]
    assert row["size"] == 60
    assert set(row) == {"fpr95", "auroc", "aupr", "mmc", "size", "fpr95_ood_positive", "aupr_ood_positive"}
    ask(f"--run={run}", f"--ood={few}", "--ood-positive")
    table = capsys.readouterr().out
    assert "The positive class is in brackets (AUROC is the same for both); in-domain has the higher score." in table
    ask(f"--run={run}", f"--ood={few}")
    assert "In-domain is the positive class and has the higher score." in capsys.readouterr().out


def test_a_name_that_is_no_set_is_told_before_anything_is_computed(run, few, capsys, monkeypatch):
    monkeypatch.delattr("experiments.evaluate.report.scorer_of")
    ask(f"--run={run}", f"--ood={few},uniforn", status=2)
    assert "error: unknown OOD set 'uniforn' (did you mean 'uniform'?)" in capsys.readouterr().err


def test_all_names_that_are_no_sets_are_told_at_once_and_nothing_else(run, few, tmp_path, capsys, monkeypatch):
    (tmp_path / "nines").mkdir()
    monkeypatch.chdir(tmp_path)
    ask(f"--run={run}", f"--ood={few},nines,unifrom", status=2)
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(
        "error: unknown OOD sets 'nines' (did you mean folder:nines?), 'unifrom' (did you mean 'uniform'?); expected"
    )
    # What is said of outliers would be of names that there are not.
    assert "warning" not in said


# A file holds no dropout, no posterior of a last layer, and no densities.
@pytest.mark.parametrize(
    "method", [name for name, row in METHODS.items() if not row.draws and row.head not in ("laplace", "rgpr", "ccu")]
)
def test_the_released_codes_files_of_every_method(method, few, tmp_path, capsys):
    head = METHODS[method].head
    arrays = torch_files.lenet(11 if head == "none_class" else 10, square_logit=head == "square_logit")
    path = torch_files.save(tmp_path / "a.pt", torch_files.tensors(arrays))
    options = (f"--weights={path}", "--dataset=digits", f"--method={method}", f"--ood={few}", "--json")
    ask(*options, "--recipe=released_code")
    results = json.loads(capsys.readouterr().out)
    assert (results["method"], results["recipe"]) == (method, "released_code")
    assert 0.0 <= results["ood"][str(few)]["auroc"] <= 1.0
    assert results.get("ddu_jitter") == (0.1 if method == "ddu" else None)


def read(path, **options):
    options = {"dataset": None, "method": None, "recipe": None, **options}
    return trained.read(None, path, display=Display(quiet=True), **options)


@pytest.mark.parametrize(
    ("name", "outputs", "square_logit", "dataset", "method"),
    [
        ("MNIST_plain_1", 10, False, "mnist", "standard"),
        ("FMNIST_noneclass_2", 11, False, "fashion_mnist", "nc"),
        ("MNIST_energy_finetuning_5", 10, False, "mnist", "energy_ft"),
        ("MNIST_oe_finetuning_3", 10, False, "mnist", "oe_ft"),
        ("FMNIST_preload_ft_4", 10, True, "fashion_mnist", "preload_ft"),
    ],
)
def test_the_released_codes_names_say_data_set_and_method(tmp_path, name, outputs, square_logit, dataset, method):
    arrays = torch_files.lenet(outputs, square_logit=square_logit, side=28)
    path = torch_files.save(tmp_path / f"{name}.pt", torch_files.tensors(arrays))
    found = read(path)
    assert (found.config.dataset, found.config.method, found.config.seed) == (dataset, method, int(name[-1]))
    # What is given wins.
    if method == "standard":
        assert read(path, dataset="fashion_mnist", method="ddu").config.method == "ddu"


def test_a_file_means_what_it_was_exported_with_unless_another_recipe_is_asked_for(tmp_path):
    path = torch_files.save(tmp_path / "a.pt", torch_files.tensors(torch_files.lenet(square_logit=True)))
    file = tmp_path / "a.safetensors"
    trained.export(read(path, dataset="digits", recipe="released_code"), file)
    for recipe, expected in ((None, "released_code"), ("released_code", "released_code"), ("paper", "paper")):
        config = read(file, recipe=recipe).config
        assert (config.recipe, config.released_code_ece) == (expected, expected == "released_code")


def test_a_standard_network_may_be_scored_as_ddu_is(tmp_path):
    path = torch_files.save(tmp_path / "a.pt", torch_files.tensors(torch_files.lenet()))
    file = tmp_path / "a.safetensors"
    trained.export(read(path, dataset="digits", method="standard"), file)
    found = read(file, method="ddu")
    assert (found.method.name, found.gaussians) == ("ddu", None)  # fitted when they are needed


def test_what_the_head_leaves_open_must_be_said(tmp_path):
    path = torch_files.save(tmp_path / "a.pt", torch_files.tensors(torch_files.lenet()))
    with pytest.raises(UserError, match="does not say what it was trained on; give --dataset"):
        read(path)
    with pytest.raises(UserError, match="does not say its method, which decides the score; give --method=standard"):
        read(path, dataset="digits")
    with pytest.raises(UserError, match=r"linear head \(10 classes\); preload needs a square_logit head"):
        read(path, dataset="digits", method="preload")
    with pytest.raises(UserError, match=r"images \[8, 8, 1\]; mnist has 10 classes of \[28, 28, 1\]"):
        read(path, dataset="mnist", method="oe")
    square = torch_files.save(tmp_path / "b.pt", torch_files.tensors(torch_files.lenet(square_logit=True)))
    assert read(square, dataset="digits").config.method == "preload"


def test_a_file_of_ones_own_images_stands_alone(tmp_path):
    data = tmp_path / "photos"
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (data / name).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)).save(data / name / f"{i}.png")
    arrays = torch_files.lenet(2, square_logit=True)
    path = torch_files.save(tmp_path / "a.pt", torch_files.tensors(arrays))
    file = tmp_path / "a.safetensors"
    trained.export(read(path, dataset=f"folder:{data}"), file)
    shutil.copytree(data / "cat", data / "ant")
    assert read(file).spec.class_names == ("cat", "dog")
    other = tmp_path / "other"
    for old, new in (("cat", "bee"), ("dog", "cow")):
        shutil.copytree(data / old, other / new)
    with pytest.raises(UserError, match="labels would mean other classes"):
        read(file, dataset=f"folder:{other}")
    data.rename(tmp_path / "elsewhere")
    found = read(file)
    assert (found.spec.class_names, found.spec.image_shape) == (("cat", "dog"), (8, 8, 1))
    with pytest.raises(UserError, match="no such folder"):
        read(file, dataset=f"folder:{data}")


def test_a_file_without_a_configuration_says_its_own_classes(tmp_path):
    """As `weights.save` writes it, or an earlier version did."""
    model = make_classifier("mlp", "square_logit", num_classes=2, widths=(4,))
    variables = model.init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)))
    said = {"dataset": f"folder:{tmp_path / 'gone'}", "method": "preload"}
    for name, more in (("named", {"class_names": '["cat", "dog"]'}), ("unnamed", {})):
        file = tmp_path / f"{name}.safetensors"
        weights.save(file, model, variables, image_shape=(8, 8, 1), metadata={**said, **more})
    assert read(tmp_path / "named.safetensors").spec.class_names == ("cat", "dog")
    with pytest.raises(UserError, match="no such folder"):
        read(tmp_path / "unnamed.safetensors")


def test_own_photos_are_not_told_of_the_papers_sets():
    for dataset, said in (("mnist", True), ("folder:photos", False), ("own.npz", False)):
        found = results_for_tests.results(dataset, ood_not_prepared=["svhn"])
        assert ("not prepared, so not tested: svhn" in report.table(found, width=200)) == said


def test_no_rule_is_made_of_training_images(run, tmp_path, capsys):
    file = tmp_path / "network.safetensors"
    ask(f"--run={run}", f"--export={file}")
    capsys.readouterr()
    for network in (f"--run={run}", f"--weights={file}"):
        ask(network, "--validation=train", "--ood=uniform", status=2)
        said = capsys.readouterr()
        assert "was trained with --validation=test, on these images, too, of which a rule would promise" in said.err
        assert said.out == ""
