"""The command line: help within two seconds, one line for wrong use."""

import contextlib
import os
import pty
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import tyro

import experiments
from experiments import cli
from experiments.cli import terminal
from preload_jax.errors import UserError


@dataclass(frozen=True)
class Args:
    """An example."""

    epochs: cli.RecipeInt = None
    """How many."""
    name: str = "x"
    """Which."""


@dataclass(frozen=True)
class Described:
    """An example."""

    recipe: str = "paper"
    """Where numbers come from: paper, or
    ours where we found better."""


@dataclass(frozen=True)
class WithPaths:
    """An example."""

    images: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Which."""
    run_dir: Path | None = None
    """Where."""
    root: Path = Path("runs")
    """Where else."""
    quiet: bool = False
    """Whether."""


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--run-dir="], "--run-dir="),
        (["--run_dir="], "--run-dir="),
        (["--root", ""], "--root="),
        (["a", "--root="], "--root="),
        ([""], "''"),
        (["--quiet", ""], "''"),
        ([".", "", "a"], "''"),
    ],
)
def test_an_empty_path_is_not_the_current_folder(capsys, argv, named):
    status, err = outcome(capsys, lambda: cli.parse(WithPaths, argv, prog="example"))
    assert status == 2
    assert err == f"error: {named} names no file or folder; expected a path (is a variable of the shell not set?)\n"


@pytest.mark.parametrize("argv", [["--run-dir=."], ["--root", "./"], [".", "./"], ["--root=", "--root=x"]])
def test_the_current_folder_can_be_named(argv):
    assert cli.parse(WithPaths, argv, prog="example") != WithPaths()


def test_the_sources_line_ends_are_none_of_the_helps(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.parse(Described, ["--help"], prog="example")
    shown = " ".join(word for word in capsys.readouterr().out.split() if word != "│")
    assert "or ours where" in shown
    assert cli.parse(Described, ["--recipe=tuned"], prog="example") == Described("tuned")


def outcome(capsys, run):
    with pytest.raises(SystemExit) as exit_:
        run()
    return exit_.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--epoch", "3"], "did you mean --epochs?"),
        (["--eposch=3"], "Unrecognized options: --eposch=3; did you mean --epochs?; see example --help"),
        (["--zebra=3"], "Unrecognized options: --zebra=3; see example --help"),
        (["--epochs", "three"], "three"),
        (["extra"], "extra"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(capsys, argv, expected):
    status, err = outcome(capsys, lambda: cli.parse(Args, argv, prog="example"))
    assert status == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert expected in err
    assert err.endswith("see example --help\n")


def on_a_terminal(*options, **environment):
    """The status of `experiments.run`, and what a terminal shows of it."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.run", *options],
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "", **environment},
    )
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # which is how the end of a terminal reads
        while part := os.read(master, 65_536):
            shown += part
    os.close(master)
    return process.wait(), shown.decode()


def test_wrong_use_is_one_line_on_a_terminal_too():
    status, shown = on_a_terminal("--epoch=3")
    assert status == 2
    expected = "error: Unrecognized options: --epoch=3; did you mean --epochs?; see python -m experiments.run --help"
    assert shown.splitlines() == [expected]


@pytest.mark.parametrize(("no_color", "coloured"), [("1", False), ("", True)])
def test_help_has_colours_unless_they_are_off(no_color, coloured):
    status, shown = on_a_terminal("--help", NO_COLOR=no_color)
    assert status == 0
    assert "--tensorboard" in shown
    assert ("\x1b[" in shown) == coloured


def test_right_use():
    assert cli.parse(Args, ["--epochs", "3", "--name=y"], prog="example") == Args(3, "y")


@pytest.mark.parametrize(
    ("error", "status", "expected"),
    [
        (UserError("wrong\nthing"), 2, "error: wrong thing\n"),
        (FileNotFoundError(2, "No such file or directory", "a.npz"), 2, "error: No such file or directory: a.npz\n"),
        (FileExistsError(17, "File exists", "a"), 2, "error: File exists: a (expected a folder"),
        (NotADirectoryError(20, "Not a directory", "a/b"), 2, "error: Not a directory: a/b (a part of it is a file"),
        (IsADirectoryError(21, "Is a directory", "a"), 2, "error: Is a directory: a (expected a file); choose another"),
        (
            OSError(40, "Too many levels of symbolic links", "a"),
            2,
            "error: Too many levels of symbolic links: a (links",
        ),
        (OSError(36, "File name too long", "aaa"), 2, "error: File name too long: aaa; choose a shorter one\n"),
        (OSError(27, "File too large", "a"), 2, "error: File too large: a; choose a file system that"),
        (OSError(5, "Input/output error", "a"), 2, "error: Input/output error: a; look at the disk"),
        (OSError(24, "Too many open files", "a"), 2, "error: too many open files (a); close some programs"),
        (OSError(23, "Too many open files in system"), 2, "error: too many open files; close some programs"),
        (OSError(9, "Bad file descriptor"), 2, "error: standard output cannot be written to; redirect it to a file"),
        (OSError(22, "Invalid argument", "a"), 2, "error: Invalid argument: a\n"),
        (OSError(122, "Disk quota exceeded", "a"), 2, "error: no space left on the device (a)"),
        (OSError(30, "Read-only file system", "a"), 2, "error: not allowed to write or read (a)"),
        (OSError(28, "x", terminal.STANDARD_OUTPUT), 2, "error: standard output cannot be written to: x; redirect it"),
        (OSError(28, "No space left on device", "b"), 2, "error: no space left on the device (b)"),
        (PermissionError(13, "Permission denied", "c"), 2, "error: not allowed to write or read (c)"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (ValueError('Invalid value "x" for JAX flag y'), 2, "error: JAX's settings in the environment: Invalid value"),
        (
            RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."),
            1,
            "error: not enough memory (Out of mem",
        ),
        (MemoryError(), 1, "error: not enough memory: give smaller images, batches or networks"),
        (RuntimeError("Unable to initialize backend 'gpu'"), 2, "error: JAX's settings in the environment: Unable to"),
    ],
)
def test_errors_that_a_user_can_mend(capsys, monkeypatch, error, status, expected):
    def main(args):
        raise error

    monkeypatch.setattr(sys, "argv", ["example"])
    got, err = outcome(capsys, lambda: cli.run_command(main, Args, prog="example"))
    assert got == status
    assert err.startswith(expected)


def test_warnings_are_one_line_and_nothing_is_left_behind(capsys, monkeypatch):
    def main(args):
        warnings.warn("images run from 0\n to 255", stacklevel=2)

    monkeypatch.setattr(sys, "argv", ["example"])
    before = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert outcome(capsys, lambda: cli.run_command(main, Args, prog="example")) == (
            0,
            "warning: images run from 0 to 255\n",
        )
    assert warnings.showwarning is before


@pytest.mark.parametrize("error", [ZeroDivisionError(), OSError(22, "Invalid argument"), OSError("no number, no file")])
def test_defects_keep_their_traceback(monkeypatch, error):
    def main(args):
        raise error

    monkeypatch.setattr(sys, "argv", ["example"])
    with pytest.raises(type(error)):
        cli.run_command(main, Args, prog="example")


def test_no_command_needs_jax_for_its_help():
    folder = Path(experiments.__file__).parent
    commands = sorted(path.parent.name for path in folder.glob("*/command.py"))
    assert "run" in commands
    code = (
        f"import sys\nfor name in {commands}: __import__(f'experiments.{{name}}.command')\nprint('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("command", ["run", "prepare_data", "certify"])
def test_help_is_quick_and_complete(command):
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{command}", "--help"], capture_output=True, text=True, check=True
    )
    elapsed = time.monotonic() - started
    assert "--data-dir" in done.stdout
    assert "None" not in done.stdout
    # Two seconds on an idle machine; the tests may share it.
    assert elapsed < 4


@pytest.mark.parametrize(("digits", "signs"), [("1" * 400, 400), ("1" + ",111" * 20, 81)])
def test_endless_numbers_are_cut(capsys, digits, signs):
    status, err = outcome(capsys, lambda: cli.fail(f"--epochs must be at least 1, got -{digits}; see --help"))
    shown = digits[:10]
    assert (status, err) == (2, f"error: --epochs must be at least 1, got -{shown}… ({signs} signs); see --help\n")
    assert outcome(capsys, lambda: cli.fail("expected 1,2,3 or 1,234,567"))[1] == "error: expected 1,2,3 or 1,234,567\n"


@dataclass(frozen=True)
class Places:
    """An example."""

    root: Path = Path("runs")
    """Where."""
    run: Path | None = None
    """Which."""
    name: str = "x"
    """What."""


def test_the_users_own_folder_is_meant_by_a_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    args = cli.parse(Places, ["--root=~/runs", "--run=a/~b", "--name=~"], prog="x")
    assert (args.root, args.run, args.name) == (tmp_path / "runs", Path("a/~b"), "~")
    assert cli.parse(Places, [], prog="x") == Places()
