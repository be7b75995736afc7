"""results.json of another shape, and with numbers that no run has."""

import json
import math

import pytest

from experiments.runs import collected, records
from experiments.runs.run_dir import RunDir
from preload_jax.errors import UserError
from tests.experiments import results_for_tests

_RULE = {
    "false_alarm_rate": 0.05, "confidence": 0.95, "score": "msp", "threshold": None, "images": 100,
    "called_ood": dict.fromkeys(("in_domain", *results_for_tests.results()["ood"]), 0.5),
}  # fmt: skip
_VALIDATION = {"accuracy": 0.9, "size": 100, "split": "test"}


def _with_rule(rule, *, validation=_VALIDATION, **changes):
    return lambda values: values.update(rule=rule and rule | changes, validation=validation)


def _without(where, name):
    def change(values):
        place = values[where] if where else values
        place = place if where != "ood" else place["photo"]
        del place[name]

    return change


def _with(where, name, value):
    def change(values):
        place = values[where] if where else values
        place[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_without("", "in_domain"), "lacks in_domain"),
        (_without("", "seed"), "lacks seed"),
        (_without("in_domain", "accuracy"), "in_domain has no accuracy"),
        (_without("ood", "fpr95"), "ood.photo has no fpr95"),
        (_with("", "in_domain", {}), "in_domain has no accuracy"),
        (_with("", "in_domain", [1]), "in_domain must be an object"),
        (_with("", "ood", []), "ood must be an object"),
        (_with("ood", "photo", 3), "ood.photo must be an object"),
        (_with("in_domain", "ece", "0.1"), "in_domain.ece must be a finite number, got '0.1'"),
        (_with("in_domain", "ece", None), "in_domain.ece must be a finite number"),
        (_with("in_domain", "ece", True), "in_domain.ece must be a finite number"),
        (_with("in_domain", "ece", 10**400), "in_domain.ece must be a finite number"),
        (_with("in_domain", "ece", math.nan), "NaN is no number"),
        (_with("in_domain", "ece", math.inf), "Infinity is no number"),
        (_with("in_domain", "size", 1.5), "in_domain.size must be a whole number"),
        (_with("in_domain", "accuracy", 95.0), "in_domain.accuracy must be in [0, 1], got 95.0"),
        (_with("in_domain", "brier", -0.1), "in_domain.brier must be in [0, 2], got -0.1"),
        (_with("in_domain", "log_likelihood", 0.5), "in_domain.log_likelihood must be at most 0, got 0.5"),
        (_with("in_domain", "size", -5), "in_domain.size must be a whole number above 0, got -5"),
        (_with("in_domain", "size", 0), "in_domain.size must be a whole number above 0"),
        (lambda values: values["ood"]["photo"].update(fpr95=-3), "ood.photo.fpr95 must be in [0, 1], got -3"),
        (
            lambda values: values["ood"]["photo"].update(aupr_ood_positive=2),
            "photo.aupr_ood_positive must be in [0, 1]",
        ),
        (_with("", "ood", {}), "ood must have sets, each by its name"),
        (lambda values: values["ood"].update({"": values["ood"]["photo"]}), "ood must have sets, each by its name"),
        (_with("", "dataset", ""), "dataset must be a text that is not empty, got ''"),
        (_with("", "seed", -1), "seed must be a whole number of at least 0, got -1"),
        (_with("", "rule", None), "validation must be an object with a size, got None"),
        (_with_rule(None, validation={"size": "many"}), "validation.size must be a whole number of at least 0"),
        (_with_rule(None, validation={"size": 9, "accuracy": 9}), "validation.accuracy must be in [0, 1], got 9"),
        (lambda values: values.update(rule=[1], validation=_VALIDATION), "rule must be an object or null, got [1]"),
        (lambda values: values.update(rule={}, validation=_VALIDATION), "rule has no false_alarm_rate"),
        (_with_rule(_RULE, confidence=95), "rule.confidence must be a number between 0 and 1, got 95"),
        (_with_rule(_RULE, images=1.5), "rule.images must be a whole number above 0, got 1.5"),
        (_with_rule(_RULE, called_ood=3), "rule.called_ood must be an object, got 3"),
        (
            _with_rule(_RULE, called_ood={"in_domain": "a"}),
            "rule.called_ood must have faraway, in_domain, photo, uniform, got in_domain",
        ),
        (
            _with_rule(_RULE, called_ood={**_RULE["called_ood"], "in_domain": "a"}),
            "rule.called_ood.in_domain must be a number in [0, 1], got 'a'",
        ),
        (_with("", "seed", "0"), "seed must be a whole number"),
        (_with("", "seed", [0]), "seed must be a whole number"),
        (_with("", "dataset", {}), "dataset must be a text"),
        (_with("", "method", "ours"), "unknown method 'ours'"),
        (_with("", "method", []), "unknown method []"),
        (_with("", "ood_not_prepared", "emnist"), "ood_not_prepared must be a list of texts"),
        (_with("", "not_as_recipe", [1]), "not_as_recipe must be a list of texts"),
        (_with("", "outliers", 3), "outliers must be a text"),
        (_with("", "commit", 3), "commit must be a text"),
    ],
)
def test_results_of_another_shape_are_one_clear_line(tmp_path, change, expected):
    values = results_for_tests.results()
    change(values)
    (tmp_path / "results.json").write_text(json.dumps(values))
    for read in (lambda: RunDir(tmp_path).read_results(), lambda: collected.collect(tmp_path)):
        with pytest.raises(UserError) as error:
            read()
        assert expected in str(error.value)
        assert str(error.value).endswith("delete it and run again")


def test_a_rule_is_read(tmp_path):
    records.write(tmp_path / "results.json", results_for_tests.results(rule=_RULE, validation=_VALIDATION))
    assert RunDir(tmp_path).read_results()["rule"] == _RULE
