import sys
from types import SimpleNamespace

import pytest

from benchmarks import kernels, sides


def main(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["kernels", *words])
    kernels.main()


def test_busy_time_counts_what_overlaps_once():
    spans = [(10.0, 5.0), (12.0, 1.0), (14.0, 3.0), (30.0, 2.0)]
    events = [SimpleNamespace(start_ns=start, duration_ns=duration) for start, duration in spans]
    assert kernels.busy_ns(events) == 7.0 + 2.0
    assert kernels.busy_ns([]) == 0.0


def test_a_table_of_the_operations_that_take_most(monkeypatch, capsys):
    monkeypatch.setitem(sides.NETWORKS, "lenet", (512, (28, 28, 1)))
    main(monkeypatch, "--steps=2", "--most=3")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 + 2
    times = [float(line.split()[0]) for line in lines[1:]]
    assert times[0] >= times[1] >= times[2] > 0
    assert times[3] >= sum(times[:3]) - 1e-3
    assert 0 < times[4] <= times[3]


@pytest.mark.parametrize("words", [("--steps=0",), ("--most=0",), ("--network=resnet",)])
def test_wrong_use(monkeypatch, words):
    with pytest.raises(SystemExit) as exit_:
        main(monkeypatch, *words)
    assert exit_.value.code == 2
