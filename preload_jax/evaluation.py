"""Evaluation: a network's outputs → scores → metrics; the one implementation, which `api` and the commands share."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

from preload_jax import detectors, digests, metrics
from preload_jax.checks import as_array, check_labels
from preload_jax.decisions.answers import SCORES, check_score, default_score, score
from preload_jax.detectors import Detector
from preload_jax.detectors.network import outputs_for, seen_by_classes
from preload_jax.devices import batches, forward, sharing
from preload_jax.errors import UserError
from preload_jax.integers import require_integer

Score = str | Detector
# What one forward pass gives; detectors that need more get it from `detectors.outputs`.
_OF_ONE_PASS = {"features", "logits", "head", "labels", "ood_logit"}


@dataclass(frozen=True)
class Outputs:
    """What a network says of n inputs: logits [n, K or K + 1], each one's score [n] (higher = more in-domain)."""

    logits: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class Scorer:
    """A network and the rule by which its outputs are scored.

    Attributes:
        model, variables: the classifier.
        has_ood_class: whether the last logit is the OOD class.
        score: name of a function of `scores`, or a fitted detector; None: `in_domain_probability` with an OOD class,
            `max_probability` without.
        mesh: the devices that share each batch; those of several processes share the batches, see `sharing`.
    """

    model: Any
    variables: Mapping[str, Any]
    has_ood_class: bool
    score: Score | None = None
    mesh: Mesh | None = None

    def __post_init__(self) -> None:
        rule = self.rule
        if not isinstance(rule, str | Detector):
            raise UserError(f"score is a {type(rule).__name__}; expected one of {list(SCORES)}, or a fitted detector")
        if isinstance(rule, str):
            check_score(rule, has_ood_class=self.has_ood_class)

    @property
    def rule(self) -> Score:
        if self.score is not None:
            return self.score
        return default_score(has_ood_class=self.has_ood_class)

    @property
    def name(self) -> str:
        """Of the score: that of a function of `scores`, or of a detector."""
        rule = self.rule
        return rule if isinstance(rule, str) else rule.name

    @property
    def digest(self) -> str:
        """SHA-256 of the network's variables and of the rule: what a score depends on, beside the network's code."""
        detector = self.rule.digest if isinstance(self.rule, Detector) else ""
        return digests.of_tree(dict(self.variables), notes={"score": self.name, "detector": detector})

    def __call__(self, images: np.ndarray, *, batch_size: int = forward.BATCH_SIZE) -> Outputs:
        """Logits and scores of any number of images, see `forward.predict`."""
        rule, images = self.rule, as_array(images, name="images")
        if isinstance(rule, str):
            logits, _ = forward.predict(self.model, self.variables, images, batch_size=batch_size, mesh=self.mesh)
            return Outputs(logits, score(rule, logits))
        if set(detectors.get(rule.name).needs) <= _OF_ONE_PASS:
            logits, features = forward.predict(
                self.model, self.variables, images, batch_size=batch_size, features=True, mesh=self.mesh
            )
            return Outputs(
                logits, detectors.score(rule, detectors.Outputs(seen_by_classes(self.model, features), logits))
            )
        full = outputs_for([rule.name], self.model, self.variables, images, batch_size=batch_size, mesh=self.mesh)
        return Outputs(np.asarray(full.logits), detectors.score(rule, full))

    def of(self, given: Any, *, batch_size: int = forward.BATCH_SIZE) -> Outputs:
        """The outputs of an array, or of batches that an iterator yields: these are never together in memory.

        Raises:
            UserError: as of one array, and where there is no batch.
        """
        if not isinstance(given, Iterator):
            return self(given, batch_size=batch_size)
        batch_size = require_integer("batch_size", batch_size, at_least=1)
        # As an array would be cut, so that the outputs are the same to the bit; a batch for each process.
        groups = batches.regrouped(given, batch_size * sharing.num_processes(self.mesh))
        found = [self(images, batch_size=batch_size) for images in sharing.read(groups, self.mesh)]
        if not found:
            raise UserError("no images; give at least one")
        return Outputs(np.concatenate([o.logits for o in found]), np.concatenate([o.scores for o in found]))


def evaluate(
    scorer: Scorer,
    images: np.ndarray,
    labels: Int[np.ndarray, "n"],
    ood: Mapping[str, Any],
    *,
    released_code_ece: bool = False,
    ood_positive: bool = False,
    on_set: Callable[[str, int], None] = lambda name, done: None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """All metrics of a network: {"in_domain": …, "ood": {name: …}}, and each image's score by set.

    Args:
        scorer: the network and its rule.
        images, labels: in-domain.
        ood: name → images, or a function that gives them, or an iterator of batches, when their turn comes.
        released_code_ece: leaves out the ECE's highest bin, as the released code does.
        ood_positive: also the metrics that have OOD as the positive class.
        on_set: is told the name of each set that is done and how many are.

    Raises:
        UserError: when data and network do not fit.
    """
    labels = check_labels(labels)
    _require_as_many(len(images), labels)
    return evaluate_outputs(
        scorer,
        scorer(images),
        labels,
        ood,
        released_code_ece=released_code_ece,
        ood_positive=ood_positive,
        on_set=on_set,
    )


def _require_as_many(count: int, labels: np.ndarray) -> None:
    if count != len(labels):
        raise UserError(f"{count} images but {len(labels)} labels; expected one label an image")


def evaluate_outputs(
    scorer: Scorer,
    outputs: Outputs,
    labels: Int[np.ndarray, "n"],
    ood: Mapping[str, Any],
    *,
    released_code_ece: bool = False,
    ood_positive: bool = False,
    on_set: Callable[[str, int], None] = lambda name, done: None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """`evaluate`, of outputs on in-domain images."""
    labels = check_labels(labels)
    _require_as_many(len(outputs.logits), labels)
    found, ood_results = {"in_domain": outputs.scores}, {}
    in_domain = in_domain_metrics(
        outputs.logits, labels, has_ood_class=scorer.has_ood_class, released_code_ece=released_code_ece
    )
    on_set("in_domain", 1)
    for done, (name, given) in enumerate(ood.items(), start=2):
        of_set = scorer.of(given() if callable(given) else given)
        found[name] = of_set.scores
        ood_results[name] = ood_metrics(
            outputs.scores,
            of_set.scores,
            logits_ood=of_set.logits,
            has_ood_class=scorer.has_ood_class,
            ood_positive=ood_positive,
        )
        on_set(name, done)
    return {"in_domain": in_domain, "ood": ood_results}, found


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    """The share of images whose largest logit is their label's; a predicted OOD class is an error."""
    return float(np.mean(logits.argmax(axis=1) == labels))


def in_domain_metrics(
    logits: np.ndarray, labels: Int[np.ndarray, "n"], *, has_ood_class: bool, released_code_ece: bool = False
) -> dict[str, float]:
    """Accuracy, ECE (15 bins), Brier score, mean log-likelihood and MMC of labelled in-domain images, and their number.

    Accuracy counts a predicted OOD class as an error.  Fractions; log-likelihood in nats.

    Raises:
        ValueError: when logits and labels differ in number, a label is no class, or a logit is NaN.
    """
    labels = check_labels(labels)
    num_classes = logits.shape[1] - has_ood_class
    if len(logits) != len(labels):
        raise UserError(f"{len(logits)} logits but {len(labels)} labels; expected one label an image")
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        raise UserError(f"labels run from {labels.min()} to {labels.max()}; expected 0 to {num_classes - 1}")
    values = metrics.classification(logits, labels, has_ood_class=has_ood_class, released_code_ece=released_code_ece)
    return {**values, "size": len(labels)}


def ood_metrics(
    scores_in: np.ndarray,
    scores_ood: np.ndarray,
    *,
    logits_ood: np.ndarray,
    has_ood_class: bool,
    ood_positive: bool = False,
) -> dict[str, float]:
    """FPR-95, AUROC and AUPR (in-domain positive) and the OOD images' MMC, and their number; fractions.

    With `ood_positive` also the FPR-95 and AUPR that have OOD as the positive class, "fpr95_ood_positive" and
    "aupr_ood_positive".

    Raises:
        ValueError: when a score is NaN or there is none.
    """
    both = np.asarray(scores_in), np.asarray(scores_ood)
    values: dict[str, Any] = {
        "fpr95": metrics.fpr_at_tpr(*both),
        "auroc": metrics.auroc(*both),
        "aupr": metrics.aupr(*both),
        "mmc": metrics.mean_max_confidence_of_logits(logits_ood, has_ood_class=has_ood_class),
    }
    if ood_positive:
        values["fpr95_ood_positive"] = metrics.fpr_at_tpr(*both, ood_positive=True)
        values["aupr_ood_positive"] = metrics.aupr(*both, ood_positive=True)
    return {**{name: float(value) for name, value in values.items()}, "size": len(scores_ood)}
