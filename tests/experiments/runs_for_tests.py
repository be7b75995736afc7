"""Runs of a second or two through the command line, in this process, and everything that they leave."""

import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import cli
from experiments.run import command as run
from preload_jax import digests
from preload_jax.formats import checkpoints, files

COMPARED = ("results.json", "scores.npz", "metrics.jsonl", "figures/score_histograms.png")
# Made outliers: the photo's crops take longer than the training.
SHORT = ("--epochs=3", "--outliers=uniform")


def ask(module: Any, *options: object) -> int:
    """The exit status of `python -m experiments.MODULE OPTIONS`, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module.__name__, *map(str, options)])
        with pytest.raises(SystemExit) as exit_:
            cli.run_command(module.main, module.Args, prog=f"python -m {module.__name__}")
    return exit_.value.code


def command(folder: Path, *options: str) -> int:
    """The exit status of `python -m experiments.run --run-dir=FOLDER OPTIONS`."""
    return ask(run, f"--run-dir={folder}", *options)


def outcome(folder: Path) -> dict[str, object]:
    """The bytes of a finished run's files and the digest of its last checkpoint."""
    saved = checkpoints.load(folder / "checkpoints")
    found: dict[str, object] = {name: (folder / name).read_bytes() for name in COMPARED}
    return {**found, "parameters": digests.of_tree(saved.tree, notes=saved.notes)}


def full_disk(patch: pytest.MonkeyPatch) -> None:
    """From now on no file can be made."""

    def full(path: Path) -> int:
        raise OSError(28, "No space left on device", str(path))

    patch.setattr(files, "_create", full)


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines on standard error."""
    return capsys.readouterr().err.splitlines()
