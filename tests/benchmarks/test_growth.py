"""How growth is measured: exponents of known times, where a line ends, what is printed and drawn."""

import json
import sys

import numpy as np
import pytest

from benchmarks import growth


def line(times, sizes=(10, 100, 1000)):
    return growth.Line("it", "n", list(sizes), list(times), [None] * len(times))


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_exponent_is_that_of_the_last_two_sizes(power):
    assert line([7.0, 100**power, 1000**power]).exponent() == pytest.approx(power)


def test_a_line_ends_where_the_next_size_would_take_too_long(monkeypatch):
    # The time of a size is its square.
    monkeypatch.setattr(growth, "measured", lambda run: (run(), 5.0))
    found = growth.grow("it", "n", lambda n: lambda: float(n**2), (1, 10, 100, 1000), seconds=20_000)
    # 1,000 would take a million.
    assert (found.sizes, found.seconds, found.exponent()) == ([1, 10, 100], [1.0, 100.0, 10_000.0], 2.0)
    assert "| it | n | 1 – 100 | 1, 1e+02, 1e+04 | 0, 0, 0 | 2.00 |" in growth.table([found])


@pytest.mark.skipif(sys.platform != "linux", reason="peaks of memory are Linux's")
def test_the_peak_of_memory_is_that_of_what_was_run():
    seconds, peak = growth.measured(lambda: np.ones(2**25).sum())
    assert seconds > 0
    assert 2**28 * 0.8 < peak < 2**28 * 1.5


@pytest.mark.parametrize("case", growth.CASES, ids=lambda case: f"{case[0]} along {case[1]}")
def test_each_case_runs(case):
    _, axis, make = case
    make({"n": 1000, "K": 3, "d": 16}[axis])()


def test_a_picture_and_numbers_are_kept(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(growth, "CASES", growth.CASES[:1])
    monkeypatch.setitem(growth.SIZES, "n", (100, 1000))
    picture, numbers = tmp_path / "g.png", tmp_path / "g.json"
    monkeypatch.setattr(sys, "argv", ["growth", "--only=n", f"--figure={picture}", f"--json={numbers}"])
    growth.main()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(numbers.read_text())[0]["sizes"] == [100, 1000]
    assert "AUROC, FPR-95, AUPR" in capsys.readouterr().out


def test_wrong_use(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["growth", "--seconds=0"])
    with pytest.raises(SystemExit) as exit_:
        growth.main()
    assert exit_.value.code == 2
