"""Following a training: validation, early stopping, the bar, and warnings of memory and of days."""

import io
import subprocess
import sys

import chex
import numpy as np
import pytest

from preload_jax import attach, evaluate, fit
from preload_jax.api import watching
from preload_jax.errors import UserError
from preload_jax.models import make_classifier
from preload_jax.training import memory
from tests import toy

DATA = toy.data()
IMAGES, LABELS, OUTLIERS = (np.asarray(x) for x in (DATA.images, DATA.labels, DATA.outliers))
TRAIN, HELD_OUT = (IMAGES[:192], LABELS[:192], OUTLIERS), (IMAGES[192:], LABELS[192:])
MODEL = toy.model()
NUMBERS = {"batch_size": 32, "learning_rate": 1e-2}


def batches():
    return ((HELD_OUT[0][i : i + 20], HELD_OUT[1][i : i + 20]) for i in range(0, 64, 20))


@pytest.mark.parametrize("validation", [HELD_OUT, batches], ids=["arrays", "batches"])
def test_validation_is_what_evaluate_says_and_changes_nothing(validation):
    reports = []
    variables = fit(MODEL, *TRAIN, epochs=4, validation=validation, on_report=reports.append, **NUMBERS)
    chex.assert_trees_all_equal(variables, fit(MODEL, *TRAIN, epochs=4, **NUMBERS))
    assert len(reports) == 4
    expected = evaluate(MODEL, variables, HELD_OUT)["in_domain"]
    chex.assert_trees_all_close(dict(reports[-1].validation), expected, rtol=1e-5)


def test_training_stops_and_returns_the_best_epoch():
    # Labels at random: what is learned of them makes the held-out ones less and less likely.
    labels, found = np.random.default_rng(0).integers(0, 3, 192), []
    given = {"epochs": 60, "validation": HELD_OUT, "on_report": found.append, **NUMBERS}
    variables = fit(MODEL, IMAGES[:192], labels, OUTLIERS, patience=3, **given)
    said = [report.validation["log_likelihood"] for report in found]
    assert len(said) == np.argmax(said) + 4 < 60
    assert evaluate(MODEL, variables, HELD_OUT)["in_domain"]["log_likelihood"] == pytest.approx(max(said), rel=1e-5)


def test_patience_that_does_not_run_out_returns_the_best_epoch_too():
    found = []
    variables = fit(
        MODEL, *TRAIN, epochs=3, validation=HELD_OUT, patience=50, on_report=found.append, devices=2, **NUMBERS
    )
    best = max(report.validation["log_likelihood"] for report in found)
    assert evaluate(MODEL, variables, HELD_OUT)["in_domain"]["log_likelihood"] == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"patience": 3}, "patience needs validation images"),
        ({"patience": 0, "validation": HELD_OUT}, "patience must be at least 1, got 0"),
        ({"validation": iter([HELD_OUT])}, "validation images are an iterator"),
        ({"validation": (HELD_OUT[0], HELD_OUT[1][:9])}, "64 images but 9 labels"),
        ({"validation": (HELD_OUT[0], HELD_OUT[1] + 1)}, "labels run from 1 to 3; expected 0 to 2"),
        ({"validation": (HELD_OUT[0][:, :2], HELD_OUT[1])}, "do not fit the network"),
        ({"validation": (HELD_OUT[0][:0], HELD_OUT[1][:0])}, "no validation images"),
        ({"validation": lambda: iter(())}, "no validation images"),
        ({"validation": (HELD_OUT[0] / np.float32(255), HELD_OUT[1])}, "float32 and the training images uint8"),
        ({"validation": [(HELD_OUT[0], HELD_OUT[1] + 1)]}, "labels run from 1 to 3; expected 0 to 2"),
        ({"progress": 3}, "progress must be True or False, got 3"),
    ],
)
def test_what_cannot_be_followed_is_refused_before_training_begins(given, message):
    reports = []
    with pytest.raises(UserError, match=message):
        fit(MODEL, *TRAIN, epochs=1, **given, on_report=reports.append, **NUMBERS)
    assert reports == []


def test_validation_of_another_scale_is_refused():
    images, labels, outliers = TRAIN[0] / np.float32(255), TRAIN[1], TRAIN[2] / np.float32(255)
    with pytest.raises(UserError, match="that of the validation images"):
        fit(MODEL, images, labels, outliers, validation=(100 * images, labels), epochs=1, **NUMBERS)


def test_attach_without_outliers_names_itself():
    with pytest.raises(UserError, match=r"^attach trains with auxiliary OOD images"):
        attach(toy.model("linear"), {}, *TRAIN[:2])


def test_patience_does_not_go_with_stored_states(tmp_path):
    with pytest.raises(UserError, match="leave out patience or checkpoint_dir"):
        fit(MODEL, *TRAIN, patience=2, validation=HELD_OUT, checkpoint_dir=tmp_path / "states", **NUMBERS)
    assert not (tmp_path / "states").exists()


def test_a_bar_is_shown_in_a_terminal_alone(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    fit(MODEL, *TRAIN, epochs=1, progress=True, **NUMBERS)
    assert not out.getvalue()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    fit(MODEL, *TRAIN, epochs=1, progress=True, validation=HELD_OUT, **NUMBERS)
    assert "preload, steps" in out.getvalue()
    assert "6/6" in out.getvalue()
    assert "validation" in out.getvalue()
    linear = toy.model("linear")
    attach(linear, fit(linear, *TRAIN[:2], epochs=1, **NUMBERS), *TRAIN, epochs=1, progress=True)


def test_the_library_shows_nothing_unasked():
    code = (
        "import numpy as np; from preload_jax import fit, make_classifier;"
        "fit(make_classifier('mlp', 'linear', num_classes=2, widths=(4,)), np.zeros((8, 2, 2, 1), np.uint8),"
        " np.arange(8) % 2, epochs=1, batch_size=4)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not ran.stdout
    assert "Traceback" not in ran.stderr


def test_a_training_of_days_is_told(monkeypatch):
    monkeypatch.setattr(watching, "_MEASURED", 0.0)
    monkeypatch.setattr(watching, "_DAY", 1e-9)
    with pytest.warns(UserWarning, match="what is left takes about .* days"):
        fit(MODEL, *TRAIN, epochs=3, **NUMBERS)


def test_a_step_that_does_not_fit_is_told(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1e3)
    with pytest.warns(UserWarning, match=r"a step of 64 images of 4×4×1 keeps about .* GB, and there are 0.0 GB"):
        fit(MODEL, *TRAIN, epochs=1, **NUMBERS)


def test_what_a_step_keeps_grows_with_its_images():
    model = make_classifier("mlp", "linear", num_classes=3, widths=(8,))
    one, many = (memory.kept(model, (4, 4, 1), n) for n in (1, 100))
    assert many == 100 * one > 0


def test_a_stored_training_of_another_start_is_refused(tmp_path):
    linear = make_classifier("mlp", "linear", num_classes=3, widths=(8,))
    starts = [fit(linear, *TRAIN[:2], epochs=1, seed=seed, **NUMBERS) for seed in (0, 1)]
    given = {"method": "oe_ft", "epochs": 1, "checkpoint_dir": tmp_path, **NUMBERS}
    tuned = fit(linear, *TRAIN, variables=starts[0], **given)
    with pytest.raises(UserError, match=r"the stored training is another: the starting network was '.{16}', is '"):
        fit(linear, *TRAIN, variables=starts[1], **given)
    chex.assert_trees_all_equal(fit(linear, *TRAIN, variables=starts[0], **given), tuned)
