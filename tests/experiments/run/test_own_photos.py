"""A run on a folder of photos: what it says, the size and network asked for, and what the run's folder knows."""

import json
import re

import numpy as np
import pytest

from experiments.certify import command as certify
from experiments.evaluate import command as evaluate
from experiments.export import command as export
from experiments.predict import command as predict
from experiments.run import command as run
from experiments.runs import folder
from experiments.runs.data import load_splits
from experiments.runs.folder import RunDir
from preload_jax import api
from preload_jax.data import outliers, own_folder
from tests import published_files
from tests.experiments.runs_for_tests import ask

# A network that takes no time to compile.
OPTIONS = (
    "--image-size=12",
    "--backbone=mlp",
    "--backbone.widths=8,4",
    "--batch-size=8",
    "--epochs=6",
    "--outliers=uniform",
    "--ood-images=3",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("own")
    published_files.image_folder(place / "photos", each=20, size=(20, 14))
    return place


@pytest.fixture(scope="module")
def started(place):
    """The options of a run that is finished."""
    options = [f"--dataset=folder:{place}/photos", f"--run-dir={place}/run", f"--data-dir={place}/data", *OPTIONS]
    assert ask(run, *options) == 0
    return options


def test_what_a_run_says_before_it_begins_and_after_the_first_steps(place, capsys):
    options = [f"--dataset=folder:{place}/photos", f"--run-dir={place}/said", f"--data-dir={place}/data", *OPTIONS]
    assert ask(run, *options) == 0
    lines = capsys.readouterr().err.splitlines()
    name = f"folder:{place}/photos"
    first = next(i for i, line in enumerate(lines) if line.startswith(name))
    assert lines[first] == (
        f"{name}: 32 training, 1 validation (out of the images that were set apart for testing) and 7 test images;"
        " there is no test split, so a fixed fifth of the images was set apart for testing"
    )
    assert lines[first + 1 : first + 6] == [
        "2 classes: a, b",
        (
            "the network sees images of 12×12 pixels, in colour: images of 20×14 pixels are resized to 12×12;"
            " --image-size sets another size"
        ),
        "network mlp --backbone.widths=8,4, since the images are small; --backbone chooses another",
        (
            "50 % of training images are changed at random: shifted by up to 1 pixel and mirrored left to right half"
            " the time; --augmentation.flip=False where mirrored images mean something else, such as letters;"
            " --augmentation.probability=0 changes none"
        ),
        "batches of 8 images: the usual 128 are more than the 32 training images; --batch-size sets another size",
    ]
    memory = r"memory: about (\S+ .B) to \S+ .B \((.*) this process has already, the rest for steps of (\d+) images\)"
    found = re.match(memory, lines[first + 6])
    assert found
    said, before = (float(size) * {"MB": 1e6, "GB": 1e9}[unit] for size, unit in map(str.split, found.groups()[:2]))
    # Of so small a network nearly all is the process itself, and what compiling takes.
    assert 1e8 < before < said < before + 4e8
    assert found[3] == "16"
    assert lines[first + 7] == "time: 24 steps; how long one takes is measured in the first ones"
    # The outliers are no other setting: no recipe says which are usual for one's own images.
    assert lines[first + 10].startswith("settings that are not the usual ones (those in brackets): epochs ")
    assert "outliers" not in lines[first + 10]
    measured = [i for i, line in enumerate(lines) if "a step takes" in line and "measured on" in line]
    assert len(measured) == 1
    assert measured[0] > first


def test_the_batch_fits_few_images(place, capsys):
    others = [option for option in OPTIONS if not option.startswith("--batch-size")]
    options = [f"--dataset=folder:{place}/photos", f"--run-dir={place}/few", f"--data-dir={place}/data", *others]
    for validation, train in (("test", 32), ("train", 26)):
        asked = [*options, f"--validation={validation}", "--max-steps=1", "--overwrite"]
        assert ask(run, *asked) == 0
        size = 32 if train == 32 else 16
        line = f"batches of {size} images: the usual 128 are more than the {train} training images; --batch-size sets"
        assert line in capsys.readouterr().err
        assert RunDir(place / "few").read_config().batch_size == size
    # The same command finds the run that it made, and another batch is another run.
    assert ask(run, *asked[:-1]) == 0
    assert ask(run, *asked[:-1], "--batch-size=8") == 2
    assert "--batch-size 16 there, 8 asked for" in capsys.readouterr().err


def test_validation_images_of_its_own_are_said_to_be(place, capsys):
    content = {}
    for split, count in (("train", 16), ("val", 10), ("test", 12)):
        content |= {
            f"x_{split}": published_files.random_images(count, (12, 12, 3), count),
            f"y_{split}": np.arange(count) % 2,
        }
    np.savez(place / "own.npz", **content)
    others = [option for option in OPTIONS if not option.startswith("--image-size")]
    options = [f"--dataset={place}/own.npz", f"--run-dir={place}/own", f"--data-dir={place}/data", *others]
    assert ask(run, *options) == 0
    said = capsys.readouterr().err
    assert f"{place}/own.npz: 16 training, 10 validation (the data set's own) and 12 test images" in said
    assert RunDir(place / "own").read_results()["validation"]["split"] == "own"


def test_the_runs_folder_knows_size_and_network(place, started, capsys):
    config = RunDir(place / "run").read_config()
    assert config.data.image_shape == (12, 12, 3)
    assert (config.backbone_options, config.ood_images) == ({"widths": [8, 4]}, 3)
    results = RunDir(place / "run").read_results()
    assert {row["size"] for row in results["ood"].values()} == {3}
    # 12·12·3 → 8 → 4 → 2 classes and the OOD class, whose 4 weights and bias are its own.
    assert results["num_parameters"] == 432 * 8 + 8 + 8 * 4 + 4 + 4 * 2 + 2 + 4 + 1
    capsys.readouterr()
    of_run = (f"--run={place}/run", f"--data-dir={place}/data", "--json")
    assert ask(evaluate, *of_run) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["in_domain"], again["ood"]) == (results["in_domain"], results["ood"])
    assert ask(evaluate, *of_run, "--ood=uniform", "--ood-images=5") == 0
    assert json.loads(capsys.readouterr().out)["ood"]["uniform"]["size"] == 5
    photo = next((place / "photos").rglob("*.png"))
    assert ask(predict, f"--run={place}/run", str(photo)) == 0
    assert ask(export, f"--run={place}/run", f"--out={place}/network.jaxexport") == 0


def test_predict_sees_the_images_as_training_and_evaluate_do(place, started, capsys):
    photos = sorted((place / "photos").rglob("*.png"))
    capsys.readouterr()
    assert ask(predict, f"--run={place}/run", *map(str, photos), "--json") == 0
    answers = json.loads(capsys.readouterr().out)["images"]
    assert {tuple(answer["changes"]) for answer in answers} == {("squashed from 20×14 to 12×12",)}
    network = folder.load_run(place / "run", on_damaged=pytest.fail)
    splits = load_splits(network.config, data_dir=place / "data")
    images = np.concatenate([part.images for part in (splits.train, splits.validation, splits.test)])
    expected = api.predict(network.model, network.variables, images, score=network.method.score, ood_class=True).score
    np.testing.assert_allclose(sorted(answer["score"] for answer in answers), np.sort(expected), rtol=1e-5, atol=1e-5)


def test_predict_says_how_to_get_the_images_that_a_rule_takes(place, started, capsys):
    image = next((place / "photos" / "a").iterdir())
    asked = [f"--run={place}/run", str(image), "--quiet"]
    assert ask(predict, *asked, "--false-alarm-rate=0.05") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "at least 59: hold out more" in said
    assert (
        "Train again with --validation=train, which holds out a fifth of the training images (295 are enough)" in said
    )
    # So many are never held out.
    assert ask(predict, *asked, "--false-alarm-rate=0.001") == 2
    assert "--validation=train" not in capsys.readouterr().err


def test_images_that_do_not_fit_into_memory_give_the_same_results(place, started, capsys, monkeypatch):
    monkeypatch.setattr(own_folder, "free_memory", lambda: 0)
    options = [option for option in started if not option.startswith("--run-dir")]
    assert ask(run, *options, f"--run-dir={place}/disk") == 0
    assert "of images do not fit into memory; they are kept in" in capsys.readouterr().err
    expected, found = (RunDir(place / name).read_results() for name in ("run", "disk"))
    assert (found["in_domain"], found["ood"]) == (expected["in_domain"], expected["ood"])


@pytest.mark.parametrize("command", [evaluate, certify])
def test_images_that_have_gone_are_one_line(place, started, capsys, command):
    asked = (f"--run={place}/run", f"--data-dir={place}/data", "--quiet")
    (place / "photos").rename(place / "moved")
    try:
        assert ask(command, *asked) == 2
        assert capsys.readouterr().err.splitlines() == [
            f"error: {place}/photos: the images of the run are not there any more; put them back, or a link to them"
        ]
        photo = next((place / "moved").rglob("*.png"))
        assert ask(predict, f"--run={place}/run", str(photo)) == 0
        assert ask(export, f"--run={place}/run", f"--out={place}/gone.jaxexport") == 0
        # A finished run is reported without them, and its size still counts.
        assert ask(run, *started) == 0
        assert ask(run, *started, "--image-size=16") == 2
        (place / "photos").symlink_to(place / "moved")
        assert ask(command, *asked) == 0
    finally:
        (place / "photos").unlink(missing_ok=True)
        (place / "moved").rename(place / "photos")


def test_another_size_or_network_is_another_run(started, capsys):
    for option, words in (
        ("--image-size=16", "--image-size [12, 12, 3] there, [16, 16, 3] asked for"),
        ("--backbone.widths=8,5", "--backbone.widths [8, 4] there, [8, 5] asked for"),
        ("--ood-images=4", "--ood-images 3 there, 4 asked for"),
        ("--augmentation.flip=False", "--augmentation.flip True there, False asked for"),
        ("--augmentation.probability=0", "--augmentation.probability 0.5 there, 0.0 asked for"),
    ):
        assert ask(run, *started, option) == 2
        assert words in capsys.readouterr().err
    without = [option for option in started if not option.startswith("--backbone.")]
    assert ask(run, *without) == 2
    assert "--backbone.widths [8, 4] there, None asked for" in capsys.readouterr().err


def test_fine_tuning_starts_from_the_same_network(place, started, capsys):
    options = [option for option in started if not option.startswith(("--run-dir", "--epochs"))]
    options += ["--max-steps=2", f"--root={place}/runs", "--quiet"]
    assert ask(run, *options, "--method=oe_ft") == 0
    start = RunDir(place / "runs" / "photos" / "standard" / "seed0").read_config()
    assert (start.backbone_options, start.data.image_shape) == ({"widths": [8, 4]}, (12, 12, 3))
    other = [*options, "--method=oe_ft", f"--run-dir={place}/other", "--backbone.widths=8"]
    assert ask(run, *other) == 2
    assert (
        "holds a mlp --backbone.widths=8,4 for images of 12×12×3, this run has a mlp --backbone.widths=8 for"
        in capsys.readouterr().err
    )


def test_fine_tuning_starts_from_a_network_of_the_same_augmentation(place, started, capsys):
    options = [option for option in started if not option.startswith(("--run-dir", "--epochs"))]
    options += ["--max-steps=2", f"--root={place}/unmirrored", "--quiet", "--method=oe_ft"]
    assert ask(run, *options, "--augmentation.flip=False") == 0
    for method in ("standard", "oe_ft"):
        policy = RunDir(place / "unmirrored" / "photos" / method / "seed0").read_config().data.augmentation
        assert (policy.flip, policy.probability) == (False, 0.5)
    assert ask(run, *options, f"--run-dir={place}/mirrored") == 2
    assert "was trained with another augmentation than this run has; give the same --aug" in capsys.readouterr().err


def test_weights_of_a_run_are_tested_on_the_same_folder(place, started, capsys):
    file = place / "network.safetensors"
    assert ask(evaluate, f"--run={place}/run", f"--export={file}") == 0
    capsys.readouterr()
    asked = (f"--weights={file}", f"--dataset=folder:{place}/photos", f"--data-dir={place}/data", "--json")
    assert ask(evaluate, *asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["in_domain"] == RunDir(place / "run").read_results()["in_domain"]
    assert np.isfinite(found["in_domain"]["brier"])


def test_outliers_that_are_not_there_are_said_before_a_run_begins(place, capsys):
    options = [f"--dataset=folder:{place}/photos", f"--run-dir={place}/never", *OPTIONS]
    assert ask(run, *options, "--method=oe", f"--outliers=folder:{place}/nothing") == 2
    name = f"folder:{place}/nothing"
    assert capsys.readouterr().err == f"error: --outliers {name}: no such folder; expected a folder of images\n"
    assert not (place / "never").exists()


def test_images_among_the_outliers_and_a_test_set_are_named(place, started, capsys, monkeypatch):
    monkeypatch.setattr(outliers, "_NUM_FOLDER_CROPS", 50)
    others = published_files.image_folder(place / "others", classes=("x",), each=4, size=(20, 14), seed=9)
    (others / "x" / "same.png").write_bytes((place / "photos" / "a" / "05.png").read_bytes())
    options = [option for option in started if not option.startswith(("--run-dir", "--outliers"))]
    options += [f"--outliers=folder:{others}", f"--run-dir={place}/shared", "--max-steps=1", "--quiet"]
    assert ask(run, *options) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if "are among the outliers" in line]
    assert len(warned) == 1
    assert warned[0].startswith(
        f"warning: 1 of 40 images of folder:{place}/photos are among the outliers folder:{others}"
    )
    assert f"{place}/photos/a/05.png is {others}/x/same.png" in warned[0]
    asked = (f"--run={place}/shared", f"--data-dir={place}/data", f"--ood=folder:{others}", "--quiet")
    assert ask(evaluate, *asked) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if "are among the outliers" in line]
    assert [line.split(" are among")[0] for line in warned] == [
        f"warning: 1 of 40 images of folder:{place}/photos",
        f"warning: 5 of 5 images of folder:{others}",
    ]
