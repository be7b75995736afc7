"""Files made of a run's network later are read beside the results of that network alone."""

import pytest

from experiments.runs import collected, derived, records
from experiments.runs.run_dir import RunDir
from preload_jax.errors import UserError
from tests.experiments import results_for_tests

_DETECTORS = {"detectors": {"msp": {"ood": {"photo": {"auroc": 0.5}}}}}
_SHIFT = {
    "shift": "rotation",
    "levels": [{"kind": "", "level": 0, **results_for_tests.results()["in_domain"]}],
}


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        ("detectors.json", _DETECTORS, collected.read_detectors),
        ("shift_rotation.json", _SHIFT, collected.read_shift),
    ],
)
def test_those_of_another_network_are_refused(tmp_path, name, content, read):
    run = RunDir(tmp_path)
    records.write(run.results, results_for_tests.results(accuracy=0.9))
    derived.write(tmp_path / name, content)
    there = read(tmp_path / name)
    # The same network, evaluated again on another machine.
    records.write(run.results, {**results_for_tests.results(accuracy=0.9), "machine": "another", "commit": "1"})
    assert read(tmp_path / name) == there
    records.write(run.results, results_for_tests.results(accuracy=0.8))
    for reading in (lambda: read(tmp_path / name), lambda: collected.collect(tmp_path)):
        with pytest.raises(UserError, match=rf"{name} is of another run than results.json beside it; .* delete it and"):
            reading()
    # Of earlier versions, which did not say whose it is.
    records.write(tmp_path / name, content)
    assert read(tmp_path / name) == there
    assert collected.collect(tmp_path).results
