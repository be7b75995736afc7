"""A few images asked about: the rule with an OOD class and without one, odd shapes, JSON and the table."""

import json
import re

import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.datasets
from PIL import Image

from experiments.evaluate import command as evaluate
from experiments.predict import command as predict
from experiments.runs import folder
from preload_jax.devices import forward
from tests import torch_files
from tests.experiments import runs_for_tests
from tests.experiments.runs_for_tests import command


def ask(*options, status=0):
    assert runs_for_tests.ask(predict, *options) == status


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    for method in ("preload", "standard"):
        options = (f"--method={method}", "--epochs=12", "--outliers=uniform", "--quiet")
        assert command(folder / method, *options) == 0
    return folder


@pytest.fixture
def images(tmp_path):
    """The first digits as .npy, the first as .png, a digit far away, and a photo-like image of another shape."""
    digits = (sklearn.datasets.load_digits().images[:4] * 15.9375).astype(np.uint8)
    np.save(tmp_path / "digits.npy", digits[..., None])
    Image.fromarray(digits[0]).save(tmp_path / "[0].png")
    np.save(tmp_path / "far.npy", 1e4 * digits[:1, :, :, None] / np.float32(255))
    noise = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.jpg")
    return [tmp_path / name for name in ("digits.npy", "[0].png", "far.npy", "noise.jpg")]


def test_with_an_ood_class(runs, images, capsys):
    ask(f"--run={runs}/preload", *images, "--json", "--quiet")
    out = capsys.readouterr()
    values = json.loads(out.out)
    assert re.fullmatch(r"warning: images run from 0 to 9373; .*\n", out.err)
    rows = values["images"]
    assert values["rule"].startswith("OOD where the OOD class is the most probable of all")
    assert (values["threshold"], values["higher_score"]) == (None, "in_domain")
    assert [row["image"].split("/")[-1] for row in rows[:2]] == ["digits.npy[0]", "digits.npy[1]"]
    assert [rows[i]["class"] for i in (0, 1, 4)] == ["0", "1", "0"]
    assert [row["is_ood"] for row in rows] == [False] * 5 + [True, True]
    # The same digit out of two kinds of file; among floating-point images as alone.
    assert rows[0]["score"] == pytest.approx(rows[4]["score"])
    for row in rows:
        assert row["is_ood"] == (row["ood_probability"] > row["confidence"])
        assert 0.0 <= row["confidence"] + row["ood_probability"] <= 1.0 + 1e-6
    assert rows[6]["changes"] == ["squashed from 40×30 to 8×8", "turned grey"]
    ask(f"--run={runs}/preload", *images)
    table = capsys.readouterr().out
    assert f"{images[3]} was squashed from 40×30 to 8×8" in table
    assert "[0].png" in table.replace("\n", "")


def test_an_image_that_cannot_be_read_does_not_keep_the_others_from_an_answer(runs, images, capsys, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_text("no image")
    ask(f"--run={runs}/preload", broken, images[1], tmp_path / "gone.png", "--json", "--quiet", status=1)
    first, answer, last = json.loads(capsys.readouterr().out)["images"]
    assert first.keys() == last.keys() == {"image", "error"}
    assert first["error"].startswith(f"{broken}: not a readable image")
    assert last == {
        "image": str(tmp_path / "gone.png"),
        "error": f"{tmp_path / 'gone.png'}: no such file; expected an image",
    }
    assert (answer["image"], answer["class"]) == (str(images[1]), "0")
    ask(f"--run={runs}/preload", broken, images[1], status=1)
    out = capsys.readouterr().out
    assert f"unreadable: {broken}: not a readable image" in out
    ask(f"--run={runs}/preload", broken, tmp_path / "gone.png", status=2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {broken}: not a readable image")


def test_without_an_ood_class(runs, images, capsys):
    ask(f"--run={runs}/standard", *images[:3], "--json")
    values = json.loads(capsys.readouterr().out)
    assert "which 95 % of the 100 validation images of digits reach" in values["rule"]
    assert all(row["ood_probability"] is None for row in values["images"])
    assert all(row["is_ood"] == (row["score"] < values["threshold"]) for row in values["images"])


def test_where_the_data_set_is_gone_the_run_still_has_its_scores(images, capsys, tmp_path):
    digits = sklearn.datasets.load_digits()
    own = tmp_path / "own.npz"
    np.savez(own, images=(digits.images[..., None] * 15.9375).astype(np.uint8), labels=digits.target)
    assert command(tmp_path / "run", f"--dataset={own}", "--method=standard", "--epochs=1", "--quiet") == 0
    own.unlink()
    capsys.readouterr()
    ask(f"--run={tmp_path / 'run'}", images[0], "--tpr=0.9", "--json", "--quiet")
    values = json.loads(capsys.readouterr().out)
    assert f"which 90 % of the 288 test images of {own} that the run was evaluated on" in values["rule"]
    with np.load(tmp_path / "run" / "scores.npz") as file:
        expected = np.quantile(file["in_domain"].astype(np.float64), 0.1)
    assert values["threshold"] == pytest.approx(expected, rel=1e-2)
    assert all(row["is_ood"] == (row["score"] < values["threshold"]) for row in values["images"])
    (tmp_path / "run" / "scores.npz").unlink()
    ask(f"--run={tmp_path / 'run'}", images[0], "--json", "--quiet")
    values = json.loads(capsys.readouterr().out)
    assert values["rule"].startswith("No verdict: ")
    assert {row["is_ood"] for row in values["images"]} == {None}


@pytest.mark.parametrize("tpr", ["0", "1", "1.5", "nan"])
def test_shares_outside_0_to_1_are_refused(images, capsys, tmp_path, tpr):
    ask(f"--run={tmp_path / 'none'}", images[0], f"--tpr={tpr}", status=2)
    assert f"--tpr must lie between 0 and 1, both excluded, got {float(tpr)}" in capsys.readouterr().err


def test_no_data_and_no_run_leave_the_verdict_open(images, capsys, tmp_path):
    path = torch_files.save(tmp_path / "MNIST_plain_1.pt", torch_files.tensors(torch_files.lenet(side=28)))
    ask(f"--weights={path}", images[0], f"--data-dir={tmp_path}", "--json")
    out = capsys.readouterr()
    values = json.loads(out.out)
    assert "MNIST_plain_1.pt is by its name of dataset mnist, method standard" in out.err
    assert values["rule"].startswith("No verdict: mnist is not here")
    assert {row["is_ood"] for row in values["images"]} == {None}
    ask(f"--weights={path}", images[0], "--method=ddu", f"--data-dir={tmp_path}", status=2)
    assert "mnist is not prepared in" in capsys.readouterr().err


def test_ddu_needs_its_training_images_only_once(images, capsys, tmp_path):
    digits = sklearn.datasets.load_digits()
    own, exported = tmp_path / "own.npz", tmp_path / "ddu.safetensors"
    np.savez(own, images=(digits.images[..., None] * 15.9375).astype(np.uint8), labels=digits.target)
    options = (f"--dataset={own}", "--epochs=2", "--quiet")
    assert command(tmp_path / "standard", "--method=standard", *options) == 0
    # With the smallest jitter that works, rounding of the features moves a density by a tenth of itself.
    ddu = ("--method=ddu", f"--start={tmp_path / 'standard'}", "--ddu-jitter=0.1")
    assert command(tmp_path / "ddu", *ddu, options[0], "--quiet") == 0
    assert runs_for_tests.ask(evaluate, f"--run={tmp_path / 'ddu'}", f"--export={exported}") == 0
    own.unlink()
    capsys.readouterr()
    scores = {}
    for network in (f"--run={tmp_path / 'ddu'}", f"--weights={exported}"):
        ask(network, images[0], "--json", "--quiet")
        scores[network] = [row["score"] for row in json.loads(capsys.readouterr().out)["images"]]
    of_run, of_file = scores.values()
    assert of_run == of_file
    # Each digit's own log-density, from the Gaussians that the run kept.
    run = folder.load_run(tmp_path / "ddu")
    _, features = forward.predict(run.model, run.variables, np.load(images[0]), features=True)
    with np.load(run.dir.ddu) as file:
        means, factors, log_weights = (file[f"fitted.{name}"] for name in ("means", "cholesky", "log_weights"))
    densities = [
        scipy.stats.multivariate_normal(mean, scipy.stats.Covariance.from_cholesky(factor)).logpdf(np.float64(features))
        for mean, factor in zip(means, factors, strict=True)
    ]
    expected = scipy.special.logsumexp(np.transpose(densities) + log_weights, axis=1)
    np.testing.assert_allclose(of_run, expected, rtol=1e-5)


def test_a_damaged_set_of_gaussians_is_named(images, capsys, tmp_path):
    assert command(tmp_path / "standard", "--method=standard", "--epochs=1", "--quiet") == 0
    assert command(tmp_path / "ddu", "--method=ddu", f"--start={tmp_path / 'standard'}", "--quiet") == 0
    with np.load(tmp_path / "ddu" / "ddu.npz") as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(tmp_path / "ddu" / "ddu.npz", **{**arrays, "fitted.means": arrays["fitted.means"][:9]})
    capsys.readouterr()
    ask(f"--run={tmp_path / 'ddu'}", images[0], status=2)
    assert "ddu.npz is damaged" in capsys.readouterr().err
