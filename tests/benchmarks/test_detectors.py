import json
import sys

import numpy as np
import pytest

from benchmarks import detectors as benchmark
from preload_jax import detectors


@pytest.mark.parametrize("name", benchmark.NAMES)
def test_each_detector_is_given_what_it_reads_and_no_more(name, monkeypatch):
    needs, seen = detectors.TABLE[name].needs, {}
    fit = detectors.fit

    def looking(name, outputs, labels, *, head):
        seen.update(features=outputs.features, logits=outputs.logits, labels=labels, head=head)
        return fit(name, outputs, labels, head=head)

    monkeypatch.setattr(detectors, "fit", looking)
    scores = benchmark.ours(name, *benchmark.problem(1200, 40, 64))()
    assert scores.shape == (40,)
    assert np.isfinite(scores).all()
    assert {given for given, value in seen.items() if value is not None} == set(needs)


def test_one_detector_s_seconds_and_memory(monkeypatch, capsys):
    words = ["--one=msp", "--train=600", "--test=40", "--width=16", "--without-torch", "--seconds=0", "--least=1"]
    monkeypatch.setattr(sys, "argv", ["detectors", *words])
    benchmark.main()
    found = json.loads(capsys.readouterr().out)
    assert found["theirs"] is None
    assert 0 < found["ours"] < 10
    assert found["memory"] >= 0
    assert found["features"] == 640 * 16 * 4
