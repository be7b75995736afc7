"""The networks that are kept: each has its results and says nothing of where it was trained; differences are found."""

import copy
import json

import pytest

from preload_jax import weights
from tests.results import kept

FILES = kept.files()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_kept_network_is_the_one_of_its_results(path):
    found, results = weights.load(path), json.loads(FILES[path].read_text())
    config = json.loads(found.metadata["config"])
    assert [found.metadata[name] for name in ("dataset", "method")] == [results["dataset"], results["method"]]
    assert config["seed"] == results["seed"]
    # Results of Standard say nothing of outliers, which it does not see.
    assert results["outliers"] in (None, config["outliers"])
    assert "/" not in config["outliers"]
    assert config["start"] is None or not config["start"].startswith("/")
    assert found.num_classes == len(json.loads(found.metadata["class_names"])) == 10


def test_there_are_some():
    assert {results.name for results in FILES.values()} == {"results.json", "lr1e-3_weight1.json"}


def test_a_number_that_is_another_is_named():
    results = json.loads(next(iter(FILES.values())).read_text())
    pairs, wrong = kept.differences(results, results)
    assert wrong == []
    assert len(pairs) == 4 + 3 * len(results["ood"])
    for change in (0.01, float("nan")):
        again = copy.deepcopy(results)
        again["in_domain"]["accuracy"] += change
        again["ood"]["uniform"]["fpr95"] += change
        again["ood"].pop("smooth")
        pairs, wrong = kept.differences(results, again)
        assert [line.partition(":")[0] for line in wrong] == ["accuracy", "uniform fpr95"]
        assert len(pairs) == 4 + 3 * (len(results["ood"]) - 1)
