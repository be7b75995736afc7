"""The rule of a run: which inputs are called OOD, with a guaranteed rate of false alarms."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runs import records
from preload_jax import decisions
from preload_jax.checks import finite_or_none
from preload_jax.data import names
from preload_jax.decisions import Rule
from preload_jax.errors import UserError
from preload_jax.evaluation import Scorer

# What a run promises of itself.
RATE, CONFIDENCE = 0.05, 0.95


def images_needed() -> int:
    """How many validation images a run's rule takes at least."""
    return decisions.images_needed(RATE, CONFIDENCE)


def calibrated(scores: np.ndarray, *, score: str) -> Rule | None:
    """The rule of validation images' scores; None where they are too few."""
    if len(scores) < images_needed():
        return None
    return decisions.calibrate(scores, false_alarm_rate=RATE, confidence=CONFIDENCE, score=score)


def read(path: Path, *, scorer: Scorer) -> Rule:
    """A run's rule.json, for the network and the score that it was made with.

    Raises:
        FileNotFoundError: when there is none.
        UserError: when it is damaged, or of another network or score.
    """
    advice = "delete it, and results.json, and run again"
    record = records.read(path, advice=advice)
    if "scorer" in record and record["scorer"] != scorer.digest:
        raise UserError(f"{path} is of another network, or of another score; {advice}")
    try:
        rule = Rule.from_record(record["rule"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); {advice}") from None
    if rule.false_alarm_rate != RATE:
        raise UserError(f"{path} is of a false-alarm rate of {rule.false_alarm_rate:g}, not {RATE:g}; {advice}")
    return rule


def is_of_another(path: Path, *, scorer: Scorer) -> bool:
    """Whether a rule.json tells that it is of another network or score; one that is damaged, or not there, does not."""
    try:
        record = records.read(path, advice="")
    except (FileNotFoundError, UserError):
        return False
    return record.get("scorer", scorer.digest) != scorer.digest


def write(path: Path, rule: Rule, *, scorer: Scorer) -> None:
    """rule.json, which names the network and the score."""
    records.write(path, {"rule": rule.record(), "scorer": scorer.digest})


def num_images(rule: Rule) -> int:
    """Of how many validation images it was made."""
    return sum(len(values) for values in rule.calibration.values())


def in_short(rule: Rule) -> str:
    """One rule in a line."""
    return (
        f"OOD where the {rule.score} is below {rule.threshold():.4g}: at most {100 * rule.false_alarm_rate:g} % of"
        f" in-domain images are, with {100 * rule.confidence:g} % confidence"
    )


def summary(rule: Rule, scores: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """For results.json: the promise, the threshold, and the share of each test set that is called OOD."""
    threshold = rule.threshold()
    return {
        "false_alarm_rate": rule.false_alarm_rate,
        "confidence": rule.confidence,
        "score": rule.score,
        # Null: so low a threshold calls nothing OOD.
        "threshold": finite_or_none(threshold),
        "images": num_images(rule),
        "called_ood": {name: float(np.mean(rule.is_ood(values))) for name, values in scores.items()},
    }


def why_none(validation_images: int, *, dataset: str) -> str:
    """Why there is no column "called OOD", and of the user's own data, how to get it."""
    needed = images_needed()
    images = f"{validation_images:,} validation images are too few" if validation_images else "no validation images"
    more = f" {how_to_have(needed)}" if names.is_own(dataset) else ""
    return (
        f"No column called OOD: {images}. A threshold with which at most {100 * RATE:g} % of in-domain images are"
        f" called OOD, with {100 * CONFIDENCE:g} % confidence, takes at least {needed}.{more}"
    )


def how_to_have(needed: int) -> str:
    """How a run on the user's own data gets so many validation images."""
    return (
        "Train again with --validation=train, which holds out a fifth of the training images"
        f" ({5 * needed:,} are enough), or with a validation split of your own of {needed:,} images, beside a test"
        " split."
    )


def in_words(summary: Mapping[str, Any]) -> str:
    """What the column "called OOD" shows."""
    rate, sure = 100 * summary["false_alarm_rate"], 100 * summary["confidence"]
    return (
        f"Called OOD: by a threshold of {summary['images']:,} validation images, with which at most {rate:g} % of"
        f" in-domain images are, with {sure:g} % confidence. Of the test images"
        f" {100 * summary['called_ood']['in_domain']:.1f} % are."
    )
