"""Manners: progress on a terminal and elsewhere, --quiet, --json, NO_COLOR, and the last lines."""

import io
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.certify import command as certify
from experiments.cli import display, terminal
from experiments.cli.display import Display, Pace, duration
from experiments.paper import command as paper
from experiments.prepare_data import command as prepare_data
from experiments.run import command as run
from experiments.tune import command as tune


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when they are told to."""
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def on_terminal(*, width=140, **options):
    shown = Display(**options)
    shown.errors = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)
    return shown


def test_the_rate_leaves_out_what_came_before_the_first_report(clock):
    pace = Pace(total=100, done=20, unit="steps", images=256)
    clock(60)  # compiling
    assert list(pace.figures(30, 0.5, 0.25).values()) == ["loss 0.500", "accuracy 25.0 %"]
    clock(2)
    assert list(pace.figures(40, None, None).values()) == ["5 steps/s", "about 12 s left", "1,280 images/s"]
    clock(58)
    assert list(pace.figures(60, None, None).values())[:2] == ["2 s/step", "about 80 s left"]
    assert list(pace.figures(100, None, None).values()) == ["1.17 steps/s", "299 images/s"]


def test_of_unequal_parts_nothing_is_forecast(clock, capsys):
    with Display().progress("certifying", total=4, unit="parts", alike=False) as update:
        for done in range(1, 5):
            clock(60 // done)
            update(done)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "certifying: 4 parts",
        "certifying: 1 of 4 parts in 60 s",
        "certifying: 2 of 4 parts in 90 s",
        "certifying: 3 of 4 parts in 2 min",
        "certifying: 4 of 4 parts in 2 min",
    ]


def test_a_note_says_how_far_a_long_part_is(clock, capsys):
    with Display().progress("certifying", total=4, unit="parts", alike=False) as update:
        update(2)
        for pieces in (10, 20):
            clock(10)
            update(2, note=f"{pieces} pieces")
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "certifying: 2 of 4 parts in 10 s, 10 pieces",
        "certifying: 2 of 4 parts in 20 s, 20 pieces",
    ]
    shown = on_terminal(width=100)
    with shown.progress("certifying", total=4, unit="parts", alike=False) as update:
        update(2, note="10 pieces")
    assert "10 pieces" in shown.errors.file.getvalue()


def test_plain_lines_where_there_is_no_terminal(clock, capsys):
    with Display().progress("mnist oe", total=4_000, done=1_000, images=256) as update:
        update(1_010, loss=2.0, accuracy=0.1)
        for done in range(1_100, 4_001, 100):
            clock(1)
            update(done, loss=1.0, accuracy=0.5)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "mnist oe: 3,000 steps, going on after 1,000"
    assert lines[1] == (
        "mnist oe: 2,000 of 4,000 steps in 10 s, loss 1.000, accuracy 50.0 %, 99 steps/s, about 20 s left,"
        " 25,344 images/s"
    )
    assert lines[-1].startswith("mnist oe: 4,000 of 4,000 steps in 30 s, loss 1.000")
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("width", "figures"),
    [
        (140, "loss 1.000  accuracy 50.0 %  99 steps/s  about 10 s left  25,344 images/s"),
        (80, "loss 1.000  99 steps/s  about 10 s left"),
        (60, "about 10 s left"),
    ],
)
def test_bars_on_a_terminal_have_what_fits(clock, width, figures):
    shown = on_terminal(width=width)
    with shown.progress("fashion_mnist oe", total=2_000, images=256) as update:
        update(10, loss=2.0, accuracy=0.1)
        clock(10)
        update(1_000, loss=1.0, accuracy=0.5)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.errors.file.getvalue()).splitlines()[-1]
    assert last.startswith("fashion_mnist oe ")
    assert "1000/2000 0:00:00" in last  # rich has a clock of its own
    assert last.rstrip().endswith(f" {figures}")


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_shows_warnings_alone(terminal, capsys):
    shown = on_terminal(quiet=True) if terminal else Display(quiet=True)
    with shown.progress("mnist oe", total=40) as update:
        update(40, loss=2.0, accuracy=0.1)
    shown.say("reading")
    shown.already("runs")
    shown.end({"results": "runs"})
    shown.warn("odd [bold]")
    text = shown.errors.file.getvalue() if terminal else capsys.readouterr().err
    assert "odd [bold]" in text
    assert text.count("\n") == 1


def test_results_are_text_or_one_document(capsys):
    Display().result({"a": 1}, text="a is 1\n")
    assert capsys.readouterr().out == "a is 1\n"
    Display(json=True).result({"a": 1}, text="a is 1\n")
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    with pytest.raises(ValueError, match="JSON"):
        Display(json=True).result({"a": float("nan")}, text="")


def test_commands_can_be_copied_whole_from_a_narrow_terminal():
    shown = on_terminal(width=30)
    command = ["python", "-m", "experiments.certify", "--run=my runs/digits/preload/seed0"]
    shown.end({"results": "runs/results.json"}, next={"certify it": command})
    lines = shown.errors.file.getvalue().splitlines()
    assert lines[0] == "results        runs/results.json"
    assert shlex.split(lines[1].removeprefix("to certify it  ")) == command


def test_warnings_on_a_terminal_end_between_words(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    shown = on_terminal(width=30)
    shown.warn("stopped after step 7; this goes on: python -m experiments.run --epochs=2 --seed=1")
    shown.say("nothing of this line is cut in a word")
    assert shown.errors.file.getvalue().splitlines() == [
        "warning: stopped after step 7;",
        "this goes on:",
        "python -m experiments.run --epochs=2 --seed=1",
        "nothing of this line is cut in",
        "a word",
    ]


def test_no_color(monkeypatch):
    for name, coloured in (("NO_COLOR", False), ("UNUSED", True)):
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv(name, "1")
        shown = on_terminal()
        shown.warn("odd")
        assert ("\x1b[33m" in shown.errors.file.getvalue()) == coloured


def test_durations():
    assert [duration(s) for s in (3.4, 99, 120, 7_200)] == ["3 s", "99 s", "2 min", "2.0 h"]


@pytest.mark.parametrize("command", [run, paper, tune, certify, prepare_data])
def test_every_command_has_the_same_manners(command):
    options = command.Args.__annotations__
    assert options["quiet"] is command.cli.Quiet
    assert options["json"] is command.cli.Json


def output(module, *options, **environment):
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{module}", *options],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", **environment},
    )
    return done.returncode, done.stdout, done.stderr


def test_the_list_of_data_sets_as_json(tmp_path):
    status, out, err = output("prepare_data", "--json", f"--data-dir={tmp_path}")
    assert (status, err) == (0, "")
    sets = {row["set"]: row for row in json.loads(out)["sets"]}
    assert sets["mnist"]["state"] == "missing"


def test_an_error_leaves_standard_output_empty_with_json(tmp_path):
    status, out, err = output("paper", "--json", "--quiet", "--dataset=minst")
    assert (status, out) == (2, "")
    assert err.startswith("error: unknown --dataset 'minst'")


NAME = "folder:ab: [bold]x[/bold] :smile:"


def test_names_are_no_signs_in_colours_and_no_markup(capsys):
    shown = Display()
    shown.say(NAME)
    shown.warn(NAME)
    shown.end({"there": NAME})
    with shown.progress(NAME, total=2) as update:
        update(2, loss=1.0, accuracy=0.5)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 4
    assert all(NAME in line for line in lines)


def test_names_in_bars_and_tables_are_as_they_are():
    console = Console(file=io.StringIO(), force_terminal=True, width=140, highlight=False, emoji=False)
    with display.bars(console) as bars:
        bars.add_task(NAME, total=2, figures=NAME)
    assert console.file.getvalue().count(NAME) >= 2
    table = Table(title=escape(NAME))
    table.add_column(escape(NAME))
    table.add_row(escape(NAME))
    assert terminal.rendered(table, width=140).count(NAME) == 3
