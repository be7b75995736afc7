"""The classes' log-odds on the affine pieces of rays: their largest value, and where they cross a level for good."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from preload_jax.guarantees.head_parameters import HeadParameters
from preload_jax.guarantees.pieces import Pieces

# Where an unbounded piece is looked at: beyond it logits differ by more than float64 tells, or are constant.
_FAR, _LARGEST = 1e18, 1e280
_BISECTIONS = 70
# Slopes of two classes that differ by less, of the sizes that they are made of, are equal: float64 added many terms.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class AlongPieces:
    """Log P(c) − log(1 − P(c)) on each piece.

    Attributes:
        pieces: the embedding's.
        head: makes logits of it.
        distance_factor: κ / m, for the OOD class of a network that sees the distance.
    """

    pieces: Pieces
    head: HeadParameters
    distance_factor: float = 0.0

    @cached_property
    def lengths(self) -> Float[np.ndarray, "m"]:
        far = min(_FAR, _LARGEST ** (1.0 / self.head.exponent))
        return np.where(np.isfinite(self.pieces.ends), self.pieces.ends - self.pieces.starts, far)

    @cached_property
    def offsets(self) -> Float[np.ndarray, "m k"]:
        return self.pieces.offsets @ self.head.weights.T + self.head.bias

    @cached_property
    def slopes(self) -> Float[np.ndarray, "m k"]:
        found = self.pieces.slopes @ self.head.weights.T
        # Far out a difference of rounding errors would make one of two tied classes certain.
        sizes = np.abs(self.pieces.slopes) @ np.abs(self.head.weights.T)
        top = found.max(axis=1, keepdims=True)
        best = np.take_along_axis(sizes, found.argmax(axis=1)[:, None], axis=1)
        tied = top - found <= _ROUNDING * (sizes + best)
        return np.where(tied & ~np.isfinite(self.pieces.ends)[:, None], top, found)

    @cached_property
    def _parabola(self) -> Float[np.ndarray, "m 3"]:
        """Coefficients of ε⁰, ε¹, ε² in the OOD class's logit of exponent 2."""
        v, g, s = self.head.square_weights, self.pieces.offsets, self.pieces.slopes
        found = np.stack([g**2 @ v, 2.0 * (g * s) @ v, s**2 @ v], axis=1)
        found += (self.head.distance_weight or 0.0) * self.distance_factor**2 * self.pieces.squares
        found[:, 0] += self.head.ood_bias
        return found

    def ood(self, piece: np.ndarray, eps: np.ndarray, *, quick: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The OOD class's logit and its slope; `quick` may lose digits where the embedding shrinks on a long piece."""
        e = self.head.exponent
        if quick and e == 2:
            a, b, c = self._parabola[piece].T
            return a + eps * (b + eps * c), b + 2.0 * eps * c
        slopes = self.pieces.slopes[piece]
        g = self.pieces.offsets[piece] + slopes * eps[:, None]
        lower = g if e == 2 else np.power(g, e - 1)
        weights = self.head.square_weights
        value, slope = (lower * g) @ weights, e * ((lower * slopes) @ weights)
        if self.head.distance_weight is not None and self.distance_factor:
            a, b, c = self.pieces.squares[piece].T
            square = np.maximum(a + eps * (b + eps * c), 0.0) * self.distance_factor**2
            steeper = (b + 2.0 * eps * c) * self.distance_factor**2
            value = value + self.head.distance_weight * square ** (e // 2)
            slope = slope + self.head.distance_weight * (e // 2) * square ** (e // 2 - 1) * steeper
        return value + self.head.ood_bias, slope

    def log_odds(
        self, piece: np.ndarray, label: np.ndarray, eps: np.ndarray, *, quick: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of a class at ε of a piece: the log-odds and their slope."""
        ood = None if self.head.square_weights is None else self.ood(piece, eps, quick=quick)
        return self._of(piece, label, eps, ood)

    def at_ends(self, eps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[m, k], of all classes at one ε of each piece."""
        m, k = self.offsets.shape
        every = np.arange(m)
        ood = None if self.head.square_weights is None else self.ood(every, eps)
        found = [self._of(every, np.full(m, c), eps, ood) for c in range(k)]
        return np.stack([value for value, _ in found], axis=1), np.stack([slope for _, slope in found], axis=1)

    def far_away(self) -> np.ndarray:
        """[m, k]: what linear logits tend to on an endless piece; −∞ where others win, and on pieces that end."""
        leading = (self.slopes == self.slopes.max(axis=1, keepdims=True)) & ~np.isfinite(self.pieces.ends)[:, None]
        if self.head.square_weights is not None:
            return np.full(leading.shape, -np.inf)
        offsets = np.where(leading, self.offsets, -np.inf)
        limits = []
        for c in range(leading.shape[1]):
            with np.errstate(invalid="ignore"):
                limits.append(np.where(leading[:, c], offsets[:, c] - _log_sum(offsets, c), -np.inf))
        return np.stack(limits, axis=1)

    def _of(
        self, piece: np.ndarray, label: np.ndarray, eps: np.ndarray, ood: tuple[np.ndarray, np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        slopes = self.slopes[piece]
        logits = self.offsets[piece] + slopes * eps[:, None]
        if ood is not None:
            logits = np.concatenate([logits, ood[0][:, None]], axis=1)
            slopes = np.concatenate([slopes, ood[1][:, None]], axis=1)
        rows = np.arange(len(piece))
        own, own_slope = logits[rows, label], slopes[rows, label]
        logits[rows, label] = -np.inf
        others = logsumexp(logits, axis=1)
        with np.errstate(invalid="ignore"):
            shares = np.exp(logits - others[:, None])
        if logits.shape[1] == 1:  # one class and no other: P = 1
            return np.full(len(piece), np.inf), np.zeros(len(piece))
        return own - others, own_slope - (shares * slopes).sum(axis=1)

    def summary(self, n: int, level: float) -> dict[str, np.ndarray]:
        """Of each of n rays the maximum over its pieces and classes, and the last crossing of the level."""
        found, lengths = self.pieces, self.lengths
        low, high = self.at_ends(np.zeros(len(lengths))), self.at_ends(lengths)
        far = self.far_away()
        known = np.full(n, -np.inf)
        np.maximum.at(known, found.ray, np.maximum(low[0], high[0]).max(axis=1))
        # Where tangents at both ends stay below all that is asked, the maximum does, too.
        ceiling = np.maximum(_tangents_meet(low, high, lengths[:, None]), far)
        piece, label = np.nonzero(ceiling >= np.minimum(known[found.ray], level)[:, None])
        ray, length = found.ray[piece], lengths[piece]

        def quick(eps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self.log_odds(piece, label, eps, quick=True)

        at = _bisect(lambda eps: quick(eps)[1] > 0, np.zeros(len(piece)), length)
        best = self.log_odds(piece, label, at)[0]
        for end, values in ((np.zeros(len(piece)), low[0]), (length, high[0])):
            better = values[piece, label] > best
            at, best = np.where(better, end, at), np.where(better, values[piece, label], best)
        endless = ~np.isfinite(found.ends[piece])
        value, slope = high[0][piece, label], high[1][piece, label]
        # Far out logits are constant, or one outgrows the others.
        limit = far[piece, label]
        grows = (endless & (slope > 0) & (value >= best)) | (limit > best)
        best = np.maximum(best, limit)
        order = np.lexsort((-found.starts[piece], best, ray))
        chosen = order[np.searchsorted(ray[order], np.arange(n), side="right") - 1]
        crossing = np.zeros(n)
        above = np.flatnonzero(best >= level)
        if len(above):
            end = _bisect(
                lambda eps: self.log_odds(piece[above], label[above], eps)[0] >= level, at[above], length[above]
            )
            stays = endless[above] & (np.maximum(value, limit)[above] >= level)
            np.maximum.at(crossing, ray[above], np.where(stays, np.inf, found.starts[piece[above]] + end))
        return {
            "largest_log_odds": best[chosen],
            "distance": np.where(grows[chosen], np.inf, found.starts[piece[chosen]] + at[chosen]),
            "winner": label[chosen],
            "last_crossing": crossing,
            "num_pieces": np.bincount(found.ray, minlength=n),
        }


def _log_sum(values: np.ndarray, without: int) -> np.ndarray:
    """log Σ exp of each row's other columns; −∞ where there is none."""
    others = np.delete(values, without, axis=1)
    return np.asarray(logsumexp(others, axis=1)) if others.shape[1] else np.full(len(values), -np.inf)


def _tangents_meet(
    low: tuple[np.ndarray, np.ndarray], high: tuple[np.ndarray, np.ndarray], length: np.ndarray
) -> np.ndarray:
    """No concave function with these values and slopes at both ends exceeds this."""
    (a, da), (b, db) = low, high
    fall = da - db
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        meet = np.where(fall > 0, (b - a - db * length) / fall, 0.0)
        top = a + da * np.clip(meet, 0.0, length)
    top = np.where(np.isfinite(top), top, np.inf)
    top = np.where(da <= 0, a, np.where(db >= 0, b, top))
    # A margin for what float64 rounds.
    return np.maximum(np.maximum(a, b), top) + 1e-9 * (1.0 + np.maximum(np.abs(a), np.abs(b)))


def _bisect(holds: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The largest ε in [low, high] at which a condition holds that fails from some ε on; low where it never does."""
    low, high = low.copy(), high.copy()
    whole = holds(high)
    low = np.where(whole, high, low)
    for _ in range(_BISECTIONS):
        # Halves long pieces by their exponents first.
        middle = np.where(high > 4.0 * low + 4.0, np.sqrt((low + 1.0) * (high + 1.0)) - 1.0, 0.5 * (low + high))
        inside = holds(middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low
