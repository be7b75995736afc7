"""The largest confidence on whole rays, from the start to infinity, and where it ends: exact, not sampled."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import expit, logsumexp

from preload_jax.errors import UserError
from preload_jax.guarantees import germs
from preload_jax.guarantees.affine_piece import Features
from preload_jax.guarantees.head_parameters import read_head
from preload_jax.guarantees.input_radius import distance_constants
from preload_jax.guarantees.limits import unit_directions
from preload_jax.guarantees.pieces import Distance, Pieces, pieces
from preload_jax.models import Classifier, LinearHead, SquareLogitHead, WithDistance, head_options

# Where an unbounded piece is looked at: beyond it logits differ by more than float64 tells, or are constant.
_FAR = 1e18
_BISECTIONS = 70


@dataclass(frozen=True)
class RayCertificate:
    """The confidence of the K classes on n whole rays, t from 0 to infinity.

    Attributes:
        confidence: p, as asked for.
        largest_log_odds: sup_t max_c log P(c) − log(1 − P(c)), [n]; inf where a class becomes certain far away.
        distance: the t at which it is reached, [n]; inf if it is only approached.
        winner: the class that reaches it, [n].
        last_crossing: the t beyond which no class is more confident than p, [n].  It is 0 if no class ever is, and inf
            if the confidence stays above p, as along a ray to which no unit responds.
        num_pieces: how many affine pieces the ray crosses, [n].

    Example: see `ray_certificate`.
    """

    confidence: float
    largest_log_odds: Float[np.ndarray, "n"]
    distance: Float[np.ndarray, "n"]
    winner: Int[np.ndarray, "n"]
    last_crossing: Float[np.ndarray, "n"]
    num_pieces: Int[np.ndarray, "n"]

    @property
    def largest_confidence(self) -> Float[np.ndarray, "n"]:
        """The largest confidence as a probability, [n]."""
        return np.asarray(expit(self.largest_log_odds))


def ray_certificate(
    model: Classifier,
    variables: Mapping[str, Any],
    directions: Float[Array, "n ..."] | Float[np.ndarray, "n ..."],
    *,
    starts: Float[Array, "n ..."] | Float[np.ndarray, "n ..."] | None = None,
    confidence: float = 0.5,
    batch_size: int = 64,
    max_pieces: int = 200_000,
) -> RayCertificate:
    """The largest confidence along x(t) = u₀ + t·u over all t ≥ 0, and the last t at which it exceeds p.

    A piecewise affine network has finitely many pieces along a ray.  On each of them z_c is affine in t and the OOD
    logit a convex polynomial, so that log P(c) − log(1 − P(c)) = z_c − log Σ_{i≠c} exp z_i is concave, and bisection on
    its slope finds the maximum.  The pieces are found one after the other: the network's jaxpr, read at a point, tells
    its value, its slope, and how far ahead the next comparison changes.  All of it in float64 with the stored
    parameters; what float32 rounds when the network is used is not part of it.

    Args:
        model: a `Classifier` with a `LinearHead` or a `SquareLogitHead`, and a piecewise affine backbone, alone or in a
            `WithDistance`.
        variables: its variables.
        directions: u, images' shape, scaled to length 1, so that t is a distance.
        starts: u₀, 0 when None.
        confidence: p, between 0 and 1, both excluded.
        batch_size: rays computed at once.
        max_pieces: of one ray; more are an error.

    Raises:
        UserError: for another head, a backbone that is not piecewise affine (GELU, layer norm, attention, …), a
            direction of length 0, or too many pieces.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(64,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> directions = np.random.default_rng(0).normal(size=(5, 4, 4, 1))
        >>> found = guarantees.ray_certificate(model, variables, directions, confidence=0.2)
        >>> beyond = (found.last_crossing * 1.01)[:, None, None, None] * directions
        >>> bool((found.num_pieces > 10).all()), bool(np.isfinite(found.last_crossing).all())
        (True, True)
    """
    if not 0.0 < confidence < 1.0:
        raise UserError(f"confidence must lie between 0 and 1, both excluded, got {confidence}")
    if not isinstance(getattr(model, "head", model), LinearHead | SquareLogitHead):
        got = type(getattr(model, "head", model)).__name__
        raise UserError(f"expected a Classifier with a LinearHead or a SquareLogitHead, got {got}")
    units = unit_directions(directions, np.float64)
    origins = np.zeros_like(units) if starts is None else np.asarray(starts, np.float64)
    head = read_head(variables["params"]["head"], **head_options(model.head))
    backbone, distance = model.backbone, None
    if isinstance(backbone, WithDistance):
        center, scale = distance_constants(backbone, variables)
        distance = Distance(center, scale, backbone.weight)
        backbone = backbone.backbone
    features = Features(backbone)
    own = {name: tree["backbone"] for name, tree in variables.items() if "backbone" in tree}
    germs.require_independent_rows(lambda images: features(own, images), units.shape[1:])
    level = float(np.log(confidence) - np.log1p(-confidence))
    parts = []
    for first in range(0, len(units), batch_size):
        rows = slice(first, first + batch_size)
        found = pieces(features, own, head, units[rows], origins[rows], distance=distance, max_pieces=max_pieces)
        parts.append(_summary(found, len(units[rows]), level))
    names = ("largest_log_odds", "distance", "winner", "last_crossing", "num_pieces")
    return RayCertificate(confidence, **{name: np.concatenate([part[name] for part in parts]) for name in names})


def _summary(found: Pieces, n: int, level: float) -> dict[str, np.ndarray]:
    """Of each ray the maximum over its pieces and classes, and the last crossing of the level."""
    lengths = np.where(np.isfinite(found.ends), found.ends - found.starts, _FAR)
    k = found.offsets.shape[1]
    # Each class on each piece is one concave function.
    piece, label = (index.ravel() for index in np.meshgrid(np.arange(len(lengths)), np.arange(k), indexing="ij"))
    ray = found.ray[piece]
    low, high = (_log_odds(found, piece, label, eps) for eps in (np.zeros(len(piece)), lengths[piece]))
    known = np.full(n, -np.inf)
    np.maximum.at(known, ray, np.maximum(low[0], high[0]))
    # Where tangents at both ends stay below all that is asked, the maximum does, too.
    ceiling = _tangents_meet(low, high, lengths[piece])
    open_ = np.flatnonzero(ceiling >= np.minimum(known[ray], level))
    piece, label, ray = piece[open_], label[open_], ray[open_]
    length = lengths[piece]
    at = _bisect(lambda eps: _log_odds(found, piece, label, eps)[1] > 0, np.zeros(len(piece)), length)
    best = _log_odds(found, piece, label, at)[0]
    endless = ~np.isfinite(found.ends[piece])
    value, slope = _log_odds(found, piece, label, length)
    grows = endless & (slope > 0) & (value > best - 1e-12 * np.abs(best))
    # Far out logits are constant, or one outgrows the others.
    certain = grows & (slope * _FAR > 1e-6 * np.maximum(np.abs(value), 1.0))
    best = np.where(certain, np.inf, np.maximum(best, np.where(grows, value, -np.inf)))
    order = np.lexsort((-found.starts[piece], best, ray))
    last_of_ray = np.searchsorted(ray[order], np.arange(n), side="right") - 1
    chosen = order[last_of_ray]
    where = np.where(grows[chosen], np.inf, found.starts[piece[chosen]] + at[chosen])
    crossing = np.zeros(n)
    above = np.flatnonzero(best >= level)
    if len(above):
        end = _bisect(
            lambda eps: _log_odds(found, piece[above], label[above], eps)[0] >= level, at[above], length[above]
        )
        stays = endless[above] & (value[above] >= level)
        np.maximum.at(crossing, ray[above], np.where(stays, np.inf, found.starts[piece[above]] + end))
    return {
        "largest_log_odds": best[chosen],
        "distance": where,
        "winner": label[chosen],
        "last_crossing": crossing,
        "num_pieces": np.bincount(found.ray, minlength=n),
    }


def _log_odds(found: Pieces, piece: np.ndarray, label: np.ndarray, eps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """z_c − log Σ_{i≠c} exp z_i at ε, and its slope."""
    logits = found.offsets[piece] + found.slopes[piece] * eps[:, None]
    slopes = found.slopes[piece]
    if found.ood.shape[1]:
        coefficients = found.ood[piece]
        powers = np.arange(coefficients.shape[1])
        terms = coefficients * eps[:, None] ** powers
        steps = coefficients[:, 1:] * powers[1:] * eps[:, None] ** powers[:-1]
        logits = np.concatenate([logits, terms.sum(axis=1, keepdims=True)], axis=1)
        slopes = np.concatenate([slopes, steps.sum(axis=1, keepdims=True)], axis=1)
    rows = np.arange(len(piece))
    own, own_slope = logits[rows, label], slopes[rows, label]
    logits = logits.copy()
    logits[rows, label] = -np.inf
    others = logsumexp(logits, axis=1)
    shares = np.exp(logits - others[:, None])
    return own - others, own_slope - (shares * slopes).sum(axis=1)


def _tangents_meet(low: tuple[np.ndarray, np.ndarray], high: tuple[np.ndarray, np.ndarray], length: np.ndarray) -> Any:
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


def _bisect(holds: Any, low: np.ndarray, high: np.ndarray) -> np.ndarray:
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
