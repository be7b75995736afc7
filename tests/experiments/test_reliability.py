"""Runs that are stopped, disturbed, damaged or repeated, through the command line."""

import builtins
import json
import os
import shutil
import signal
import sys
import time

import jax
import numpy as np
import pytest

from experiments.cli import interrupts
from preload_jax.data import builtin
from preload_jax.formats import checkpoints
from preload_jax.training import run
from tests.experiments.runs_for_tests import SHORT, command, errors, outcome

pytestmark = pytest.mark.usefixtures("plain_pictures", "every_epoch_saved")


@pytest.fixture
def every_epoch_saved(monkeypatch):
    """However short epochs are."""
    monkeypatch.setattr(run, "SECONDS_BETWEEN_EPOCHS_SAVED", 0.0)


@pytest.fixture
def signal_after(monkeypatch):
    """Sends this process a signal when metrics.jsonl gets its line of that number, after as many compiled calls."""

    def arrange(number, *, calls):
        really, done = open, []

        def counting_open(file, mode="r", *args, **options):
            if mode == "a" and os.path.basename(file) == "metrics.jsonl":
                done.append(1)
                if len(done) == calls:
                    os.kill(os.getpid(), number)
            return really(file, mode, *args, **options)

        monkeypatch.setattr(builtins, "open", counting_open)

    yield arrange
    monkeypatch.undo()


def steps(folder):
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_the_run_goes_on(folder, reference, signal_after, monkeypatch, capsys, number, status):
    signal_after(number, calls=2)
    assert command(folder, *SHORT, "--overwrite") == status
    line = errors(capsys)[-1]
    assert line.startswith(f"warning: stopped by {number.name}; everything is saved, and this goes on: python -m")
    # Not with --overwrite, which would start again.
    assert line.endswith(f"--run-dir={folder} --epochs=3 --outliers=uniform")
    assert steps(folder) == [10, 20]
    assert not (folder / "results.json").exists()
    monkeypatch.undo()
    assert command(folder, *SHORT) == 0
    assert any("going on from step 20 of 30" in line for line in errors(capsys))
    assert outcome(folder) == reference


def test_a_signal_after_the_last_step_is_not_lost(folder, reference, signal_after, monkeypatch):
    signal_after(signal.SIGTERM, calls=3)
    assert command(folder, *SHORT, "--quiet") == 143
    monkeypatch.undo()
    assert command(folder, *SHORT, "--quiet") == 0
    assert outcome(folder) == reference


def test_a_signal_while_outliers_are_read_stops_at_once(folder, monkeypatch, capsys):
    def slow_load(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        pytest.fail("it was read to the end")

    monkeypatch.setattr(builtin, "crop_boxes", slow_load)
    assert command(folder, "--epochs=3", "--outliers=photo", "--quiet") == 143
    assert errors(capsys)[-1].startswith("warning: stopped by SIGTERM; everything is saved, and this goes on: python")
    assert steps(folder) == []


def test_a_signal_while_a_frozen_networks_features_are_computed_ends_the_pass(tmp_path, monkeypatch, capsys):
    start, folder = tmp_path / "start", tmp_path / "run"
    options = ("--outliers=uniform", "--method=preload_ft", f"--start={start}")
    assert command(start, "--max-steps=1", "--method=standard", "--quiet") == 0
    write = sys.stderr.write

    def stopping_write(text):
        if "first the features of 2,594 images" in text:
            os.kill(os.getpid(), signal.SIGTERM)
        return write(text)

    monkeypatch.setattr(sys.stderr, "write", stopping_write)
    assert command(folder, *options) == 143
    assert "stage 1/2: OOD class: first the features of 2,594 images" in capsys.readouterr().err
    # Where a step had been taken, its state would be there.
    assert steps(folder) == []


def test_a_signal_while_evaluating_leaves_no_results(folder, reference, monkeypatch):
    replace = os.replace

    def interrupted_replace(source, target, **options):
        if os.path.basename(target) == "scores.npz":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        replace(source, target, **options)

    monkeypatch.setattr(os, "replace", interrupted_replace)
    assert command(folder, *SHORT, "--quiet") == 143
    assert not (folder / "results.json").exists()
    assert not (folder / "scores.npz").exists()
    monkeypatch.undo()
    assert command(folder, *SHORT, "--quiet") == 0
    assert outcome(folder) == reference


def test_a_second_signal_ends_it_at_once():
    with interrupts.Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM
        with pytest.raises(SystemExit) as exit_:
            os.kill(os.getpid(), signal.SIGTERM)
    assert exit_.value.code == 143


def test_two_runs_are_equal_and_another_seed_is_not(folder, reference):
    assert command(folder, *SHORT, "--quiet") == 0
    assert outcome(folder) == reference
    assert command(folder.with_name("other"), *SHORT, "--quiet", "--seed=1") == 0
    other = outcome(folder.with_name("other"))
    assert [name for name in reference if reference[name] == other[name]] == ["figures/score_histograms.png"]  # plain


def interrupt(folder, signal_after, monkeypatch):
    """A run that stopped after step 20 of 30."""
    signal_after(signal.SIGTERM, calls=2)
    assert command(folder, *SHORT, "--quiet") == 143
    monkeypatch.undo()


def test_a_run_goes_on_with_the_random_numbers_it_began_with_or_not_at_all(
    folder, reference, signal_after, monkeypatch, capsys
):
    interrupt(folder, signal_after, monkeypatch)
    capsys.readouterr()
    with jax.default_prng_impl("rbg"):
        assert command(folder, *SHORT, "--quiet") == 2
    (line,) = errors(capsys)
    assert line.startswith(
        "error: the stored training is another: jax_default_prng_impl was 'threefry2x32', is 'rbg'. Set it as it was"
    )
    assert steps(folder) == [10, 20]
    assert command(folder, *SHORT, "--quiet") == 0
    assert outcome(folder) == reference


def damage(checkpoint):
    largest = max((checkpoint / "state" / "d").iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-100])


def test_a_damaged_checkpoint_costs_an_epoch(folder, reference, signal_after, monkeypatch, capsys):
    interrupt(folder, signal_after, monkeypatch)
    damage(folder / "checkpoints" / "20")
    capsys.readouterr()
    assert command(folder, *SHORT, "--quiet") == 0
    (warning,) = [line for line in errors(capsys) if "is damaged" in line]
    assert warning.startswith(f"warning: checkpoint {folder / 'checkpoints' / '20'} is damaged (")
    assert warning.endswith("using 10 instead")
    assert outcome(folder) == reference


def test_no_whole_checkpoint_is_an_error_not_a_restart(folder, signal_after, monkeypatch, capsys):
    interrupt(folder, signal_after, monkeypatch)
    for name in ("10", "20"):
        damage(folder / "checkpoints" / name)
    for _ in range(2):
        capsys.readouterr()
        assert command(folder, *SHORT, "--quiet") == 1
        (line,) = errors(capsys)
        assert line.startswith(f"error: every checkpoint in {folder / 'checkpoints'} is damaged")
    assert steps(folder) == [10, 20]


def test_what_a_killed_process_left_half_written_is_harmless(folder, reference, signal_after, monkeypatch):
    interrupt(folder, signal_after, monkeypatch)
    half = folder / "checkpoints" / "30.orbax-checkpoint-tmp" / "state.orbax-checkpoint-tmp"
    half.mkdir(parents=True)
    (half / "manifest.ocdbt").write_bytes(b"half")
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"stage": 0, "epoch": 2, "st')
    (folder / ".results.json.0123456789abcdef.tmp").write_text('{"form')
    assert command(folder, *SHORT, "--quiet") == 0
    assert outcome(folder) == reference
    assert steps(folder) == [20, 30]
    assert not (folder / ".results.json.0123456789abcdef.tmp").exists()


def test_a_damaged_start_is_made_whole_first(tmp_path, capsys):
    """Fine-tuning starts from the network that the results are about, or not at all."""
    start = tmp_path / "start"
    assert command(start, *SHORT, "--method=standard", "--quiet") == 0
    whole, tuned = outcome(start), []
    for name in ("from whole", "from damaged"):
        assert command(tmp_path / name, *SHORT, "--method=oe_ft", f"--start={start}", "--quiet") == 0
        tuned.append(outcome(tmp_path / name))
        if name == "from whole":
            damage(start / "checkpoints" / "30")
    assert len([line for line in errors(capsys) if "is damaged" in line]) == 1
    assert tuned[0] == tuned[1]
    assert outcome(start) == whole


def test_a_loss_that_is_not_finite_stops_and_keeps_the_checkpoints(
    folder, reference, signal_after, monkeypatch, capsys
):
    interrupt(folder, signal_after, monkeypatch)
    stored = folder / "checkpoints"
    saved = checkpoints.load(stored)
    shutil.move(stored / "20", folder.parent / "good")
    saved.tree["params"]["head"]["linear"]["bias"][0] = np.nan
    with checkpoints.Checkpoints(stored) as store:
        store.save(20, saved.tree, notes=saved.notes)
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    capsys.readouterr()
    for _ in range(2):
        assert command(folder, *SHORT, "--quiet") == 1
        (line,) = errors(capsys)
        # ½ · 0.001 · (1 + cos(π · 20/30))
        assert line.startswith("error: the loss is not finite at step 20; the last finite loss was ")
        assert ", the learning rate 0.00025. Lower the learning rate, or look" in line
        assert 0 < float(line.split("last finite loss was ")[1].split(",")[0]) < 2 * last["loss"]
        assert steps(folder) == [10, 20]
        assert not (folder / "results.json").exists()
    shutil.rmtree(stored / "20")
    shutil.move(folder.parent / "good", stored / "20")
    assert command(folder, *SHORT, "--quiet") == 0
    assert outcome(folder) == reference


def test_a_learning_rate_that_is_much_too_large(folder, capsys):
    assert command(folder, *SHORT, "--quiet", "--optimizer.learning-rate=1e30") == 1
    (line,) = errors(capsys)
    assert line.startswith("error: the loss is not finite at step 1; the last finite loss was ")
    assert steps(folder) == []
