"""From logits to what a network says of each input: classes, probabilities, scores, and whether it is OOD."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax import scores
from preload_jax.decisions.rule import Rule
from preload_jax.errors import UserError
from preload_jax.log_sum_exp import log_softmax, softmax
from preload_jax.short_repr import short_repr

# Name → function, of all that `scores` has.
SCORES: dict[str, Callable[[Array], Array]] = {
    name: function
    for name, function in vars(scores).items()
    if getattr(function, "__module__", None) == scores.__name__ and not name.startswith("_")
}


@dataclass(frozen=True)
class Predictions:
    """What a network says of n inputs.

    Attributes:
        probabilities: of the K in-domain classes, [n, K].  With an OOD class they sum to 1 − ood_probability.
        ood_probability: of the OOD class, [n]; None for a network without one.
        label: the most probable in-domain class, int [n].
        is_ood: whether each input is OOD, bool [n].  With an OOD class: whether that class is the most probable of all
            (the paper's rule).  Without one: whether the score is below the threshold; None if no threshold was given.
            With a `decisions.Rule`: what the rule says.
        score: higher = more in-domain, [n]; in nats, unless a detector has another unit.  (`metrics.to_ood_scores`
            changes the sign for other toolkits.)
        p_value: of "this input is in-domain", [n], by the rule; None without a rule.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import make_classifier, predict
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> said = predict(model, variables, np.ones((5, 4, 4, 1), np.float32))
        >>> said.probabilities.shape, said.is_ood.shape
        ((5, 3), (5,))
    """

    probabilities: np.ndarray
    ood_probability: np.ndarray | None
    label: np.ndarray
    is_ood: np.ndarray | None
    score: np.ndarray
    p_value: np.ndarray | None = None

    __repr__ = short_repr


def score(name: str, logits: np.ndarray) -> np.ndarray:
    """Each input's score by a function of `scores`, higher = more in-domain: [n], float32."""
    return np.asarray(_score(logits, rule=SCORES[name]))


@partial(jax.jit, static_argnames="rule")
def _score(logits: Array, *, rule: Callable[[Array], Array]) -> Array:
    return rule(logits)


def class_log_probabilities(logits: Float[Array, "n k"], *, has_ood_class: bool) -> Float[Array, "n c"]:
    """log P(c | x) of the K in-domain classes: an OOD class is in the softmax, and its column dropped."""
    log_probabilities = log_softmax(logits.astype(jnp.float32))
    return log_probabilities[:, :-1] if has_ood_class else log_probabilities


def default_score(*, has_ood_class: bool) -> str:
    """Of a network whose score nobody named."""
    return "in_domain_probability" if has_ood_class else "max_probability"


def check_score(name: str, *, has_ood_class: bool) -> None:
    """Raises a UserError unless a network has the score of this name."""
    if name not in SCORES:
        raise UserError(f"unknown score {name!r}; expected one of {', '.join(SCORES)}, or a fitted detector")
    if name == "in_domain_probability" and not has_ood_class:
        raise UserError("the score in_domain_probability is of the OOD class, and the network has none")


def check_verdict(*, rule: Any, threshold: Any, score: str, has_ood_class: bool, detector: str = "") -> None:
    """Raises a UserError where what shall say "OOD" does not fit: two of it, another score's rule, or no number.

    `detector`: the digest of the fitted detector that gives the scores, where one does.
    """
    if rule is not None:
        if not isinstance(rule, Rule):
            raise UserError(f"the rule is a {type(rule).__name__}; expected a Rule, of decisions.calibrate")
        if threshold is not None:
            raise UserError("threshold and rule both decide what is OOD; leave one out")
        if rule.score and rule.score != score:
            raise UserError(
                f"the rule was calibrated for the score {rule.score!r}, this one is {score!r}; give its own"
            )
        if rule.detector and detector and rule.detector != detector:
            raise UserError(
                f"the rule was calibrated for another {score} detector: its options, or what it was fitted to, differ;"
                " calibrate again with this one's scores"
            )
    if has_ood_class and threshold is not None:
        raise UserError("threshold is for networks without an OOD class; leave it out, or give ood_class=False")
    if threshold is not None and not (
        isinstance(threshold, int | float | np.number | jax.Array)
        and not isinstance(threshold, bool)
        and threshold == threshold
    ):
        raise UserError(f"threshold is {threshold!r}; expected a number")


def answer(
    logits: np.ndarray,
    scores: np.ndarray,
    *,
    has_ood_class: bool,
    threshold: float | None = None,
    rule: Rule | None = None,
) -> Predictions:
    """Everything that follows from logits [n, K or K + 1] and scores [n].

    Raises:
        UserError: for logits that are NaN, or where the rule cannot judge.
    """
    if np.isnan(logits).any():
        bad = int(np.isnan(logits).any(axis=1).sum())
        raise UserError(
            f"the network answers NaN for {bad} of {len(logits)} images: are its variables finite, and"
            " tokens within its vocabulary?"
        )
    probabilities = np.exp(class_log_probabilities(jnp.asarray(logits), has_ood_class=has_ood_class))
    label = probabilities.argmax(axis=1)
    ood_probability = p_value = None
    is_ood = None if threshold is None else scores < threshold
    if has_ood_class:
        ood_probability = np.asarray(softmax(jnp.asarray(logits)))[:, -1]
        is_ood = logits.argmax(axis=1) == logits.shape[1] - 1
    if rule is not None:
        classes = label if rule.by_class else None
        is_ood = rule.is_ood(scores, classes=classes)
        p_value = rule.p_values(scores, classes=classes)
    return Predictions(probabilities, ood_probability, label, is_ood, scores, p_value)
