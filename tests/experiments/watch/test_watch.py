"""Watching: a line an image, from folders and from standard input; a state that outlives the process; bad images."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
from PIL import Image

from experiments.export import command as export
from experiments.predict import command as predict
from experiments.watch import command as watch
from tests.experiments import runs_for_tests
from tests.experiments.runs_for_tests import command

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, and its program."""
    root = tmp_path_factory.mktemp("watch")
    assert command(root / "run", "--epochs=8", "--outliers=uniform", "--quiet") == 0
    assert runs_for_tests.ask(export, f"--run={root / 'run'}", f"--out={root / 'file'}", "--quiet") == 0
    return root


@pytest.fixture
def incoming(tmp_path):
    digits = (sklearn.datasets.load_digits().images * 15.9375).astype(np.uint8)
    (tmp_path / "incoming").mkdir()
    for i in range(3):
        Image.fromarray(digits[i]).save(tmp_path / "incoming" / f"{i}.png")
    return tmp_path / "incoming"


def lines(capsys, *options, status=0):
    capsys.readouterr()
    assert runs_for_tests.ask(watch, *options) == status
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def given(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))


def test_a_folder_by_a_program_and_by_its_run(trained, incoming, capsys):
    of_file = lines(capsys, f"--program={trained / 'file'}", incoming)
    assert of_file == lines(capsys, f"--run={trained / 'run'}", incoming)
    assert [row["image"] for row in of_file] == [str(incoming / f"{i}.png") for i in range(3)]
    assert [row["monitor"]["seen"] for row in of_file] == [1, 2, 3]
    runs_for_tests.ask(predict, f"--run={trained / 'run'}", "--false-alarm-rate=0.05", "--json", incoming)
    asked = json.loads(capsys.readouterr().out)["images"]
    for row, other in zip(of_file, asked, strict=True):
        assert {**row, "monitor": None} == {
            **other,
            "score": pytest.approx(other["score"], abs=1e-5),
            "monitor": None,
        } | {name: pytest.approx(other[name], abs=1e-5) for name in ("confidence", "ood_probability", "p_value")}


def test_names_on_standard_input_and_bad_images_among_them(trained, incoming, capsys, monkeypatch):
    (incoming / "bad.png").write_text("no image")
    names = [incoming / "0.png", incoming / "bad.png", "", incoming / "none.png", incoming / "2.png"]
    given(monkeypatch, "\n".join(map(str, names)).encode())
    found = lines(capsys, f"--program={trained / 'file'}", status=1)
    assert [row["image"] for row in found] == [str(name) for name in names if name]
    assert ["error" in row for row in found] == [False, True, True, False]
    assert "not a readable image" in found[1]["error"]
    assert "no such file" in found[2]["error"]
    assert [row["monitor"]["seen"] for row in found if "monitor" in row] == [1, 2]


def test_arrays_on_standard_input(trained, capsys, monkeypatch):
    digits = (sklearn.datasets.load_digits().images[:3, ..., None] * 15.9375).astype(np.uint8)
    stream = io.BytesIO()
    for array in (digits[0], np.asfortranarray(digits), digits[:1].astype(np.float32) / 255, digits[:, :4, :4]):
        np.save(stream, array)
    given(monkeypatch, stream.getvalue())
    found = lines(capsys, f"--program={trained / 'file'}", "-")
    assert [row["image"] for row in found][:5] == ["stdin[0]", *(f"stdin[1][{i}]" for i in range(3)), "stdin[2]"]
    assert found[0]["score"] == found[1]["score"] == pytest.approx(found[4]["score"])
    assert found[5]["changes"] == ["resized from 4×4 to 8×8"]
    for content, words in [
        (stream.getvalue()[:-1], "stdin[3]: not a readable .npy file (ValueError: it ends after 47 of 48 bytes)"),
        (b"\x93NUMPY\x01\x00\x02\x00{}", "stdin[0]: not a readable .npy file"),
        (b"\x89PNG\r\n", "expected names of images, one a line, or .npy arrays"),
    ]:
        given(monkeypatch, content)
        capsys.readouterr()
        assert runs_for_tests.ask(watch, f"--program={trained / 'file'}") == 2
        assert words in capsys.readouterr().err
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**15, 8, 8, 1)})
    given(monkeypatch, header.getvalue())
    assert runs_for_tests.ask(watch, f"--program={trained / 'file'}") == 2
    assert "there is room for" in capsys.readouterr().err


def test_the_state_outlives_the_process(trained, incoming, tmp_path, capsys, monkeypatch):
    options = (f"--program={trained / 'file'}", f"--state={tmp_path / 'state.json'}")
    far = io.BytesIO()
    np.save(far, np.full((60, 8, 8, 1), 1e6, np.float32))
    assert lines(capsys, *options, incoming)[-1]["monitor"] == pytest.approx(
        {"seen": 3, "called_ood": 0, "log_e_value": pytest.approx(-0.2, abs=0.3), "drifted": False}
    )
    given(monkeypatch, far.getvalue())
    capsys.readouterr()
    assert runs_for_tests.ask(watch, *options) == 0
    out = capsys.readouterr()
    last = json.loads(out.out.splitlines()[-1])["monitor"]
    assert (last["seen"], last["called_ood"], last["drifted"]) == (63, 60, True)
    assert out.err.count("the images are no longer in-domain, since stdin[0][") == 1
    # Once drifted, it says so no more, but keeps on answering.
    found = lines(capsys, *options, incoming / "0.png")
    assert (found[0]["monitor"]["seen"], found[0]["monitor"]["drifted"]) == (64, True)
    assert capsys.readouterr().err == ""


def test_states_that_do_not_fit(trained, incoming, tmp_path, capsys):
    state = tmp_path / "state.json"
    options = (f"--program={trained / 'file'}", f"--state={state}")
    lines(capsys, *options, incoming)
    whole = state.read_text()
    for content, more, words in [
        (whole, ["--error=0.05"], "was begun with --error=0.01, not 0.05; delete it, or give another --state"),
        (whole[:-9], [], "is not valid JSON"),
        (whole.replace('"seen": 3', '"seen": 4'), [], "is damaged: its content does not have the digest"),
        ("{}", [], "holds no monitor's state; delete it, or give another --state"),
        (whole, ["--error=2"], "error must lie between 0 and 1"),
    ]:
        state.write_text(content)
        capsys.readouterr()
        assert runs_for_tests.ask(watch, *options, *more, incoming) == 2
        assert words in capsys.readouterr().err
        assert state.read_text() == content
    assert command(tmp_path / "none", "--validation=none", "--epochs=1", "--quiet") == 0
    capsys.readouterr()
    assert runs_for_tests.ask(watch, f"--run={tmp_path / 'none'}", f"--state={state}", incoming) == 2
    assert (
        "takes a rule: the network has none (0 validation images, and a rule takes at least 59); leave --state out"
        in capsys.readouterr().err
    )
    found = lines(capsys, f"--run={tmp_path / 'none'}", incoming)
    assert [row["monitor"] for row in found] == [None] * 3


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_watch_keeps_what_it_saw(trained, incoming, tmp_path, stop):
    state = tmp_path / "state.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.watch", f"--program={trained / 'file'}", f"--state={state}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        for i in range(2):
            process.stdin.write(f"{incoming}/{i}.png\n".encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["monitor"]["seen"] == i + 1
        process.send_signal(stop)
        assert process.wait(timeout=60) == 128 + stop
    finally:
        process.kill()
        process.communicate()
    assert json.loads(state.read_text())["monitor"]["seen"] == 2
