"""A threshold on a score with a guaranteed false-alarm rate, and conformal p-values, from held-out in-domain scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

from preload_jax import digests
from preload_jax.checks import require_share
from preload_jax.decisions import order_statistics
from preload_jax.decisions.arguments import checked_classes, checked_scores
from preload_jax.errors import UserError, unknown
from preload_jax.integers import require_integer, require_seed

Ties = Literal["conservative", "randomised"]
_FORMAT = 1
# Of all predicted classes together.
_ALL = -1


@dataclass(frozen=True, eq=False)
class Rule:
    """Which inputs are called OOD: those that score below a threshold.  Rules are equal if all they hold is equal.

    Attributes:
        false_alarm_rate: α, the largest share of in-domain inputs that may be called OOD.
        confidence: the probability, over calibration sets, with which the rate is kept.
        score: what the scores are of, such as "energy"; "" if nobody said.
        calibration: the calibration scores in ascending order, by predicted class; by −1 if one threshold serves all.
        detector: the digest of the fitted detector that gave the scores; "" if none was named.

    Raises:
        UserError: for what `calibrate` refuses.

    Example: see `calibrate`.
    """

    false_alarm_rate: float
    confidence: float
    score: str
    calibration: Mapping[int, Float[np.ndarray, "n"]]
    detector: str = ""

    def __post_init__(self) -> None:
        rate = require_share("false_alarm_rate", self.false_alarm_rate)
        sure = require_share("confidence", self.confidence)
        if not isinstance(self.score, str) or not isinstance(self.detector, str):
            raise UserError(f"score is {self.score!r}; expected a name, or a fitted detector")
        groups = _checked_groups(self.calibration)
        _require_enough(groups, rate, sure)
        for name, value in (("false_alarm_rate", rate), ("confidence", sure), ("calibration", groups)):
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        count = sum(map(len, self.calibration.values()))
        start = f"score={self.score!r}, rate={self.false_alarm_rate:g}, confidence={self.confidence:g}, n={count}"
        if self.by_class:
            return f"Rule({start}, classes={len(self.calibration)})"
        return f"Rule({start}, threshold={self.threshold():.4g})"

    def __reduce__(self) -> Any:  # A mapping that cannot be changed cannot be pickled, either.
        return Rule.from_record, (self.record(),)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that the rule holds."""
        return digests.of_json(self._values())

    @property
    def by_class(self) -> bool:
        """Whether each predicted class has a threshold of its own."""
        return _ALL not in self.calibration

    def rank(self, of_class: int = _ALL) -> int:
        """k: the threshold is the k-th smallest calibration score."""
        return order_statistics.rank(len(self._scores(of_class)), self.false_alarm_rate, self.confidence)

    def threshold(self, of_class: int = _ALL) -> float:
        """Inputs that score below this are called OOD; an input that equals it is not."""
        return float(self._scores(of_class)[self.rank(of_class) - 1])

    def false_alarm_bound(self, of_class: int = _ALL) -> float:
        """What the false-alarm rate is at most, with the rule's confidence: the Clopper-Pearson bound, at most α."""
        n, k = len(self._scores(of_class)), self.rank(of_class)
        return order_statistics.largest_rate(n, k, self.confidence)

    def p_value_at_threshold(self, of_class: int = _ALL) -> float:
        """k / (n + 1), the largest conservative p-value of an input that is called OOD.  It lies below α."""
        return self.rank(of_class) / (len(self._scores(of_class)) + 1)

    def is_ood(self, scores: Any, *, classes: Any = None) -> Bool[np.ndarray, "m"]:
        """Whether each input is called OOD.

        Args:
            scores: [m], higher = more in-domain, by the score that the rule was calibrated for.
            classes: the predicted class of each, [m], for a rule by class.

        Raises:
            UserError: for NaN, or classes that are missing or that the rule does not know.
        """
        values = checked_scores(scores)
        return values < self._for_each(values, classes, self.threshold)

    def p_values(
        self, scores: Any, *, classes: Any = None, ties: Ties = "conservative", seed: int | None = None
    ) -> Float[np.ndarray, "m"]:
        """Conformal p-values of "this input is in-domain": P(p ≤ u) ≤ u for an in-domain input, over calibration sets.

        "conservative": p = (1 + #{calibration ≤ s}) / (n + 1).  "randomised": calibration scores that equal s count
        with probability U, uniform in (0, 1], as does the 1: then P(p ≤ u) = u exactly, whatever the ties.

        Args:
            scores, classes: as for `is_ood`.
            ties: see above.
            seed: of U, an integer from 0; None for another U in each call.  A seed for two calls gives both the same U.

        Raises:
            UserError: as `is_ood`, and for unknown ties or another seed.
        """
        if ties not in get_args(Ties):
            raise UserError(unknown("ties", ties, get_args(Ties)))
        if seed is not None:
            seed = require_seed(seed)
        values = checked_scores(scores)
        found = np.empty(len(values))
        for label, rows in self._groups(values, classes).items():
            calibration = self._scores(label)
            below, equal = _ranks(calibration, values[rows])
            # 1 − [0, 1): a p-value is never 0.
            share = 1.0 if ties == "conservative" else 1.0 - np.random.default_rng(seed).random(len(values))[rows]
            found[rows] = (below + share * (equal + 1)) / (len(calibration) + 1)
        return found

    def record(self) -> dict[str, Any]:
        """Everything, for JSON, with a digest; `from_record` reads it."""
        return digests.sealed(self._values())

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "format": _FORMAT,
            "false_alarm_rate": self.false_alarm_rate,
            "confidence": self.confidence,
            "score": self.score,
            # As text: JSON has no infinity, and text keeps every bit.
            "calibration": {str(label): [float(x).hex() for x in x_s] for label, x_s in self.calibration.items()},
        }
        # Rules of versions before it have the digest that they had.
        return {**values, "detector": self.detector} if self.detector else values

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Rule":
        """The rule of a record.

        Raises:
            UserError: for a record that is damaged or of a newer format.
        """
        values = digests.unsealed(
            record, what="the rule", written_by="Rule.record()", newest=_FORMAT, advice="calibrate again"
        )
        try:
            scores = {
                int(label): np.array([float.fromhex(x) for x in x_s]) for label, x_s in values["calibration"].items()
            }
            rate, sure, score = (values[name] for name in ("false_alarm_rate", "confidence", "score"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"the rule is not what Rule.record() returned ({error!r}); calibrate again") from None
        return cls(rate, sure, score, scores, values.get("detector", ""))

    def _scores(self, of_class: int) -> np.ndarray:
        of_class = require_integer("of_class", of_class, at_least=_ALL)
        if self.by_class and of_class == _ALL:
            raise UserError(
                f"the rule has a threshold for each predicted class; give one of {sorted(self.calibration)}"
            )
        if of_class not in self.calibration:
            raise UserError(f"the rule has no threshold for class {of_class}; it knows {sorted(self.calibration)}")
        return self.calibration[of_class]

    def _groups(self, values: np.ndarray, classes: Any) -> dict[int, np.ndarray]:
        """Rows by predicted class."""
        if not self.by_class:
            return {_ALL: np.arange(len(values))}
        labels = checked_classes(classes, len(values))
        return {int(label): np.flatnonzero(labels == label) for label in np.unique(labels)}

    def _for_each(self, values: np.ndarray, classes: Any, number: Any) -> np.ndarray:
        found = np.empty(len(values))
        for label, rows in self._groups(values, classes).items():
            found[rows] = number(label)
        return found


def _ranks(calibration: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many of the sorted calibration scores lie below each value, and how many equal it.

    The values are asked about in their order: a million of them in a million scores take a seventh of the time so.
    """
    order = np.argsort(values)
    below, upto = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    for found, side in ((below, "left"), (upto, "right")):
        found[order] = np.searchsorted(calibration, values[order], side=side)  # type: ignore[call-overload]
    return below, upto - below


def calibrate(
    scores_in: Any,
    *,
    false_alarm_rate: float = 0.05,
    confidence: float = 0.95,
    classes: Any = None,
    score: Any = "",
) -> Rule:
    """A rule that calls at most a given share of in-domain inputs OOD, whatever the distribution of the scores.

    The threshold is the k-th smallest of n calibration scores, with the largest k for which
    P(Binomial(n, α) ≥ k) ≥ confidence.  The share of in-domain inputs below it then follows Beta(k, n + 1 − k) if
    scores are continuous, and is stochastically smaller if they have ties.  So with probability `confidence` over the
    calibration set the share is at most α.  This is exact for every n; nothing is asymptotic.

    Scores are compared as float32 has them, so that a score is itself in either precision.

    The calibration scores must be independent draws of what the rule will see, and nothing may have been chosen by
    them: not the network, not the epoch, not a temperature, not the score.  Use images that were held out for this.

    Args:
        scores_in: [n] scores of in-domain inputs, higher = more in-domain; −∞ and +∞ are allowed.
        false_alarm_rate: α, between 0 and 1, both excluded.
        confidence: between 0 and 1, both excluded.
        classes: [n] predicted classes; then each class has a threshold of its own, and the promise holds for each class
            by itself (Mondrian calibration).
        score: what the scores are of: a name, such as "max_probability", or the fitted detector.  It is kept, and
            compared where the rule is used.  Of a detector its options and what it was fitted to are compared, too.

    Raises:
        UserError: for no scores, NaN, rates outside (0, 1), or too few scores for the promise: it says how many it
            takes.

    Example:
        >>> import numpy as np
        >>> from preload_jax import decisions
        >>> rng = np.random.default_rng(0)
        >>> rule = decisions.calibrate(rng.normal(size=1000))
        >>> round(rule.p_value_at_threshold(), 3), round(rule.false_alarm_bound(), 4)
        (0.039, 0.0495)
        >>> bool(rule.is_ood(rng.normal(size=100_000)).mean() <= 0.05), rule.is_ood([-9.0]).tolist()
        (True, [True])
    """
    detector = "" if isinstance(score, str) else getattr(score, "digest", None)
    if detector is None:
        raise UserError(f"score is {score!r}; expected a name, or a fitted detector")
    values = checked_scores(scores_in, name="calibration scores")
    labels = np.full(len(values), _ALL) if classes is None else checked_classes(classes, len(values))
    groups = {int(label): values[labels == label] for label in np.unique(labels)}
    return Rule(false_alarm_rate, confidence, score if isinstance(score, str) else score.name, groups, detector)


def _checked_groups(calibration: Any) -> Mapping[int, np.ndarray]:
    """The scores of each predicted class, sorted, read-only."""
    if not isinstance(calibration, Mapping) or not all(isinstance(label, int | np.integer) for label in calibration):
        raise UserError("the calibration is no mapping from predicted classes to scores; use decisions.calibrate")
    if min(calibration, default=0) < _ALL or (_ALL in calibration and len(calibration) > 1):
        raise UserError(f"the calibration is of classes {sorted(calibration)}; expected 0 … K - 1, or -1 alone for all")
    groups = {int(label): np.sort(checked_scores(x, name="calibration scores")) for label, x in calibration.items()}
    for values in groups.values():
        values += 0.0  # −0 is 0.
        values.flags.writeable = False
    return MappingProxyType(groups)


def _require_enough(groups: Mapping[int, np.ndarray], rate: float, sure: float) -> None:
    """Raises a UserError unless each class has scores enough for the promise."""
    if not sum(map(len, groups.values())):
        raise UserError("no calibration scores; give those of held-out in-domain inputs")
    needed = order_statistics.images_needed(rate, sure)
    few = {label: len(group) for label, group in groups.items() if len(group) < needed}
    if few:
        label, count = next(iter(few.items()))
        where = "" if label == _ALL else f" of predicted class {label}"
        raise UserError(
            f"{count} calibration scores{where}, one for each held-out input (validation image); a false-alarm rate of"
            f" {rate:g} with confidence {sure:g} takes at least {needed}: hold out more, or promise less: a higher"
            " rate, or a lower confidence"
        )
