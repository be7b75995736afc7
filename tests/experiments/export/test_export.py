"""A run as one file that answers: what is in it, what it says is proved, what cannot be exported; and ONNX."""

import json
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.datasets

from experiments.certify import command as certify
from experiments.cli.display import Display
from experiments.export import command as export
from experiments.export import onnx as export_onnx
from experiments.predict import why
from experiments.runs import folder, trained
from preload_jax import guarantees, make_classifier, predict
from preload_jax.errors import UserError
from preload_jax.formats import load_program, weights
from tests.experiments import runs_for_tests
from tests.experiments.runs_for_tests import command

SHORT = ("--epochs=3", "--outliers=uniform", "--quiet")


def ask(*options, status=0):
    assert runs_for_tests.ask(export, *options) == status


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("export")
    for method in ("preload_certified", "standard"):
        assert command(root / method, f"--method={method}", *SHORT) == 0
    return root


@pytest.fixture(scope="module")
def digits():
    return (sklearn.datasets.load_digits().images[:40, ..., None] * 15.9375).astype(np.uint8)


@pytest.mark.parametrize("method", ["preload_certified", "standard"])
def test_the_file_answers_as_the_run_does(runs, digits, capsys, tmp_path, method):
    capsys.readouterr()
    ask(f"--run={runs / method}", f"--out={tmp_path / 'a'}", "--json", "--quiet")
    values = json.loads(capsys.readouterr().out)
    run, loaded = folder.load_run(runs / method), load_program(tmp_path / "a", digest=values["digest"])
    rule = trained.read(runs / method, None, dataset=None, method=None, recipe=None, display=Display(quiet=True)).rule()
    assert loaded.rule.record() == rule.record()
    assert (loaded.class_names, loaded.score) == (run.spec.class_names, run.method.score)
    assert loaded.notes == {"dataset": "digits", "method": method, "seed": "0"}
    assert values["bytes"] == (tmp_path / "a").stat().st_size
    for images in (digits, 3e3 * digits.astype(np.float32)):
        expected = predict(run.model, run.variables, images, score=run.method.score, rule=rule, batch_size=16)
        found = loaded.predict(images, batch_size=16)
        for name, value in vars(expected).items():
            np.testing.assert_array_equal(getattr(found, name), value, err_msg=name)
        reasons = why.reasons(run.model, run.variables, list(images), expected, rule.threshold())
        assert loaded.reasons(images, found) == reasons
    assert any("typical distances" in reason for reason in reasons[-1]) == (method == "preload_certified")


def test_where_the_file_is_is_said_once(runs, tmp_path, capsys):
    capsys.readouterr()
    ask(f"--run={runs / 'standard'}", f"--out={tmp_path / 'a'}")
    found = capsys.readouterr()
    assert found.out.startswith(f"program      {tmp_path / 'a'}, ")
    last = found.err.splitlines()[-1]
    assert last == f"to watch with it  python -m experiments.watch --program={tmp_path / 'a'} FOLDER"
    assert found.err.count(str(tmp_path / "a")) == 1


def test_what_is_proved_and_for_which_precision(runs, tmp_path, capsys):
    ask(f"--run={runs / 'preload_certified'}", f"--out={tmp_path / 'a'}", "--quiet")
    assert "no class is ever more confident than 1 - " in capsys.readouterr().out
    run, proved = folder.load_run(runs / "preload_certified"), load_program(tmp_path / "a").certificate
    radius = guarantees.input_radius(run.model, run.variables, 0.5)
    assert proved["input_radius"]["typical_distances"] == pytest.approx(radius.relative)
    assert len(proved["largest_confidence"]["classes"]) == 10
    assert all(row["largest_confidence"] < 1.0 for row in proved["largest_confidence"]["classes"])
    assert "float32" in proved["holds_for"]["input_radius"]
    # Nobody has asked about directions yet.
    assert proved["along_directions"] is None
    assert "along_directions" not in proved["holds_for"]
    ask(f"--run={runs / 'standard'}", f"--out={tmp_path / 'b'}", "--quiet")
    assert "the confidence has no bound below 1" in capsys.readouterr().out
    proved = load_program(tmp_path / "b").certificate
    assert (proved["safe_radius"]["radius"], proved["input_radius"]) == (None, None)


def test_the_runs_own_certificate_comes_with_it(runs, tmp_path, capsys):
    run, file = runs / "preload_certified", runs / "preload_certified" / "certificate.json"
    assert runs_for_tests.ask(certify, f"--run={run}", "--num-directions=20", "--quiet") == 0
    try:
        ask(f"--run={run}", f"--out={tmp_path / 'a'}", "--quiet")
        proved = load_program(tmp_path / "a").certificate
        kept = json.loads(file.read_text())
        assert proved["along_directions"]["num_directions"] == 20
        assert proved["along_directions"]["share_ending_in_extra_class"] == kept["share_ending_in_extra_class"]
        assert "no statement about float32" in proved["holds_for"]["along_directions"]
        kept["largest_confidence"]["classes"][3]["largest_log_odds"] += 0.01
        for content, words in [
            (json.dumps(kept), "is of another network than the run's; run experiments.certify again"),
            ("{}", "is damaged ('largest_confidence'); run experiments.certify again"),
            ("{", "is damaged"),
        ]:
            file.write_text(content)
            capsys.readouterr()
            ask(f"--run={run}", f"--out={tmp_path / 'b'}", status=2)
            assert words in capsys.readouterr().err
            assert not (tmp_path / "b").exists()
    finally:
        file.unlink()


def test_a_mean_over_weights_has_the_bound_of_its_certificate(runs, tmp_path, capsys):
    run = tmp_path / "laplace"
    assert command(run, "--method=laplace", f"--start={runs / 'standard'}", "--ood-images=20", "--quiet") == 0
    few = (f"--run={run}", "--num-directions=2", "--num-rays=0", "--quiet")
    # Refused before anything is computed.
    capsys.readouterr()
    assert runs_for_tests.ask(certify, *few, "--ball=0.01") == 2
    assert "laplace mixes several answers; leave it out" in capsys.readouterr().err
    assert not (run / "certificate.json").exists()
    assert runs_for_tests.ask(certify, *few) == 0
    ask(f"--run={run}", f"--out={tmp_path / 'a'}", "--quiet")
    kept, proved = json.loads((run / "certificate.json").read_text()), load_program(tmp_path / "a").certificate
    assert proved["largest_confidence"] == kept["largest_confidence"]
    assert all(row["largest_log_odds"] is not None for row in proved["largest_confidence"]["classes"])
    assert proved["along_directions"]["num_directions"] == 2


def test_a_posterior_has_the_bound_of_its_own(runs, tmp_path, capsys):
    assert command(tmp_path / "rgpr", "--method=rgpr", f"--start={runs / 'standard'}", "--quiet") == 0
    run = folder.load_run(tmp_path / "rgpr")
    # Its certificate, if there is one, is compared with what is exported.
    assert runs_for_tests.ask(certify, f"--run={tmp_path / 'rgpr'}", "--num-directions=5", "--quiet") == 0
    ask(f"--run={tmp_path / 'rgpr'}", f"--out={tmp_path / 'a'}", "--quiet")
    proved = load_program(tmp_path / "a").certificate
    found = [row["largest_log_odds"] for row in proved["largest_confidence"]["classes"]]
    np.testing.assert_allclose(found, guarantees.laplace_bound(run.variables).log_odds, rtol=1e-6)
    assert proved["along_directions"]["share_with_limiting_confidence_1"] == 0.0


def test_a_weights_file_has_no_rule(tmp_path, capsys):
    model = make_classifier("mlp", "square_logit", num_classes=10)
    variables = model.init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)))
    weights.save(tmp_path / "a.safetensors", model, variables, image_shape=(8, 8, 1), metadata={"dataset": "digits"})
    ask(f"--weights={tmp_path / 'a.safetensors'}", f"--out={tmp_path / 'a'}", "--quiet")
    assert "none; the OOD class decides" in capsys.readouterr().out
    assert load_program(tmp_path / "a").rule is None


def test_ddu_is_refused(runs, tmp_path, capsys):
    start = f"--start={runs / 'standard'}"
    assert command(tmp_path / "ddu", "--method=ddu", start, "--quiet") == 0
    capsys.readouterr()
    ask(f"--run={tmp_path / 'ddu'}", f"--out={tmp_path / 'a'}", status=2)
    assert "ddu scores by Gaussians of the features" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_onnx_without_its_packages(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    ask(f"--run={runs / 'standard'}", f"--onnx={tmp_path / 'a.onnx'}", status=2)
    assert "--onnx needs the packages jax2onnx and onnxruntime: pip install" in capsys.readouterr().err


def test_onnx_that_answers_otherwise_is_not_written(runs, tmp_path, capsys, monkeypatch):
    """With stand-ins, where the packages are not installed: of each what is used here."""

    class Session:
        def __init__(self, content, options, providers):
            assert content == b"a network"

        def get_inputs(self):
            return [types.SimpleNamespace(name="images")]

        def run(self, names, given):
            return [np.zeros((len(given["images"]), 10), np.float32) + OFFSET]

    converted = types.SimpleNamespace(SerializeToString=lambda: b"a network")
    runtime = types.SimpleNamespace(SessionOptions=types.SimpleNamespace, InferenceSession=Session)
    monkeypatch.setitem(sys.modules, "jax2onnx", types.SimpleNamespace(to_onnx=lambda *_, **__: converted))
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    monkeypatch.setattr(export_onnx.importlib.metadata, "version", lambda name: "0")
    zeros = types.SimpleNamespace(apply=lambda variables, images: np.zeros((len(images), 10), np.float32))
    OFFSET = 1.0
    with pytest.raises(UserError, match="onnxruntime 0 answers otherwise than the network, by 1; nothing was written"):
        export_onnx.write(tmp_path / "a.onnx", zeros, {}, (8, 8, 1))
    assert not (tmp_path / "a.onnx").exists()
    OFFSET = 1e-6
    found = export_onnx.write(tmp_path / "a.onnx", zeros, {}, (8, 8, 1))
    assert found["largest_difference"] == pytest.approx(1e-6)
    assert (tmp_path / "a.onnx").read_bytes() == b"a network"


@pytest.mark.filterwarnings("ignore")
def test_onnx(tmp_path):
    pytest.importorskip("jax2onnx")
    pytest.importorskip("onnxruntime")
    for options in ({}, {"distance": 1.0}):
        model = make_classifier("mlp", "square_logit", num_classes=10, **options)
        variables = model.init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)))
        assert export_onnx.write(tmp_path / "a.onnx", model, variables, (8, 8, 1))["largest_difference"] < 1e-5
    lenet = make_classifier("lenet", "square_logit", num_classes=10)
    variables = lenet.init(jax.random.key(0), jnp.zeros((1, 28, 28, 1)))
    with pytest.raises(UserError, match="cannot write this network as ONNX"):
        export_onnx.write(tmp_path / "b.onnx", lenet, variables, (28, 28, 1))
