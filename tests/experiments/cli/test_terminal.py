"""Standard output of any encoding and width, closed pipes, no home folder."""

import io
import os
import re
import subprocess
import sys

import jax
import pytest
from rich.table import Table
from rich.text import Text

from experiments.cli import command_line, compile_cache, terminal
from experiments.cli.display import Display
from experiments.cli.visible import named, visible
from preload_jax.data import paths

RESULTS = "results"


def run(*argv, env=None, shell=None, **options):
    here = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "PYTHONIOENCODING")}
    command = [sys.executable, "-m", *argv] if shell is None else ["bash", "-c", shell]
    return subprocess.run(command, env=here | (env or {}), capture_output=True, timeout=120, **options)


def view(columns=8, rows=3):
    table = Table(title="FPR-95 ↓ and more", title_justify="left")
    table.add_column("OOD test set")
    for i in range(columns):
        table.add_column(f"method {i}", justify="right")
    for row in range(rows):
        cells = [Text.assemble((f"{100 + i}.{row}±10.0", "bold"), "\n", ("[99.9±0.1]≠", "dim")) for i in range(columns)]
        table.add_row(f"a set {row}", *cells)
    return table


@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_a_table_on_a_terminal_is_folded_and_loses_no_number(width):
    text = terminal.rendered(view(), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for row in range(3):
        for i in range(8):
            assert f"{100 + i}.{row}±10.0" in text
    assert text.count("[99.9±0.1]≠") == 24


def test_a_table_is_folded_before_cells_that_stay_whole_are():
    table = Table()
    table.add_column("detector")
    for i in range(5):
        table.add_column(f"set {i}", no_wrap=True)
    table.add_row("MSP", *(f"5{i}.6 / 89.3" for i in range(5)))
    text = terminal.rendered(table, width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert all(f"5{i}.6 / 89.3" in text for i in range(5))
    assert text.count("MSP") == 2


def test_lines_on_a_terminal_end_between_words_and_what_is_copied_stays_whole():
    text = (
        "Set by set in percent.  In-domain is positive; /a/path/that/is/longer/than/the/line has it, and"
        " `python -m experiments.run --root='my runs; b' --seed=1`; or leave it out of what is tested."
    )
    assert terminal.wrapped(text, 30).split("\n") == [
        "Set by set in percent.",
        "In-domain is positive;",
        "/a/path/that/is/longer/than/the/line",
        "has it, and",
        "`python -m experiments.run --root='my runs; b' --seed=1`;",
        "or leave it out of what is",
        "tested.",
    ]
    assert terminal.rendered("2 to 40", width=4) == "2 to\n40\n"
    assert terminal.rendered("a line " * 40) == "a line " * 40 + "\n"
    assert terminal.wrapped("東京 東京 東京\n\n  b", 9) == "東京 東京\n東京\n\n  b"


def test_a_long_name_is_folded_where_nothing_else_helps():
    table = Table()
    table.add_column("set")
    table.add_column("value")
    table.add_row("x" * 100, "y" * 90)
    text = terminal.rendered(table, width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert (text.count("x"), text.count("y")) == (100, 90)


def test_a_table_in_a_file_is_as_wide_as_it_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = terminal.rendered(view()).splitlines()
    assert sum("107.2±10.0" in line and "100.2±10.0" in line for line in lines) == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437", "koi8-r", "utf-8"])
def test_a_table_is_drawn_in_the_signs_of_the_encoding(monkeypatch, encoding):
    output = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", output)
    terminal.prepare()
    text = terminal.rendered(view())
    assert len({len(line) for line in text.splitlines()[1:]}) == 1  # columns stand below each other
    print(text, "a\udcffb 東京 → ü")
    output.flush()
    written = output.buffer.getvalue().decode(encoding)
    assert "a\\udcffb" in written
    assert ("東京" in written) == (encoding == "utf-8")
    if encoding == "ascii":
        assert "100.0+-10.0" in written
        assert "[99.9+-0.1]!=" in written
        assert "a\\udcffb \\u6771\\u4eac -> \\xfc" in written


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_commands_print_in_any_encoding(encoding):
    done = run(
        "experiments.tables", f"--root={RESULTS}", "--dataset=digits", "--table=faraway",
        env={"PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Table 1: FPR-95 far away" in done.stdout.decode(encoding)


@pytest.mark.parametrize(
    ("options", "redirect"),
    [
        (f"--root={RESULTS} --dataset=digits", "| head -1"),
        (f"--root={RESULTS} --dataset=digits", ">&-"),
        ("--help", "| true"),
        ("--root=nowhere", "2>&1 | true"),
        ("--root=nowhere", ">&- 2>&-"),
    ],
)
def test_a_reader_that_has_gone_ends_a_command_quietly(options, redirect):
    done = run(shell=f"{sys.executable} -m experiments.tables {options} {redirect}")
    assert b"Traceback" not in done.stdout + done.stderr
    assert b"Exception ignored" not in done.stdout + done.stderr
    assert b"BrokenPipe" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [f"tables --root={RESULTS} --dataset=digits", "tables --help", "prepare_data", "predict --run=none a.png",
     "run", "watch --run=none", "figures --figure=roc --root=none"],
)  # fmt: skip
def test_without_standard_output_nothing_is_begun(command):
    done = run(shell=f"{sys.executable} -m experiments.{command} >&-")
    assert done.returncode == 2
    assert re.fullmatch(rb"error: standard output is closed, and results are printed there[^\n]*\n", done.stderr)
    assert run(shell=f"{sys.executable} -m experiments.{command} >&- 2>&-").returncode == 2


@pytest.mark.parametrize("command", [f"tables --root={RESULTS} --dataset=digits", "tables --help", "prepare_data"])
@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("/dev/full", "No space left on device; redirect it to a file where there is space"),
        ("/dev/null", "Bad file descriptor; redirect it to a file"),
    ],
)
def test_what_standard_output_does_not_take_is_one_line(command, place, expected):
    redirect = f"> {place}" if place == "/dev/full" else f"1< {place}"
    done = run(shell=f"{sys.executable} -m experiments.{command} {redirect}")
    assert done.returncode == 2
    assert re.fullmatch(rf"error: standard output cannot be written to: {expected}\n", done.stderr.decode())


@pytest.fixture
def homeless(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "TFDS_DATA_DIR", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)

    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setattr("pwd.getpwnam", nobody)


def test_without_a_home_nothing_is_cached_and_nothing_fails(homeless):
    assert compile_cache.folder() is None
    compile_cache.use()
    assert not paths.default_data_dir().exists()
    assert str(paths.expanded("~nobody/x")) == "~nobody/x"


@pytest.mark.parametrize(("value", "below"), [("", ".cache"), ("relative", None)])
def test_an_empty_cache_setting_means_unset(monkeypatch, tmp_path, value, below):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    expected = None if below is None else tmp_path / below / "preload_jax" / "compiled"
    assert compile_cache.folder() == expected


CACHE_SETTINGS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    before = {name: getattr(jax.config, name) for name in CACHE_SETTINGS}
    yield tmp_path / "preload_jax" / "compiled"
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_cache_is_closed_to_others(cache, umask):
    before = os.umask(umask)
    try:
        compile_cache.use()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (cache.parent, cache)] == [0o700, 0o700]
    assert jax.config.jax_compilation_cache_dir == str(cache)


def test_what_others_could_have_put_there_is_not_kept(cache):
    cache.mkdir(parents=True)
    (cache / "planted-cache").write_bytes(b"x")
    cache.chmod(0o777)
    compile_cache.use()
    assert list(cache.iterdir()) == []
    assert cache.stat().st_mode & 0o777 == 0o700


def test_another_users_folder_is_not_used(cache, monkeypatch, capsys):
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    compile_cache.use()
    assert jax.config.jax_compilation_cache_dir == before != str(cache)
    assert "belongs to another user" in capsys.readouterr().err


def test_the_programs_used_last_stay(cache):
    cache.mkdir(parents=True, mode=0o700)
    for i in range(5):
        (cache / str(i)).touch()
        os.truncate(cache / str(i), 2**30)  # with nothing in it; 2 GiB are kept
        os.utime(cache / str(i), (1000 + i, 1000 + i))
    compile_cache.use()
    assert sorted(path.name for path in cache.iterdir()) == ["3", "4"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("e\x1b[31mred\nx", r"e\x1b[31mred\nx"),
        ("b\udcff.png", r"b\udcff.png"),
        ("tab\tand\rreturn", r"tab\tand\rreturn"),
        ("c1\x9b31mred\x85", r"c1\x9b31mred\x85"),
        ("del\x7f", r"del\x7f"),
        ("\u202etfel\u2066", r"\u202etfel\u2066"),
        ("line\u2028paragraph\u2029", r"line\u2028paragraph\u2029"),
        ("größer 日本 👨\u200d👩 a\xa0b", "größer 日本 👨\u200d👩 a\xa0b"),
    ],
)
def test_no_sign_of_a_name_acts_on_the_terminal(name, shown, capsys):
    view = Table(title=named(name), title_justify="left")
    view.add_column("two\nlines")
    view.add_column(Text(name, "red"))
    view.add_row(named(name), Text("cell"))
    text = terminal.rendered(view, f"about {name}", width=200)
    # The title and two cells; heads of columns and lines may have several lines, and rich drops some signs of a Text.
    assert text.count(shown) >= 2
    assert visible(text, keep="\n") == text
    assert "two" in text.splitlines()[2]
    display = Display()
    display.say(name)
    display.warn(name)
    display.end({"results": name})
    with pytest.raises(SystemExit):
        command_line.fail(name)
    *said, error = capsys.readouterr().err.splitlines()
    assert said == [shown, f"warning: {shown}", f"results  {shown}"]
    # Line breaks in errors, which other libraries' have, are blanks.
    assert error == f"error: {visible(' '.join(name.split()))}"
