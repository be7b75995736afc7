"""Watching a stream of scores: whether they still come from where the calibration scores came from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from preload_jax import digests
from preload_jax.checks import require_share
from preload_jax.decisions import order_statistics
from preload_jax.decisions.arguments import checked_scores
from preload_jax.decisions.rule import Rule
from preload_jax.errors import UserError

_FORMAT = 1
# Shares of the calibration scores, counted from below and from above, whose frequency in the stream is watched.
_LEVELS = (0.01, 0.05, 0.2, 0.5)
# Bets, as fractions of the largest that cannot lose everything.
_BETS = (0.01, 0.05, 0.2, 0.6)
# A new gambler begins after so many inputs; so many bet at once, the first and the newest.
_EVERY, _GAMBLERS = 500, 32


@dataclass(frozen=True)
class Status:
    """What a monitor has seen.

    Attributes:
        seen: how many inputs.
        called_ood: how many of them the rule calls OOD.
        log_e_value: the logarithm of the evidence that the stream differs from the calibration set; 0 says nothing.
        drifted: whether the evidence has ever been enough.

    Example: see `Monitor`.
    """

    seen: int
    called_ood: int
    log_e_value: float
    drifted: bool


class Monitor:
    """Counts what a rule calls OOD in a stream, and tells when the stream is no longer in-domain.

    It may be asked after every input, for ever: over all of them together the probability of a false "drifted" is at
    most `error`, over calibration sets and streams of in-domain inputs.  Half of it pays for the finite calibration
    set.  A test that takes the calibration set for the distribution itself raises a false alarm sooner or later.

    For some k the share of in-domain inputs that score below the k-th smallest calibration score is at most b_k, with
    the confidence of Clopper and Pearson; likewise above the k-th largest.  A gambler bets λ (X − b_k) on each input,
    X whether it lies there.  The mean of the capital never grows, so that it reaches 2 / error with probability at
    most error / 2 (Ville's inequality).  The evidence is the mean capital over several k and λ, and over gamblers who
    begin with 1 at inputs 0, 500, 1000, …, the j-th with the weight 1 / ((j + 1)(j + 2)): a drift after a long calm is
    seen by those who have lost nothing yet.

    Args:
        rule: of `calibrate`, with one threshold for all classes.
        error: the probability of a false "drifted", between 0 and 1.

    Raises:
        UserError: for a rule by class, or an error outside (0, 1).

    Example:
        >>> import numpy as np
        >>> from preload_jax import decisions
        >>> rng = np.random.default_rng(0)
        >>> monitor = decisions.Monitor(decisions.calibrate(rng.normal(size=1000)))
        >>> monitor.update(rng.normal(size=20_000)).drifted
        False
        >>> monitor.update(rng.normal(size=500) - 1.0).drifted
        True
    """

    def __init__(self, rule: Rule, *, error: float = 0.01):
        if not isinstance(rule, Rule):
            raise UserError(f"the rule is a {type(rule).__name__}; expected a Rule, of decisions.calibrate")
        if rule.by_class:
            raise UserError("a monitor takes a rule with one threshold; calibrate one without classes")
        self.rule, self.error = rule, require_share("error", error)
        self._seen = self._called_ood = 0
        # Of each gambler: which one it is, and how often an input lay beyond each level since it began.
        self._gamblers = np.zeros(0, np.int64)
        self._hits = np.zeros((0, len(self._levels)), np.int64)
        self._log_e_value, self._drifted = 0.0, False

    @property
    def status(self) -> Status:
        """What has been seen so far."""
        return Status(self._seen, self._called_ood, self._log_e_value, self._drifted)

    def update(self, scores: Any) -> Status:
        """Takes scores of the stream, in its order; returns what has been seen so far.

        Args:
            scores: [m], by the score that the rule was calibrated for; or one number.

        Raises:
            UserError: for NaN; then nothing of the batch counts.
        """
        values = checked_scores(np.atleast_1d(np.asanyarray(scores)))
        self._called_ood += int(self.rule.is_ood(values).sum())
        while len(values):
            size = _EVERY - self._seen % _EVERY
            self._take(values[:size])
            values = values[size:]
        return self.status

    def state(self) -> dict[str, Any]:
        """Everything that was seen, for JSON, with a digest; `restore` goes on from it."""
        values = {
            "format": _FORMAT,
            "rule": self.rule.digest,
            "error": self.error,
            "seen": self._seen,
            "called_ood": self._called_ood,
            "gamblers": self._gamblers.tolist(),
            "hits": self._hits.tolist(),
            "log_e_value": self._log_e_value,
            "drifted": self._drifted,
        }
        return digests.sealed(values)

    @classmethod
    def restore(cls, rule: Rule, state: Mapping[str, Any]) -> "Monitor":
        """The monitor that had this state.

        Raises:
            UserError: for a state of another rule or format, or a damaged one.
        """
        state = digests.unsealed(
            state,
            what="the monitor's state",
            written_by="Monitor.state()",
            newest=_FORMAT,
            advice="start a new monitor",
        )
        if not isinstance(rule, Rule):
            raise UserError(f"the rule is a {type(rule).__name__}; expected a Rule, of decisions.calibrate")
        if state.get("rule") != rule.digest:
            raise UserError("the monitor's state is of another rule; give the rule that it was made with")
        monitor = cls(rule, error=state["error"])
        monitor._seen, monitor._called_ood = state["seen"], state["called_ood"]
        monitor._gamblers = np.asarray(state["gamblers"], np.int64)
        monitor._hits = np.asarray(state["hits"], np.int64).reshape(len(monitor._gamblers), len(monitor._levels))
        monitor._log_e_value, monitor._drifted = state["log_e_value"], state["drifted"]
        return monitor

    @cached_property
    def _levels(self) -> list[tuple[str, float, float]]:
        """(side, threshold, b): in-domain inputs lie beyond the threshold, on that side, with probability b at most."""
        scores = next(iter(self.rule.calibration.values()))
        n = len(scores)
        ranks = sorted({max(1, math.floor(level * n)) for level in _LEVELS})
        sure = 1.0 - self.error / 2.0 / (2 * len(ranks))
        bounds = [order_statistics.largest_rate(n, k, sure) for k in ranks]
        below = [("below", float(scores[k - 1]), b) for k, b in zip(ranks, bounds, strict=True)]
        above = [("above", float(scores[n - k]), b) for k, b in zip(ranks, bounds, strict=True)]
        return below + above

    def _take(self, values: Float[np.ndarray, "m"]) -> None:
        """Inputs before the next gambler begins."""
        if self._seen % _EVERY == 0:
            self._begin(self._seen // _EVERY)
        beyond = np.stack([values < t if side == "below" else values > t for side, t, _ in self._levels], axis=1)
        hits = self._hits[:, None] + np.cumsum(beyond, axis=0)
        counts = self._seen + np.arange(1, len(values) + 1) - _EVERY * self._gamblers[:, None]
        weights = -np.log((self._gamblers + 1.0) * (self._gamblers + 2.0))
        # Those who have not begun have 1 each, and the rest of the weights.
        waiting = np.full((1, len(values)), -math.log(self._gamblers[-1] + 2.0))
        each = self._log_mean_capital(hits, counts) + weights[:, None]
        log_e_values = logsumexp(np.concatenate([each, waiting]), axis=0)
        self._seen += len(values)
        self._hits, self._log_e_value = hits[:, -1], float(log_e_values[-1])
        self._drifted |= bool(log_e_values.max() >= math.log(2.0 / self.error))

    def _begin(self, index: int) -> None:
        """A gambler more; where there are too many, one of the oldest leaves, with what it has."""
        self._gamblers = np.append(self._gamblers, index)
        self._hits = np.concatenate([self._hits, np.zeros((1, len(self._levels)), np.int64)])
        if len(self._gamblers) > _GAMBLERS:
            self._gamblers, self._hits = np.delete(self._gamblers, 1), np.delete(self._hits, 1, axis=0)

    def _log_mean_capital(self, hits: Any, counts: Any) -> Float[np.ndarray, "gamblers m"]:
        """Log of each gambler's mean capital over levels and bets, after so many inputs and hits of each level."""
        bounds = np.array([b for _, _, b in self._levels])
        # A bet of 1 / b would lose everything with the first input that lies within.
        bets = np.array(_BETS)[:, None] / bounds
        hit, miss = np.log1p(bets * (1.0 - bounds)), np.log1p(-bets * bounds)
        hits = hits[..., None, :]
        capital = hits * hit + (counts[..., None, None] - hits) * miss
        return np.asarray(logsumexp(capital, axis=(-2, -1)) - math.log(bets.size))
