"""What is proved of a recalibrated confidence: its largest value, and radii beyond which it is small."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import expit, logsumexp

from preload_jax.checks import require_number, require_share
from preload_jax.errors import UserError
from preload_jax.guarantees import confidence_bound, input_radius, safe_radius
from preload_jax.guarantees.head_parameters import known_nonnegative, read_head
from preload_jax.guarantees.input_radius import closed_form
from preload_jax.models import (
    Classifier,
    LinearHead,
    MCDropout,
    SquareLogitHead,
    WithDistance,
    features_nonnegative,
    head_options,
)
from preload_jax.models.mixtures import is_mixture
from preload_jax.models.ood_logit import MAX_LOG_WEIGHT
from preload_jax.recalibration import spline
from preload_jax.recalibration.maps import TABLE, Recalibration
from preload_jax.short_repr import short_repr


@dataclass(frozen=True)
class Guarantee:
    """What holds of the recalibrated P'(c | x) of every input x, rounding of the network's float32 aside.

    Attributes:
        log_odds: an upper bound on log P' − log(1 − P') of each class, [k], in nats; inf where there is none below 1.
        confidence: the same as a probability, [k].
        at: the confidence that the radii are for.
        radius: ‖G(x)‖₂ ≥ radius implies P'(c | x) ≤ at for all c; inf where there is none.
        input_radius: ‖x − center‖₂ ≥ input_radius implies it, too; None for a network without the distance feature.
        reason: how it follows, in a sentence.

    Example: see `guarantee`.
    """

    log_odds: Float[np.ndarray, "k"]
    confidence: Float[np.ndarray, "k"]
    at: float
    radius: float
    input_radius: float | None
    reason: str

    __repr__ = short_repr


def guarantee(
    recalibration: Recalibration,
    model: Classifier,
    variables: Mapping[str, Any],
    *,
    confidence: float = 0.5,
    nonnegative: bool | None = None,
) -> Guarantee:
    """What is still proved of a classifier's confidence once it is recalibrated.

    - **Temperature** divides all logits by T, as the head with w/T, b/T and v/T does.  So all is computed anew for that
      head: `log_odds` is the supremum itself, up to the solver's gap.
    - **The other maps** keep P(OOD).  So P'(c | x) = (1 − P(OOD | x)) q'_c ≤ 1 − P(OOD | x), whatever q' is, and

          log-odds of 1 − P(OOD | x) = log Σ_c exp(z_c − z_{K+1}) ≤ log Σ_c exp(A_c),

      A_c = max_g z_c − z_{K+1} being the closed form of `confidence_bound`.  The radii are those at which every
      z_c − z_{K+1} is at most log(p / (1 − p)) − log K; the one in input space needs no K.  So where P(OOD) tends to 1
      far away, P' tends to 0 as before.
    - **The spline** says no more than the largest r it was fitted to, or ½.  This factor counts in its bound.

    Without a square logit nothing bounds P(OOD).  Then the bound is 1, or the spline's largest r, and no radius exists.

    Args:
        recalibration: fitted to this network's logits.
        model: a `Classifier` of a `LinearHead` or a `SquareLogitHead`.
        variables: its variables.
        confidence: p, of the radii; between 0 and 1, both excluded.
        nonnegative: whether the backbone's features are ≥ 0; None: `models.features_nonnegative`.

    Raises:
        UserError: for another head, a recalibration of other classes, or a confidence outside (0, 1).

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import make_classifier, recalibration
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> logits, labels = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
        >>> found = recalibration.fit("vector", logits, labels, has_ood_class=True)
        >>> proved = recalibration.guarantee(found, model, variables, confidence=0.9)
        >>> bool((proved.confidence < 1.0).all()), bool(proved.radius < np.inf)
        (True, True)
    """
    at = require_share("confidence", confidence)
    if not is_mixture(model):
        _check_head(model)
    if (recalibration.num_classes, recalibration.has_ood_class) != (model.head.num_classes, model.head.has_ood_class):
        raise UserError(
            f"the recalibration is of {recalibration.num_classes} classes"
            f" {'with' if recalibration.has_ood_class else 'without'} an OOD class; the network has"
            f" {model.head.num_classes} {'with' if model.head.has_ood_class else 'without'}: give its own"
        )
    if is_mixture(model):
        k = recalibration.num_classes
        why = "nothing is derived of a recalibrated mean over networks or weights"
        in_input = math.inf if isinstance(model.backbone, WithDistance) else None
        return Guarantee(np.full(k, np.inf), np.ones(k), at, math.inf, in_input, why)
    nonnegative = known_nonnegative(features_nonnegative(model.backbone) if nonnegative is None else nonnegative)
    if TABLE[recalibration.method].scales_all:
        return _scaled_guarantee(recalibration, model, variables, at, nonnegative=nonnegative)
    return _kept_guarantee(recalibration, model, variables, at, nonnegative=nonnegative)


def at_temperature(
    model: Classifier, variables: Mapping[str, Any], temperature: float
) -> tuple[Classifier, dict[str, Any]]:
    """The classifier whose logits are those of `model` over T, and its variables: every guarantee can be asked of it.

    w_c/T, b_c/T and, with a square logit, v/T and b_{K+1}/T take the place of the head's parameters; floors under v are
    divided, too.

    Args:
        model: a `Classifier` of a `LinearHead` or a `SquareLogitHead`.
        variables: its variables.
        temperature: T > 0.

    Raises:
        UserError: for another head or T, or a weight v/T beyond what the head can hold.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, make_classifier, recalibration
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(8,))
        >>> images = jnp.ones((1, 4, 4, 1))
        >>> variables = model.init(jax.random.key(0), images)
        >>> cooler, scaled = recalibration.at_temperature(model, variables, 2.0)
        >>> np.allclose(2.0 * cooler.apply(scaled, images), model.apply(variables, images), rtol=1e-5)
        True
    """
    _check_head(model)
    scaled_model, scaled = _scaled(model, variables, temperature)
    head = jax.tree.map(
        lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), scaled["params"]["head"], variables["params"]["head"]
    )
    return scaled_model, {**scaled, "params": {**scaled["params"], "head": head}}


def _scaled(model: Classifier, variables: Mapping[str, Any], temperature: float) -> tuple[Classifier, dict[str, Any]]:
    """`at_temperature` with the head's parameters in float64."""
    t = require_number("temperature", temperature, above=0.0)
    old = variables["params"]["head"]
    head: dict[str, Any] = {"linear": {name: np.asarray(x, np.float64) / t for name, x in old["linear"].items()}}
    module = model.head
    if isinstance(module, SquareLogitHead):
        limit = MAX_LOG_WEIGHT
        raw = np.clip(np.asarray(old["ood"]["raw_weights"], np.float64), -limit, limit) - math.log(t)
        if not (np.abs(raw) <= limit).all():
            raise UserError(
                f"at the temperature {t:g} a weight of the OOD class leaves exp(±{limit:g}), beyond which the head does"
                " not go; give a temperature closer to 1"
            )
        head["ood"] = {"raw_weights": raw, "bias": np.asarray(old["ood"]["bias"], np.float64) / t}
        floor = module.min_distance_weight
        module = module.clone(
            min_weight=module.min_weight / t, min_distance_weight=None if floor is None else floor / t
        )
    params = {**variables["params"], "head": head}
    return model.clone(head=module), {**variables, "params": params}


def _scaled_guarantee(
    recalibration: Recalibration, model: Classifier, variables: Mapping[str, Any], at: float, *, nonnegative: bool
) -> Guarantee:
    t = float(recalibration.parameters["temperature"])
    scaled_model, scaled = _scaled(model, variables, t)
    options: dict[str, Any] = {**head_options(scaled_model.head), "nonnegative": nonnegative}
    head = scaled["params"]["head"]
    bound, radius = confidence_bound(head, **options), safe_radius(head, at, **options)
    k = recalibration.num_classes
    return Guarantee(
        bound.log_odds[:k],
        bound.confidence[:k],
        at,
        radius.radius,
        _input_radius(scaled_model, scaled, at, nonnegative=nonnegative),
        f"all logits over T = {t:.4g}, computed anew for the head divided by T; {bound.reason}",
    )


def _kept_guarantee(
    recalibration: Recalibration, model: Classifier, variables: Mapping[str, Any], at: float, *, nonnegative: bool
) -> Guarantee:
    k = recalibration.num_classes
    largest, said = _largest(recalibration)
    options = head_options(model.head)
    parameters = read_head(variables["params"]["head"], **options)
    if parameters.square_weights is None:
        of_class = np.full(k, largest)
        why = (
            "the OOD class's probability is kept, and its logit is linear: nothing bounds it"
            if recalibration.has_ood_class
            else "without an OOD class far-away inputs may have any logits"
        )
        radius = 0.0 if largest <= at else math.inf
        return Guarantee(_log_odds(of_class), of_class, at, radius, None, why + said)
    of_all = closed_form(parameters, nonnegative=nonnegative)
    log_odds = _up(float(logsumexp(of_all)))
    if largest < 1.0:
        in_domain = largest * float(expit(log_odds))
        log_odds = min(log_odds, _up(math.log(in_domain) - math.log1p(-in_domain)))
    # What 1 − P(OOD) may be, for P' ≤ at.
    allowed = at / largest
    radius, in_input = 0.0, None if not isinstance(model.backbone, WithDistance) else 0.0
    if allowed < 1.0:
        odds = math.log(allowed) - math.log1p(-allowed)
        pair = float(expit(odds - math.log(k)))
        radius = safe_radius(variables["params"]["head"], pair, nonnegative=nonnegative, **options).radius
        # A sum of K exponentials instead of their largest: exact for the closed form.
        shifted = float(expit(odds - _up(float(logsumexp(of_all) - of_all.max()))))
        in_input = _input_radius(model, variables, shifted, nonnegative=nonnegative)
    filled = np.full(k, log_odds)
    return Guarantee(
        filled,
        np.minimum(expit(filled) * (1.0 + 4.0 * np.finfo(np.float64).eps), 1.0),
        at,
        radius,
        in_input,
        "the OOD class's probability is kept, and P' <= 1 - P(OOD)" + said,
    )


def _largest(recalibration: Recalibration) -> tuple[float, str]:
    """What the K recalibrated probabilities are at most, given that the input is in-domain; and how to say it."""
    if recalibration.method != "spline":
        return 1.0, ""
    largest = max(float(recalibration.parameters["probability"].max()), float(expit(spline.MARGIN)))
    # Float32 may round it up.
    largest = min(largest * (1.0 + 1e-6), 1.0)
    return largest, f"; the spline says {largest:.4g} at most"


def _log_odds(probabilities: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities) - np.log1p(-probabilities))


def _up(value: float) -> float:
    """Rounded up by more than sums and logarithms of float64 round."""
    return value + 1e-12 * max(1.0, abs(value))


def _input_radius(model: Classifier, variables: Mapping[str, Any], at: float, *, nonnegative: bool) -> float | None:
    if not isinstance(model.backbone, WithDistance):
        return None
    if not isinstance(model.head, SquareLogitHead):
        return math.inf
    return input_radius(model, variables, at, nonnegative=nonnegative).radius


def _check_head(model: Classifier) -> None:
    known = type(getattr(model, "head", None)) in (LinearHead, SquareLogitHead)
    if not known or type(model) is not Classifier:
        what = type(model if known or isinstance(model, MCDropout) else getattr(model, "head", model)).__name__
        raise UserError(f"expected a Classifier of a LinearHead or a SquareLogitHead, got {what}")
