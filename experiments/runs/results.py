"""results.json, read and checked: whatever uses results finds every number that it asks for."""

import math
from pathlib import Path
from typing import Any

from experiments.runs import records
from preload_jax.digests import of_json
from preload_jax.errors import UserError
from preload_jax.methods import METHODS

# Format 1 had no digest.
_FORMATS = (1, records.FORMAT)
IN_DOMAIN = ("accuracy", "brier", "ece", "log_likelihood", "mmc", "size")
OOD = ("aupr", "auroc", "fpr95", "mmc", "size")
_NEEDED = ("dataset", "method", "seed", "in_domain", "ood")
# What each metric can be; others are any number.
_RANGES = {
    **dict.fromkeys(("accuracy", "ece", "mmc", "fpr95", "auroc", "aupr"), (0.0, 1.0)),
    "brier": (0.0, 2.0),
    "log_likelihood": (-math.inf, 0.0),
}
# Of sums in another order, and in float32.
_ROUNDING = 1e-5
_ADVICE = "delete it and run again"


def read(path: Path) -> dict[str, Any]:
    """One results.json.

    Raises:
        FileNotFoundError: when there is none.
        UserError: when it is damaged, or of another version.
    """
    values = records.read(path, advice=_ADVICE)
    missing = [name for name in _NEEDED if name not in values]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; {_ADVICE}")
    if (there := values.get("format")) not in _FORMATS or isinstance(there, bool):
        raise UserError(
            f"{path} is of format {there}, this version reads formats {_FORMATS[0]} and {_FORMATS[1]};"
            " evaluate the run again"
        )
    if problem := _problem(values):
        raise UserError(f"{path} is damaged: {problem}; {_ADVICE}")
    return {"ood_not_prepared": [], **values}


def of_another(values: dict[str, Any], config: dict[str, Any]) -> str | None:
    """What tells that results are not of the run of a configuration; None where nothing does.

    Args:
        values: of results.json.
        config: of config.json, as its file has it.
    """
    for name in ("dataset", "method", "seed", "recipe"):
        if name in values and name in config and values[name] != config[name]:
            return f"{name} {values[name]!r}, and {config[name]!r} there"
    # Results of earlier versions do not have it.
    if values.get("config_digest", of_json(config)) != of_json(config):
        return "other settings than there"
    return None


def number_problem(name: str, value: Any) -> str | None:
    """What is wrong with a metric's value, or a size."""
    if not records.is_number(value):
        return f"must be a finite number, got {value!r}"
    if name == "size":
        return None if isinstance(value, int) and value > 0 else f"must be a whole number above 0, got {value!r}"
    low, high = _RANGES.get(name.removesuffix("_ood_positive"), (-math.inf, math.inf))
    if low - _ROUNDING <= value <= high + _ROUNDING:
        return None
    return f"must be {f'in [{low:g}, {high:g}]' if low > -math.inf else f'at most {high:g}'}, got {value!r}"


def _problem(values: dict[str, Any]) -> str | None:
    """What is wrong with the first value that is not as it must be."""
    if not isinstance(values["dataset"], str) or not values["dataset"]:
        return f"dataset must be a text that is not empty, got {values['dataset']!r}"
    if not isinstance(values["method"], str) or values["method"] not in METHODS:
        return f"unknown method {values['method']!r}"
    if not isinstance(values["seed"], int) or isinstance(values["seed"], bool) or values["seed"] < 0:
        return f"seed must be a whole number of at least 0, got {values['seed']!r}"
    if not isinstance(values["ood"], dict):
        return f"ood must be an object, got {values['ood']!r}"
    if not values["ood"] or "" in values["ood"]:
        return "ood must have sets, each by its name"
    for name in ("ood_not_prepared", "not_as_recipe"):
        if not records.is_texts(values.get(name, [])):
            return f"{name} must be a list of texts, got {values[name]!r}"
    for name in ("recipe", "outliers", "commit", "machine"):
        if not isinstance(values.get(name), str | None):
            return f"{name} must be a text, got {values[name]!r}"
    tables = {"in_domain": values["in_domain"], **{f"ood.{name}": row for name, row in values["ood"].items()}}
    for where, row in tables.items():
        if problem := _row_problem(where, row):
            return problem
    return _validation_problem(values) or _rule_problem(values)


def _row_problem(where: str, row: Any) -> str | None:
    if not isinstance(row, dict):
        return f"{where} must be an object, got {row!r}"
    for name in IN_DOMAIN if where == "in_domain" else OOD:
        if name not in row:
            return f"{where} has no {name}"
    for name, value in row.items():
        if problem := number_problem(name, value):
            return f"{where}.{name} {problem}"
    return None


def _validation_problem(values: dict[str, Any]) -> str | None:
    """What is wrong with what is said of the validation images, which a rule, or that there is none, is said with."""
    if "validation" not in values and "rule" not in values:
        return None
    told = values.get("validation")
    if not isinstance(told, dict) or "size" not in told:
        return f"validation must be an object with a size, got {told!r}"
    if isinstance(size := told["size"], bool) or not isinstance(size, int) or size < 0:
        return f"validation.size must be a whole number of at least 0, got {size!r}"
    accuracy = told.get("accuracy")
    problem = None if accuracy is None else number_problem("accuracy", accuracy)
    return problem and f"validation.accuracy {problem}"


def _rule_problem(values: dict[str, Any]) -> str | None:
    rule = values.get("rule")
    if rule is None:  # Of too few validation images, and of the first versions.
        return None
    if not isinstance(rule, dict):
        return f"rule must be an object or null, got {rule!r}"
    for name in ("false_alarm_rate", "confidence", "images", "called_ood"):
        if name not in rule:
            return f"rule has no {name}"
    for name in ("false_alarm_rate", "confidence"):
        if not records.is_number(rule[name]) or not 0 < rule[name] < 1:
            return f"rule.{name} must be a number between 0 and 1, got {rule[name]!r}"
    if problem := number_problem("size", rule["images"]):
        return f"rule.images {problem}"
    if not isinstance(called := rule["called_ood"], dict):
        return f"rule.called_ood must be an object, got {called!r}"
    if called.keys() != (sets := {"in_domain", *values["ood"]}):
        return f"rule.called_ood must have {', '.join(sorted(sets))}, got {', '.join(sorted(called)) or 'none'}"
    for name, share in called.items():
        if not records.is_number(share) or not 0 <= share <= 1:
            return f"rule.called_ood.{name} must be a number in [0, 1], got {share!r}"
    return None
