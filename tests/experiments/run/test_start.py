"""Files of weights that a run starts from: of an export, of `weights.save`, and of torch."""

import hashlib
import json
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.cli.display import Display
from experiments.evaluate import command as evaluate
from experiments.run import command as run
from experiments.run import start, start_file
from experiments.run.command import Args
from experiments.runs import configuration, records
from experiments.runs import folder as runs
from preload_jax import Classifier, make_classifier, models, weights
from preload_jax.data import datasets
from preload_jax.errors import DataError, UserError
from preload_jax.training.data import TrainingData
from tests import torch_files, torch_networks
from tests.experiments import runs_for_tests

SHAPE = (8, 8, 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    assert run.main(Args(method="standard", root=root, max_steps=40, quiet=True)) == 0
    return root


@pytest.fixture(scope="module")
def exported(root):
    file = root / "standard.safetensors"
    runs_for_tests.ask(evaluate, f"--run={root}/digits/standard/seed0", f"--export={file}")
    return file


def ft(tmp_path, start, **options):
    args = Args(
        **{"method": "oe_ft", "outliers": "uniform", "max_steps": 2, "ood_images": 20, "start": start, **options}
    )
    return run.main(Args(**{**vars(args), "run_dir": tmp_path / "run"}))


def variables_in(path):
    return runs.load_run(path).variables


def test_an_export_is_the_same_start_as_its_run(root, exported, tmp_path, capsys):
    assert ft(tmp_path, exported) == 0
    said = capsys.readouterr().err
    assert f"starting from {exported} (accuracy on 1,000 training images " in said
    assert "training it first" not in said
    assert ft(tmp_path / "other", root / "digits" / "standard" / "seed0") == 0
    jax.tree.map(
        np.testing.assert_array_equal, variables_in(tmp_path / "run"), variables_in(tmp_path / "other" / "run")
    )


def test_a_run_goes_on_with_its_file_alone(exported, tmp_path, capsys):
    assert ft(tmp_path, exported) == 0
    before = variables_in(tmp_path / "run")
    assert ft(tmp_path, exported) == 0
    assert "is finished; reporting it" in capsys.readouterr().err
    jax.tree.map(np.testing.assert_array_equal, variables_in(tmp_path / "run"), before)


def test_a_start_whose_classes_have_other_names_now_is_refused(tmp_path, capsys):
    rng = np.random.default_rng(0)
    arrays = {"images": rng.integers(0, 256, (60, 8, 8), np.uint8), "labels": np.repeat([0, 1], 30)}
    own = tmp_path / "own.npz"
    np.savez(own, class_names=["ant", "bee"], **arrays)
    common = ("--backbone=mlp", "--batch-size=8", "--max-steps=1", "--quiet", f"--dataset={own}", "--outliers=uniform")
    assert runs_for_tests.command(tmp_path / "standard", "--method=standard", *common) == 0
    file = tmp_path / "x.safetensors"
    assert runs_for_tests.ask(evaluate, f"--run={tmp_path}/standard", f"--export={file}") == 0
    np.savez(own, class_names=["ant", "wasp"], **arrays)
    for each in (file, tmp_path / "standard"):
        assert runs_for_tests.command(tmp_path / "ft", "--method=oe_ft", f"--start={each}", *common) == 2
        assert "knows the classes ant, bee, and " in capsys.readouterr().err


def saved(path, backbone=None, *, num_classes=10, head="linear", shape=SHAPE, **metadata):
    model = Classifier(backbone or models.MLP(), make_classifier("mlp", head, num_classes=num_classes).head)
    weights.save(
        path, model, model.init(jax.random.key(0), jnp.zeros((1, *shape))), image_shape=shape, metadata=metadata
    )
    return path


class Mine(nn.Module):
    """A backbone that the library does not know."""

    @nn.compact
    def __call__(self, x, *, train):
        return x.reshape(len(x), -1)


def read(file, **options):
    """The variables that a run would start from."""
    config = run.resolve(Args(**{"method": "oe_ft", "outliers": "uniform", "start": file, **options}))
    wanted = start.standard_config(config, "standard")
    some = TrainingData(np.zeros((4, *config.data.image_shape), np.uint8), np.zeros(4, np.int32), None)
    return start_file.read(file, config, wanted, load_data=lambda: some, display=Display())


def test_a_file_that_says_nothing_of_its_training_does(tmp_path):
    assert ft(tmp_path, saved(tmp_path / "mine.safetensors")) == 0


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        ({"backbone": models.MLP(widths=(7,))}, {}, r'"widths": \[7\].* this run has .*give the same --backbone'),
        ({"num_classes": 9}, {}, "a linear head for 9 classes; oe_ft starts from a linear head for 10"),
        ({"head": "square_logit"}, {}, "a square_logit head for 10 classes; oe_ft starts from a linear head"),
        ({"method": "oe"}, {}, "its method is oe; oe_ft needs standard here"),
        ({"dataset": "mnist"}, {}, "its dataset is mnist; oe_ft needs digits here"),
        ({"config": "{}"}, {}, "its configuration is of another version"),
        (
            {"backbone": models.ConvNet(), "shape": (16, 12, 1)},
            {"backbone": "conv_net"},
            "holds a network for images of 16×12×1, this run's are 8×8×1; give the --image-size",
        ),
        (
            {"class_names": json.dumps([*map(str, range(9)), "ten"])},
            {},
            "knows the classes 0, 1, 2, 3, 4, 5, 6, 7, 8, ten, and digits has 0, 1, ",
        ),
        (
            {"class_names": json.dumps([*map(str, range(8)), "9", "8"])},
            {},
            "knows the classes of digits in another order: its class 8 is 9, and here it is 8; labels would mean",
        ),
        ({"class_names": "0, 1"}, {}, "its class_names are '0, 1'; expected a JSON list of texts"),
        ({}, {"backbone": "conv_net"}, '"name": "mlp".* this run has .*"conv_net"'),
        ({}, {"method": "preload"}, "preload starts from random weights; leave --start out"),
    ],
)
def test_files_of_other_networks_are_refused(made, options, message, tmp_path):
    file = saved(tmp_path / "mine.safetensors", **made)
    with pytest.raises((UserError, DataError), match=message):
        ft(tmp_path, file, **options)
    assert not (tmp_path / "run" / "results.json").exists()


def test_an_export_of_another_validation_split_is_refused(exported, tmp_path):
    with pytest.raises(UserError, match="was trained with --validation=test, this run has --validation=train"):
        ft(tmp_path, exported, validation="train")


def test_what_is_no_network_is_refused(tmp_path):
    file = tmp_path / "notes.pt"
    file.write_text("no weights")
    with pytest.raises(DataError, match=r"notes\.pt"):
        ft(tmp_path, file)
    with pytest.raises(UserError, match="no such file or folder; give the folder of a finished standard run"):
        ft(tmp_path, tmp_path / "nothing.safetensors")


@pytest.fixture
def own_data(tmp_path):
    digits = datasets.load(datasets.get("digits"))
    file = tmp_path / "own.npz"
    np.savez(file, images=digits.train.images[:300, :, :, 0], labels=digits.train.labels[:300])
    return str(file)


def test_images_of_every_class_are_asked_about_where_they_are_sorted(tmp_path, capsys):
    labels = np.repeat(np.arange(3), 1_300)
    images = np.array([0, 128, 255], np.uint8)[labels, None, None].repeat(8, axis=1).repeat(8, axis=2)
    np.savez(tmp_path / "own.npz", images=images, labels=labels)
    model = make_classifier("mlp", "linear", num_classes=3, widths=(1,))
    # It takes the second class for the third, and the third for the second.
    kernel, bias = np.array([[-1.0, 1.0, 0.0]], np.float32), np.array([0.25, -0.75, 0.0], np.float32)
    grey = {"kernel": np.full((64, 1), 1 / 64, np.float32), "bias": np.zeros(1, np.float32)}
    variables = {"params": {"backbone": {"dense1": grey}, "head": {"linear": {"kernel": kernel, "bias": bias}}}}
    file = tmp_path / "mine.safetensors"
    weights.save(file, model, variables, image_shape=SHAPE)
    mlp = {"backbone": "mlp", "backbone_options": {"widths": "1"}}
    for method in ("oe_ft", "energy_ft"):
        assert ft(tmp_path / method, file, dataset=str(tmp_path / "own.npz"), method=method, max_steps=1, **mlp) == 0
    said = capsys.readouterr().err
    assert said.count("(accuracy on 1,000 training images 33.4 %)") == 2
    logits = np.array([[0.0], [128 / 255], [1.0]]) @ kernel + bias
    energy = -np.log(np.exp(logits).sum(axis=1)).mean()
    assert f"mean energy of the starting network: {energy:.2f} on training images (margin " in said


def test_torch_files_are_read_as_what_the_run_has(own_data, tmp_path, capsys):
    torch_files.save(tmp_path / "net.pt", torch_files.tensors(torch_files.lenet(10)))
    common = {"dataset": own_data, "validation": "train", "max_steps": 1}
    lenet = {"backbone": "lenet", "backbone_options": {"channels": "8,64", "width": "16"}}
    assert ft(tmp_path, tmp_path / "net.pt", **lenet, **common) == 0
    assert "net.pt (accuracy on " in capsys.readouterr().err
    with pytest.raises(UserError, match="holds a network lenet, this run has mlp; give the same --backbone"):
        ft(tmp_path / "other", tmp_path / "net.pt", backbone="mlp", **common)
    with pytest.raises(UserError, match=r"conv1/bias is an array \[8\], this run's network has an array \[32\] there"):
        ft(tmp_path / "other", tmp_path / "net.pt", backbone="lenet", **common)


def test_the_run_says_the_heads_that_no_tensor_of_a_vit_does(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", images=rng.integers(0, 256, (60, 8, 8, 3), np.uint8), labels=np.repeat([0, 1], 30))
    torch_files.save(tmp_path / "vit.pt", torch_files.tensors(torch_networks.vit(classes=2)))
    common = {"dataset": str(tmp_path / "own.npz"), "backbone": "vit"}
    options = {"patch": "4", "depth": "2", "width": "8", "hidden": "12"}
    found = read(tmp_path / "vit.pt", **common, backbone_options={**options, "heads": "2"})
    expected = weights.load(tmp_path / "vit.pt", heads=2).variables
    jax.tree.map(np.testing.assert_array_equal, found["params"], expected["params"])
    # A file of another kind is not asked for its heads.
    with pytest.raises(UserError, match=r"mine\.safetensors: (?!heads)"):
        read(
            saved(tmp_path / "mine.safetensors", Mine(), num_classes=2, shape=(8, 8, 3)),
            **common,
            backbone_options={**options, "heads": "2"},
        )


def test_own_data_may_have_moved_where_the_file_says_the_classes(own_data, tmp_path, capsys):
    names = json.dumps([str(label) for label in range(10)])
    file = saved(tmp_path / "mine.safetensors", dataset="folder:/on/another/machine", class_names=names)
    assert "params" in read(file, dataset=own_data, backbone="mlp")
    said = f"it was trained on folder:/on/another/machine, which is taken for {own_data}: classes and image size"
    assert said in capsys.readouterr().err
    with pytest.raises(UserError, match="its dataset is folder:/on/another/machine; oe_ft needs digits here"):
        read(file)
    silent = saved(tmp_path / "silent.safetensors", dataset="folder:/on/another/machine")
    with pytest.raises(UserError, match="its dataset is folder:/on/another/machine; oe_ft needs "):
        read(silent, dataset=own_data, backbone="mlp")


@pytest.fixture
def finished(tmp_path):
    """The start of a run that is finished, in a folder "run" beside it."""
    file = saved(tmp_path / "mine.safetensors")
    assert ft(tmp_path, file) == 0
    return file


def test_a_finished_run_is_of_the_content_of_its_file(finished, tmp_path, monkeypatch, capsys):
    written = finished.read_bytes()
    assert runs.RunDir(tmp_path / "run").read_config().start_digest == hashlib.sha256(written).hexdigest()
    monkeypatch.chdir(tmp_path)
    # Other spellings of the same file, a copy, and a file that is gone.
    (tmp_path / "copy.safetensors").write_bytes(written)
    for spelled in ("mine.safetensors", "copy.safetensors"):
        assert ft(tmp_path, Path(spelled)) == 0
    finished.unlink()
    assert ft(tmp_path, Path("../") / tmp_path.name / finished.name) == 0
    assert capsys.readouterr().err.count("is finished; reporting it") == 3
    saved(finished, note="another")
    named = r"'.*mine\.safetensors \(SHA-256 [0-9a-f]{16}\)'"
    with pytest.raises(UserError, match=f"--start {named} there, {named} asked for; give --overwrite"):
        ft(tmp_path, finished)


def test_runs_of_earlier_versions_are_of_the_path_of_their_file(finished, tmp_path, capsys):
    run_dir = runs.RunDir(tmp_path / "run")
    values = configuration.as_dict(run_dir.read_config())
    del values["start_digest"]
    records.write(run_dir.config, values)
    told = records.read(run_dir.results, advice="")
    del told["config_digest"]
    records.write(run_dir.results, told)
    saved(finished, note="another")
    assert ft(tmp_path, finished) == 0
    assert "is finished; reporting it" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"--start '.*mine\.safetensors' there, '.*other\.safetensors' asked for"):
        ft(tmp_path, tmp_path / "other.safetensors")
