"""What a trained network says of a few images, and by which rule they are OOD."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.table import Table

from experiments.cli.display import Display
from experiments.cli.terminal import rendered
from experiments.cli.visible import named, visible
from experiments.evaluate import report
from experiments.predict import why
from experiments.runs import rules
from experiments.runs.data import load_splits
from experiments.runs.trained import Trained
from preload_jax import api, decisions, metrics
from preload_jax.data import names
from preload_jax.data.readers.single_images import SingleImage
from preload_jax.data.specs import DatasetSpec
from preload_jax.data.splits import Arrays, Splits
from preload_jax.decisions import Rule
from preload_jax.decisions.answers import Predictions
from preload_jax.errors import DataError, UserError
from preload_jax.evaluation import Scorer

_TPR = 0.95
# Remarks on single images below the table.
_MOST_LINES = 20
_ARGMAX = "OOD where the OOD class is the most probable of all (the paper's rule)"


def predict(
    network: Trained,
    images: Sequence[SingleImage],
    *,
    tpr: float | None = None,
    false_alarm_rate: float | None = None,
    data_dir: Path | None,
    display: Display,
) -> dict[str, Any]:
    """Class, confidence, P(OOD), score, verdict and the reasons for it of each image, and the rule; for JSON.

    With a false-alarm rate a `decisions.Rule` of the validation images decides.  Else networks without an OOD class
    call an image OOD when its score is below what a share `tpr` (0.95, if it is None) of the data set's validation
    images reaches (of its test images where none are held out); without the data set, of the test images that the run
    was evaluated on; without those, nothing is said.

    Raises:
        DataError: when the method's score needs the training images (ddu), or the rule the validation images, and they
            are not prepared.
        UserError: for a rate that the validation images are too few for, or a `tpr` where something else decides.
    """
    method, spec = network.method, network.spec
    if tpr is not None and (false_alarm_rate is not None or method.has_ood_class):
        decides = "--false-alarm-rate" if false_alarm_rate is not None else f"the OOD class of {method.name}"
        raise UserError(f"--tpr={tpr:g} would change nothing: {decides} decides what is OOD; leave --tpr out")
    splits = None
    keeps_rule = false_alarm_rate is not None and _keeps_rule(network, false_alarm_rate)
    needs_training = method.scores_features and network.gaussians is None
    if needs_training or (not keeps_rule and (not method.has_ood_class or false_alarm_rate is not None)):
        splits = _load(network, data_dir, required=needs_training or false_alarm_rate is not None)
    nothing = Arrays(np.empty((0, *spec.image_shape), np.uint8), np.empty(0, np.int32))
    scorer, _ = report.scorer_of(
        network.config,
        network.model,
        network.variables,
        train=splits.train if splits else nothing,
        display=display,
        fitted=network.gaussians,
    )
    threshold, rule = None, _ARGMAX
    guaranteed = None
    if false_alarm_rate is not None:
        if keeps_rule:
            assert network.run_dir is not None
            guaranteed = rules.read(network.run_dir.rule, scorer=scorer)
        else:
            assert splits is not None
            guaranteed = _guaranteed(spec, splits, scorer, false_alarm_rate)
        rule = _in_words(guaranteed, network.spec.name)
    elif not method.has_ood_class:
        threshold, rule = _threshold(network, splits, scorer, _TPR if tpr is None else tpr)
    said = api.predict(
        network.model,
        network.variables,
        stack(images),
        score=scorer.score,
        ood_class=scorer.has_ood_class,
        threshold=threshold,
        rule=guaranteed,
        batch_size=min(500, len(images)),
    )
    decided_at = threshold if guaranteed is None else guaranteed.threshold()
    reasons = why.reasons(network.model, network.variables, [image.image for image in images], said, decided_at)
    return {
        "source": str(network.source),
        "dataset": spec.name,
        "method": method.name,
        "rule": rule,
        "threshold": decided_at,
        "higher_score": "in_domain",
        "images": rows(images, said, reasons, class_names=spec.class_names),
    }


def rows(
    images: Sequence[SingleImage], said: Predictions, reasons: Sequence[list[str]], *, class_names: Sequence[str]
) -> list[dict[str, Any]]:
    """One dictionary an image, for JSON: what it is, how sure that is, the verdict and the reasons for it."""
    return [
        {
            "image": image.name,
            "changes": list(image.changes),
            "label": int(said.label[i]),
            "class": class_names[said.label[i]],
            "confidence": float(said.probabilities[i].max()),
            "ood_probability": None if said.ood_probability is None else float(said.ood_probability[i]),
            "score": float(said.score[i]),
            "is_ood": None if said.is_ood is None else bool(said.is_ood[i]),
            "p_value": None if said.p_value is None else float(said.p_value[i]),
            "why": reasons[i],
        }
        for i, image in enumerate(images)
    ]


def _keeps_rule(network: Trained, rate: float) -> bool:
    """Whether the run has a rule of this rate; then the data set need not be here."""
    return rate == rules.RATE and network.run_dir is not None and network.run_dir.rule.is_file()


def _guaranteed(spec: DatasetSpec, splits: Splits, scorer: Scorer, rate: float) -> Rule:
    count, needed = len(splits.validation), decisions.images_needed(rate, rules.CONFIDENCE)
    # No more than its validation size are ever held out.
    helps = names.is_own(spec.name) and count < needed <= spec.validation_size
    more = f". {rules.how_to_have(needed)}" if helps else ""
    if not count:
        raise UserError(f"--false-alarm-rate needs validation images, and the run holds none out{more}")
    scores = scorer(splits.validation.images).scores
    try:
        return decisions.calibrate(scores, false_alarm_rate=rate, confidence=rules.CONFIDENCE, score=scorer.name)
    except UserError as error:
        raise UserError(f"{error}{more}") from None


def _in_words(rule: Rule, name: str) -> str:
    count = rules.num_images(rule)
    return (
        f"OOD where the score is below {rule.threshold():.4g}: with {100 * rule.confidence:g} % confidence at most"
        f" {100 * rule.false_alarm_rate:g} % of in-domain images are (from the {count:,} validation images of {name})"
    )


def _load(network: Trained, data_dir: Path | None, *, required: bool) -> Splits | None:
    """The data set; None where it is not here and can be done without."""
    config = network.config
    try:
        return load_splits(config, data_dir=data_dir)
    except DataError:
        if required:
            raise
        return None


def _threshold(network: Trained, splits: Splits | None, scorer: Scorer, tpr: float) -> tuple[float | None, str]:
    """The score at which a share `tpr` of in-domain images passes, and the rule in words."""
    name = network.spec.name
    if splits is not None:
        kind, arrays = ("validation", splits.validation) if len(splits.validation) else ("test", splits.test)
        scores = scorer(arrays.images).scores
        source = f"the {len(arrays):,} {kind} images of {name}"
    elif network.run_dir is not None and network.run_dir.scores.is_file():
        scores = network.run_dir.read_scores()["in_domain"]
        source = f"the {len(scores):,} test images of {name} that the run was evaluated on"
    else:
        return None, f"No verdict: {name} is not here, with whose images the threshold is chosen (--data-dir)"
    threshold = float(metrics.threshold_at_tpr(jnp.asarray(scores), tpr=tpr))
    return threshold, f"OOD where the score is below {threshold:.4g}, which {100 * tpr:g} % of {source} reach"


def stack(images: Sequence[SingleImage]) -> np.ndarray:
    """All as one array: uint8, or float32 where one of them is."""
    if all(image.image.dtype == np.uint8 for image in images):
        return np.stack([image.image for image in images])
    floats = [x.image / np.float32(255) if x.image.dtype == np.uint8 else x.image for x in images]
    return np.stack(floats)


def table(values: dict[str, Any], *, width: int | None = None) -> str:
    """The predictions as text for a terminal."""
    view = Table(title=named(f"{values['dataset']}, {values['method']}, {values['source']}"), title_justify="left")
    view.add_column("image", overflow="fold")
    view.add_column("class")
    for name in ("confidence", "P(OOD)", "score"):
        view.add_column(name, justify="right")
    answered = [row for row in values["images"] if "error" not in row]
    has_p = any(row["p_value"] is not None for row in answered)
    if has_p:
        view.add_column("p-value", justify="right")
    view.add_column("verdict")
    decimals = _decimals([row["score"] for row in answered])
    for row in values["images"]:
        if "error" in row:
            view.add_row(named(row["image"]), *["–"] * (4 + has_p), "unreadable")
            continue
        ood = row["ood_probability"]
        view.add_row(
            named(row["image"]),
            named(row["class"]),
            f"{100 * row['confidence']:.1f} %",
            "–" if ood is None else f"{100 * ood:.1f} %",
            f"{row['score']:.3g}" if decimals is None else f"{row['score']:.{decimals}f}",
            *([f"{row['p_value']:.3f}"] if has_p else []),
            {True: "OOD", False: "in-domain", None: "–"}[row["is_ood"]],
        )
    errors = [f"unreadable: {row['error']}" for row in values["images"] if "error" in row]
    reasons = [f"{row['image']}: {'; '.join(row['why'])}" for row in answered if row["why"]]
    changes = [f"{row['image']} was {', '.join(row['changes'])}" for row in answered if row["changes"]]
    about = [*_counts(values["images"]), f"{values['rule']}.  A higher score means more in-domain."]
    about += [*_first(errors, "errors"), *_first(reasons, "reasons"), *_first(changes, "changes")]
    return rendered(view, *map(visible, about), width=width)


def _counts(images: Sequence[dict[str, Any]]) -> list[str]:
    """How many images there are of each verdict, where there are more than a reader counts."""
    if len(images) <= _MOST_LINES:
        return []
    kinds = {"OOD": True, "in-domain": False}
    counts = {what: sum(row.get("is_ood") is verdict for row in images) for what, verdict in kinds.items()}
    unreadable = sum("error" in row for row in images)
    if sum(counts.values()) + unreadable < len(images):
        counts = {}
    parts = [f"{count:,} {what}" for what, count in counts.items()]
    parts += [f"{unreadable:,} unreadable"] if unreadable else []
    return [f"{len(images):,} images{': ' if parts else ''}{', '.join(parts)}."]


def _decimals(scores: Sequence[float]) -> int | None:
    """Decimals with which the largest score has four digits, or three behind the point; None for ones far from 1."""
    largest = max(map(abs, scores), default=0.0)
    if not 1e-6 < largest < 1e6:
        return None
    power = math.floor(math.log10(largest))
    return 3 if power == -1 else max(0, 3 - power)


def _first(lines: list[str], what: str) -> list[str]:
    """The first lines, and how many more there are: a folder of images would bury the table under its remarks."""
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], f"… and {what} of {more:,} more images, which --json has"]
