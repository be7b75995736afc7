"""How commands are spelled to the user: as this one was started."""

from pathlib import Path

import pytest

import experiments
from experiments.cli import invocation
from experiments.cli.display import Display


@pytest.fixture
def by_script(monkeypatch):
    monkeypatch.setattr(invocation, "_by_script", False)
    invocation.by_script()


def test_every_command_is_in_the_list():
    folder = Path(experiments.__file__).parent
    assert set(invocation.COMMANDS) == {path.parent.name for path in folder.glob("*/__main__.py")}


def test_texts_stay_as_they_are_where_commands_are_started_as_modules():
    text = "run `python -m experiments.paper --root=runs` first"
    assert invocation.spelled(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `python -m experiments.paper --root=runs` first", "run `preload-jax paper --root=runs` first"),
        ("give experiments.run or paper --shift", "give preload-jax run or paper --shift"),
        ("see experiments.run.", "see preload-jax run."),
        # Paths and modules are no commands.
        ("no folder /my/experiments.run", "no folder /my/experiments.run"),
        ("certify --run=experiments.run", "certify --run=experiments.run"),
        (
            "experiments.run/a, experiments.runs, experiments.run.py",
            "experiments.run/a, experiments.runs, experiments.run.py",
        ),
    ],
)
def test_a_script_says_its_own_name(by_script, text, expected):
    assert invocation.spelled(text) == expected


def test_the_commands_to_try_next_are_those_of_the_script(by_script, capsys):
    Display().end({}, next={"certify it": ["python", "-m", "experiments.certify", "--run=a b"]})
    assert capsys.readouterr().err == "to certify it  preload-jax certify '--run=a b'\n"
