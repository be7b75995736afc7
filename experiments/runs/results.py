"""results.json, read and checked: whatever uses results finds every number that it asks for."""

from pathlib import Path
from typing import Any

from experiments.runs import records
from preload_jax.errors import UserError
from preload_jax.methods import METHODS

# Format 1 had no digest.
_FORMATS = (1, records.FORMAT)
IN_DOMAIN = ("accuracy", "brier", "ece", "log_likelihood", "mmc", "size")
OOD = ("aupr", "auroc", "fpr95", "mmc", "size")
_NEEDED = ("dataset", "method", "seed", "in_domain", "ood")
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


def _problem(values: dict[str, Any]) -> str | None:
    """What is wrong with the first value that is not as it must be."""
    if not isinstance(values["dataset"], str):
        return f"dataset must be a text, got {values['dataset']!r}"
    if not isinstance(values["method"], str) or values["method"] not in METHODS:
        return f"unknown method {values['method']!r}"
    if not isinstance(values["seed"], int) or isinstance(values["seed"], bool):
        return f"seed must be a whole number, got {values['seed']!r}"
    if not isinstance(values["ood"], dict):
        return f"ood must be an object, got {values['ood']!r}"
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
    return None


def _row_problem(where: str, row: Any) -> str | None:
    if not isinstance(row, dict):
        return f"{where} must be an object, got {row!r}"
    for name in IN_DOMAIN if where == "in_domain" else OOD:
        if name not in row:
            return f"{where} has no {name}"
    for name, value in row.items():
        if not records.is_number(value):
            return f"{where}.{name} must be a finite number, got {value!r}"
    return None if isinstance(row["size"], int) else f"{where}.size must be a whole number, got {row['size']!r}"
