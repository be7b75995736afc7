"""The script `preload-jax`: lists its commands, carries one out, and refuses others in one line."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import experiments
from experiments.cli import command_line, invocation, script

ROOT = Path(experiments.__file__).parent.parent


@pytest.fixture(autouse=True)
def as_module(monkeypatch):
    """What is told of this process is forgotten after the test."""
    monkeypatch.setattr(invocation, "_by_script", False)


def ask(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["preload-jax", *words])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    return stopped.value.code


def test_it_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {invocation.SCRIPT: f"{script.__name__}:{script.main.__name__}"}


def test_help_lists_the_commands(monkeypatch, capsys):
    assert ask(monkeypatch, "--help") == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: preload-jax COMMAND [OPTIONS]\n")
    for name, what in invocation.COMMANDS.items():
        assert any(line.split(maxsplit=1) == [name, what] for line in out.splitlines())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "error: no command; expected one of run, evaluate, "),
        (["runn"], "error: unknown command 'runn' (did you mean 'run'?); expected one of run, "),
        (["--dataset=digits"], "error: unknown command '--dataset=digits'; expected one of "),
        (
            ["run", "--epoch=3"],
            "error: Unrecognized options: --epoch=3; did you mean --epochs?; see preload-jax run --help",
        ),
        (["tables", "--root=EMPTY"], "error: no results.json under "),
    ],
)
def test_wrong_use_is_one_line(monkeypatch, tmp_path, capsys, words, message):
    assert ask(monkeypatch, *(word.replace("EMPTY", str(tmp_path)) for word in words)) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith(message)
    assert found.err.count("\n") == 1
    assert "python -m" not in found.err


@pytest.mark.parametrize("name", ["prepare_data", "prepare-data"])
def test_a_command_gets_its_options_and_the_scripts_name(monkeypatch, name):
    given = []
    monkeypatch.setattr(command_line, "run_command", lambda main, args, *, prog: given.append((main, args, prog)))
    monkeypatch.setattr(sys, "argv", ["preload-jax", name, "--dataset=mnist"])
    script.main()
    from experiments.prepare_data import command

    assert given == [(command.main, command.Args, "preload-jax prepare_data")]
    assert sys.argv[1:] == ["--dataset=mnist"]


def test_it_finds_its_commands_beside_a_folder_of_their_name_and_needs_no_jax(tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").touch()
    # As installed: the current folder is not looked into, and the packages are.
    code = (
        "import sys; from experiments.cli import script; sys.argv = ['preload-jax', *sys.argv[1:]]\n"
        "try: script.main()\n"
        "finally: assert 'jax' not in sys.modules"
    )
    for words in (["--help"], ["run", "--help"]):
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("usage: preload-jax ")
