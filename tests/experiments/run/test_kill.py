"""Runs killed with SIGKILL end like undisturbed ones; `python -m benchmarks.kill_test` is the long version."""

import pytest

from benchmarks import kill_test


@pytest.mark.slow
def test_killed_runs_end_like_undisturbed_ones(tmp_path, capsys):
    assert kill_test.kill_and_compare(["preload_ft"], kills=4, seed=1, root=tmp_path)
    assert "4 kills over 1 methods: parameters and results.json identical in" in capsys.readouterr().out
