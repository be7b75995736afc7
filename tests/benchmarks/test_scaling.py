"""The arithmetic of docs/scaling.md: by hand for a small job, and that the page has what it gives."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import scaling

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scaling.md"


def test_arithmetic_by_hand():
    job = replace(scaling.JOBS[0], images=1000, image_bytes=10, epochs=3, batch=100, devices=4, peak=1e12, link=1e9)
    found = scaling.arithmetic(job, scaling.Network(parameters=1_000_000, sums=10, forward=1e9), 0.5)
    assert found["steps"] == 30
    # Three passes over 200 images of 1 GFLOP, on 4 devices of 0.5 TFLOP/s.
    assert found["computing"] == pytest.approx(0.3)
    # 2 · 3/4 of 4 MB over 1 GB/s, and ten sums.
    assert found["exchanging"] == pytest.approx(0.006 + 10 * 15e-6)
    assert found["training"] == pytest.approx(30 * (found["computing"] + found["exchanging"]))
    assert found["flop"] == pytest.approx(30 * 6e11)
    assert found["read"] == pytest.approx(2000 / (found["computing"] + found["exchanging"]))
    assert found["logits"] == 50_000 * 1001 * 4


def test_a_small_network_is_counted():
    found = scaling.count("mlp", (8, 8, 1), 10)
    assert found.sums == 1
    # 64 → 100 → 100 → 100 → 10 and the OOD class, or what the preset has: two FLOP a weight of a matrix, at least.
    assert 1.5 * found.parameters < found.forward < 3.0 * found.parameters


@pytest.mark.slow
def test_the_page_has_what_the_command_prints(capsys):
    scaling.main()
    page = PAGE.read_text()
    for line in capsys.readouterr().out.splitlines():
        assert line in page
