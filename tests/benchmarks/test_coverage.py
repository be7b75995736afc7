"""The benchmark of coverage: populations are what their distribution functions say, and rules keep their promise."""

import numpy as np
import pytest

from benchmarks import coverage


@pytest.mark.parametrize("name", coverage.POPULATIONS)
def test_populations(name):
    draw, below = coverage.POPULATIONS[name]
    scores = draw(np.random.default_rng(0), 20_000)
    for t in (-np.inf, -1.0, 0.0, 0.5, 3.0, 3.5):
        assert np.mean(scores < t) == pytest.approx(below(t), abs=0.012)


def test_rules_keep_their_promise():
    rows = list(coverage.known(300))
    assert len(rows) == 3 * len(coverage.POPULATIONS)
    assert all(kept >= 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / 300) for _, _, kept, _, _ in rows)
    assert all(mean < 0.05 < largest + 0.05 for _, _, _, mean, largest in rows)
