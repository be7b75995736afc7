"""Where confidence goes along a ray: the limit of P(y | u₀ + t·u) as t → ∞."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num
from scipy.special import logsumexp, softmax

from preload_jax.devices import companions
from preload_jax.devices.variables import require_rays
from preload_jax.errors import UserError
from preload_jax.guarantees import germs
from preload_jax.guarantees.germs import RayGerms
from preload_jax.guarantees.germs.germ import HIGHEST
from preload_jax.guarantees.ray_inputs import ray_starts, unit_directions
from preload_jax.integers import require_integer
from preload_jax.models import Classifier, LinearHead, SquareLogitHead
from preload_jax.models.mixtures import is_mixture

# Coefficients of logits this many rounding levels apart are different.
_SAFETY = 16.0
# Of the first batch: with fewer, slopes alone decide too little for this network to be worth a pass of their own.
_WORTHWHILE = 0.5
# An embedding that grows faster leaves no room for what a head makes of it.
_LARGEST_GROWTH = 2


@dataclass(frozen=True)
class FarAwayLimit:
    """The limits of n rays.

    Attributes:
        probabilities: lim P(y | u₀ + t·u), one row a ray; the OOD class, where there is one, is last; NaN in rows that
            are undecided.
        winner: the class whose probability tends to 1, or -1 if none does, [n].
        dead: whether the embedding stays bounded, [n].  Its probabilities then tend to constants.
        slope_norm: lim ‖G‖₂ / t for a direction of length 1; inf where the embedding grows faster than linearly.
        log_odds: lim log P − log(1 − P), [n, k], in nats; +inf for a limit of 1, −inf for a limit of 0.
        undecided: rays whose limit neither the kept terms nor float64 decide, [n].
        single_precision: rays that float32 decided, by a margin above its rounding errors, [n].  Float64 decided the
            others.

    Example: see `far_away_limit`.
    """

    probabilities: Float[np.ndarray, "n k"]
    winner: Int[np.ndarray, "n"]
    dead: Bool[np.ndarray, "n"]
    slope_norm: Float[np.ndarray, "n"]
    log_odds: Float[np.ndarray, "n k"]
    undecided: Bool[np.ndarray, "n"]
    single_precision: Bool[np.ndarray, "n"]

    def __repr__(self) -> str:
        wins = int((self.winner >= 0).sum())
        return (
            f"FarAwayLimit(rays={len(self.winner)}, with a winner={wins}, dead={int(self.dead.sum())},"
            f" undecided={int(self.undecided.sum())})"
        )


def far_away_limit(
    model: Classifier | Callable[..., Any],
    variables: Mapping[str, Any] | None,
    directions: Num[Array, "n ..."] | Num[np.ndarray, "n ..."],
    *,
    starts: Num[Array, "n ..."] | Num[np.ndarray, "n ..."] | None = None,
    batch_size: int = 256,
) -> FarAwayLimit:
    """The limit of P(y | u₀ + t·u) as t → ∞, without a t: from what each logit is for all large t.

    The logits' germs (see `germs.ray_germs`) are compared: the class whose highest coefficient is largest wins; where
    several share all coefficients of t^p, p > 0, the softmax of their constants is the limit.

    The limit is that of exact arithmetic with the stored parameters.  A coefficient that is 0 is taken literally: ReLU
    returns exact zeros, and a unit all of whose inputs are 0 has slope 0 exactly.  Classes are tied where their
    coefficients agree up to the rounding of float64.

    Args:
        model: a `Classifier` whose head is a `LinearHead`, a `SquareLogitHead`, a `LaplaceHead`, an `RGPRHead` or a
            `CCUHead`, an `MCDropout` or a `models.ensemble`; or any function of images, in any framework, that returns
            logits [n, k] or (logits, features): model(images), or model(variables, images) unless `variables` is None.
        variables: the model's.
        directions: u, images' shape, any length except 0.  They are no images: only where they point counts, and uint8
            is taken as it is.
        starts: u₀, images as `predict` takes them (uint8 is divided by 255), for rays that start elsewhere than at 0
            (FarAway-RD).
        batch_size: directions computed at once.

    Raises:
        UserError: for a direction of length 0, NaN or infinity; starts that `predict` would refuse; another head; an
            operation without a rule, with its name and line; a network in training mode; an embedding that outgrows t².

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(64,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> directions = jax.random.normal(jax.random.key(1), (5, 4, 4, 1))
        >>> guarantees.far_away_limit(model, variables, directions).winner.tolist()  # the OOD class, K = 3
        [3, 3, 3, 3, 3]
    """
    batch_size = require_integer("batch_size", batch_size, at_least=1)
    if isinstance(model, Classifier) and is_mixture(model):
        from preload_jax.guarantees.mixtures import mixed_limit

        return mixed_limit(model, variables or {}, directions, starts=starts, batch_size=batch_size)
    function = as_function(model, variables)
    exponent = getattr(getattr(model, "head", None), "exponent", 2)
    if exponent > HIGHEST:
        raise UserError(f"the exponent is {exponent}; limits are known of exponents up to {HIGHEST}")
    units = unit_directions(directions)
    starts = ray_starts(starts, units)
    if isinstance(model, Classifier):
        require_rays(model, variables, units.shape[1:])
    known = isinstance(model, Classifier) and companions.known(model)
    germs.require_independent_rows(partial(function, variables), units.shape[1:], known=known)
    return limits_of(function, variables, units, starts=starts, batch_size=batch_size)


def limits_of(
    function: Callable[[Any, Any], Any], variables: Any, units: np.ndarray, *, starts: Any, batch_size: int
) -> FarAwayLimit:
    """`far_away_limit` of f(variables, images) whose rows are known to be independent, along unit directions."""
    n = len(units)

    def limits(rows: np.ndarray, *, leading: bool) -> FarAwayLimit:
        origins = None if starts is None else starts[rows]
        found = germs.evaluate(
            function, variables, units[rows], origins=origins, batch_size=batch_size, leading=leading
        )
        return _limit(*found[:2], strict=leading)

    # Slopes in float32 are cheap and decide most rays of most networks.
    first = limits(np.arange(min(n, batch_size)), leading=True)
    if np.mean(first.undecided) > _WORTHWHILE:
        return limits(np.arange(n), leading=False)
    rest = limits(np.arange(len(first.undecided), n), leading=True) if n > len(first.undecided) else None
    whole = first if rest is None else _map(lambda a, b: np.concatenate([a, b]), first, rest)
    open_ = np.flatnonzero(whole.undecided)
    return _map(lambda a, b: _replaced(a, open_, b), whole, limits(open_, leading=False)) if len(open_) else whole


@dataclass(frozen=True)
class _ClassifierOutputs:
    """A classifier as a function of its variables and images; equal for equal classifiers."""

    model: Classifier

    def __call__(self, variables: Any, images: Any) -> Any:
        return self.model.apply(variables, images, train=False, features=True)


@dataclass(frozen=True)
class _FunctionOutputs:
    """A function of images, of variables and images where there are some."""

    function: Callable[..., Any]

    def __call__(self, variables: Any, images: Any) -> Any:
        return self.function(images) if variables is None else self.function(variables, images)


def as_function(model: Any, variables: Any, *, any_head: bool = False) -> Callable[[Any, Any], Any]:
    """f(variables, images) → (logits, features) or logits, hashable.

    Raises:
        UserError: for a classifier whose head is unknown, unless any is welcome.
    """
    if not isinstance(model, Classifier):
        return _FunctionOutputs(model)
    if not any_head and not isinstance(model.head, LinearHead | SquareLogitHead):
        raise UserError(f"expected a LinearHead or a SquareLogitHead, got {type(model.head).__name__}: limit unknown")
    return _ClassifierOutputs(model)


def _limit(logits: RayGerms, features: RayGerms | None = None, *, strict: bool) -> FarAwayLimit:
    """The verdicts; `strict` ones only where a class wins by more than rounding errors."""
    logits = _flat(logits)
    classes = next(iter(logits.terms.values())).shape[1]
    if classes < 2:
        raise UserError(f"the model returns {classes} logits an input; expected at least 2, one for each class")
    features = logits if features is None else _flat(features)
    leading, decided = _leading(logits, strict=strict)
    constants = np.where(leading, logits.coefficient(0), -np.inf)
    alone = leading.sum(axis=1) == 1
    probabilities = np.where(alone[:, None], leading.astype(np.float64), softmax(constants, axis=1))
    decided &= np.isfinite(probabilities).all(axis=1)
    probabilities[~decided] = np.nan
    growth = {p: np.where(features.order < p, np.abs(term).max(axis=1), 0.0) for p, term in features.terms.items()}
    steep = np.max([g for p, g in growth.items() if p > 1] or [np.zeros(len(alone))], axis=0)
    too_steep = np.max([g for p, g in growth.items() if p > _LARGEST_GROWTH] or [np.zeros(len(alone))], axis=0)
    if (too_steep > 0).any():
        raise UserError(
            f"the embedding outgrows t^{_LARGEST_GROWTH} along {int((too_steep > 0).sum())} of {len(alone)} rays; "
            "expected at most one product of two branches between normalisations"
        )
    slope = np.where(steep > 0, np.inf, np.linalg.norm(features.coefficient(1), axis=1))
    return FarAwayLimit(
        probabilities=probabilities,
        winner=np.where(alone & decided, leading.argmax(axis=1), -1),
        dead=(slope == 0) & (features.order <= 0) & ~(strict & (features.order >= 0)),
        slope_norm=slope,
        log_odds=_log_odds(constants, alone, leading, decided),
        undecided=~decided,
        single_precision=decided & strict,
    )


def _flat(output: RayGerms) -> RayGerms:
    terms = {p: term.reshape(len(term), -1) for p, term in output.terms.items()}
    return RayGerms(terms, output.order, output.noise)


def _leading(logits: RayGerms, *, strict: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which classes share the largest coefficients of all positive powers, and where that is certain."""
    shape = next(iter(logits.terms.values())).shape
    leading, decided = np.ones(shape, bool), np.ones(len(logits.order), bool)
    for term in logits.terms.values():
        decided &= np.isfinite(term).all(axis=1)
    for power in sorted((p for p in logits.terms if p > 0), reverse=True):
        term = logits.terms[power]
        best = np.where(leading, term, -np.inf).max(axis=1, keepdims=True)
        near = leading & (term >= best - _SAFETY * logits.noise[power][:, None])
        visible = logits.order < power
        # Classes that differ by what rounding may explain are neither tied nor apart.
        decided &= ~visible | (near == (leading & (term == best))).all(axis=1)
        leading = np.where(visible[:, None], near, leading)
    alone = leading.sum(axis=1) == 1
    return leading, decided & (alone if strict else alone | (logits.order < 0))


def _log_odds(constants: np.ndarray, alone: np.ndarray, leading: np.ndarray, decided: np.ndarray) -> np.ndarray:
    certain = np.where(leading, np.inf, -np.inf)
    with np.errstate(invalid="ignore"):
        others = np.stack(
            [logsumexp(np.delete(constants, c, axis=1), axis=1) for c in range(constants.shape[1])], axis=1
        )
        odds = np.where(alone[:, None], certain, np.where(leading, constants - others, -np.inf))
    return np.where(decided[:, None], odds, np.nan)


def _map(function: Callable[[Any, Any], Any], a: FarAwayLimit, b: FarAwayLimit) -> FarAwayLimit:
    return FarAwayLimit(**{name: function(getattr(a, name), getattr(b, name)) for name in a.__dataclass_fields__})


def _replaced(values: np.ndarray, rows: np.ndarray, by: np.ndarray) -> np.ndarray:
    copy = values.copy()
    copy[rows] = by
    return copy


def in_batches(function: Callable[..., Array], *arrays: np.ndarray, batch_size: int) -> np.ndarray:
    """Concatenated function(batches); the last batch is filled up with its last row, so that one shape is compiled."""
    n = len(arrays[0])
    outputs = []
    for first in range(0, n, batch_size):
        rows = np.minimum(np.arange(first, first + min(batch_size, n)), n - 1)
        outputs.append(function(*(jnp.asarray(array[rows]) for array in arrays)))
    return np.concatenate([np.asarray(output) for output in outputs])[:n]
