"""Where the confidence of MC dropout, ensembles, a Laplace approximation and CCU goes along a ray: exact limits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import scipy.special
from jaxtyping import Array, Float

from preload_jax.devices.variables import plain
from preload_jax.errors import UserError
from preload_jax.guarantees import germs
from preload_jax.guarantees.affine_piece import Features
from preload_jax.guarantees.bounds import ConfidenceBound
from preload_jax.guarantees.density_radius import read_densities
from preload_jax.guarantees.head_parameters import read_head
from preload_jax.guarantees.limits import FarAwayLimit, far_away_limit, in_batches, limits_of
from preload_jax.guarantees.ray_inputs import ray_starts, unit_directions
from preload_jax.models import CCUHead, Classifier, LaplaceHead, MCDropout, RGPRHead
from preload_jax.models.laplace_head import PROBIT
from preload_jax.models.layers import MC_DROPOUT
from preload_jax.models.mixtures import EnsembleHead, members, without_posterior

# Of which one's own subclass may compute anything else.
_HEADS = (EnsembleHead, LaplaceHead, RGPRHead, CCUHead)


@dataclass(frozen=True)
class _Draw:
    """One draw of a network with dropout: (its variables and the number of the draw, images) → (logits, features)."""

    model: MCDropout

    def __call__(self, variables: Any, images: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(self.model.seed), variables["draw"])
        return self.model.plain.apply(variables["own"], images, features=True, rngs={MC_DROPOUT: key})


def mixed_limit(
    model: Classifier, variables: Mapping[str, Any], directions: Any, *, starts: Any, batch_size: int
) -> FarAwayLimit:
    """The limit of a network for which `models.mixtures.is_mixture` holds.

    - MC dropout and ensembles: the mean of the limits of the networks.  Each has one, and a mean of finitely many
      probabilities tends to the mean of their limits.
    - `LaplaceHead`: see `_laplace_limit`.
    - `RGPRHead`: logits grow like t and their standard deviations like t^{3/2}, so all probabilities tend to 1/K.
    - `CCUHead`: log p(x | i) / p(x | o) = −½ t² ‖Wᵀu‖² (1 / max σ² − 1 / max θ²) + O(t), so all probabilities tend to
      1/K where max θ > max σ, as W is regular.  Training keeps it so; else the rays are undecided.
    """
    options: dict[str, Any] = {"starts": starts, "batch_size": batch_size}
    if type(model) not in (Classifier, MCDropout) or (type(model) is Classifier and type(model.head) not in _HEADS):
        own = model.head if type(model) is Classifier else model
        raise UserError(f"the network has a {type(own).__name__}, whose limit is not known; expected the library's own")
    if isinstance(model, MCDropout):
        whole = far_away_limit(model.plain, variables, directions, **options)
        units = unit_directions(directions)
        along: dict[str, Any] = {"starts": ray_starts(starts, units), "batch_size": batch_size}
        # All inputs have the same masks, so that rows are independent where the network's own are.
        drawn = [
            limits_of(_Draw(model), {"own": plain(variables), "draw": np.uint32(t)}, units, **along)
            for t in range(model.samples)
        ]
        return replace(_mean(drawn), dead=whole.dead, slope_norm=whole.slope_norm)
    if networks := members(model, variables):
        return _mean([far_away_limit(each, own, directions, **options) for each, own in networks])
    return _laplace_limit(model, variables, directions, **options)


def _mean(limits: list[FarAwayLimit]) -> FarAwayLimit:
    """The mean of limits, and what it says of the log-odds; features are those of all, one after the other."""
    odds = np.stack([each.log_odds for each in limits])
    log_p, log_rest = (scipy.special.logsumexp(scipy.special.log_expit(sign * odds), axis=0) for sign in (1.0, -1.0))
    undecided = np.any([each.undecided for each in limits], axis=0)
    probabilities = np.mean([each.probabilities for each in limits], axis=0)
    probabilities[undecided] = np.nan
    certain = np.all([each.winner == limits[0].winner for each in limits], axis=0) & ~undecided
    return FarAwayLimit(
        probabilities=probabilities,
        winner=np.where(certain, limits[0].winner, -1),
        dead=np.all([each.dead for each in limits], axis=0),
        slope_norm=np.sqrt(np.sum([each.slope_norm**2 for each in limits], axis=0)),
        log_odds=np.where(undecided[:, None], np.nan, log_p - log_rest),
        undecided=undecided,
        single_precision=np.all([each.single_precision for each in limits], axis=0),
    )


def _laplace_limit(
    model: Classifier, variables: Mapping[str, Any], directions: Any, *, starts: Any, batch_size: int
) -> FarAwayLimit:
    """lim softmax(z_c / √(1 + π/8 v_c)) for features t·s + a, z = Wᵀg + b and v_c = g̃ᵀ Σ_c g̃.

    Where s ≠ 0, z_c = t·w_cᵀs + O(1) and v_c = t²·sᵀΣ_c s + O(t), so the limit is softmax_c(w_cᵀs / √(π/8 · sᵀΣ_c s)):
    a number below 1 that the direction decides.  Elsewhere the features are a, and the limit is the prediction there.
    """
    body, own = without_posterior(model, plain(variables))
    whole = far_away_limit(body, own, directions, starts=starts, batch_size=batch_size)
    if isinstance(model.head, RGPRHead | CCUHead):
        uniform = np.zeros((len(whole.dead), model.head.num_classes))
        known = isinstance(model.head, RGPRHead) or read_densities(model, variables).uniform_far_away
        return _at_logits(whole, uniform, ~np.isfinite(whole.slope_norm) if known else np.ones(len(uniform), bool))
    of_backbone = {name: tree["backbone"] for name, tree in own.items() if "backbone" in tree}
    units = unit_directions(directions)
    origins = ray_starts(starts, units)
    function = Features(model.backbone.clone(parent=None))
    origins = np.zeros_like(units) if origins is None else origins

    def coefficients(power: int) -> np.ndarray:
        def of_batch(rows: Array, starts: Array) -> Array:
            return germs.coefficients(function, of_backbone, rows, starts, power=power, leading=False)

        return np.asarray(in_batches(of_batch, units, origins, batch_size=batch_size), np.float64)

    slopes, constants = coefficients(1), coefficients(0)
    logits = limiting_logits(variables, slopes, constants)
    moving = (slopes != 0.0).any(axis=1)
    return _at_logits(whole, logits, ~moving & ~whole.dead)


def _at_logits(whole: FarAwayLimit, logits: Float[np.ndarray, "n k"], undecided: np.ndarray) -> FarAwayLimit:
    """The limit whose probabilities are the softmax of finite logits."""
    logits = np.where(undecided[:, None], np.nan, logits)
    return replace(
        whole,
        probabilities=scipy.special.softmax(logits, axis=1),
        winner=np.full(len(logits), -1),
        log_odds=_log_odds(logits),
        undecided=undecided,
        single_precision=np.zeros(len(logits), bool),
    )


def limiting_logits(
    variables: Mapping[str, Any], slopes: Float[np.ndarray, "n d"], constants: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, "n k"]:
    """The limits of a `LaplaceHead`'s logits for features t·s + a; where s = 0, the logits at a."""
    head = read_head(variables["params"]["head"])
    stats = variables["batch_stats"]["head"]
    moving = (slopes != 0.0).any(axis=1, keepdims=True)
    one = np.where(moving, 0.0, 1.0)
    # The length of s does not count.
    longest = np.abs(slopes).max(axis=1, keepdims=True)
    g = np.where(moving, slopes / np.where(moving, longest, 1.0), constants)
    deviations = np.sqrt(np.square(_rotated(stats, np.column_stack([g, one]))).sum(axis=2))
    mean = g @ head.weights.T + one * head.bias
    return mean / np.sqrt(one + PROBIT * np.square(deviations))


def laplace_bound(variables: Mapping[str, Any]) -> ConfidenceBound:
    """The largest confidence of each class of a network with a `LaplaceHead` or `RGPRHead`, over all inputs.

    ± z_c / √(1 + π/8 v_c) ≤ √(8/π) √(w̃_cᵀ Σ_c⁻¹ w̃_c) = r_c by Cauchy and Schwarz, for z_c = w̃_cᵀg̃ and v_c = g̃ᵀΣ_c g̃,
    w̃ = (w, b) and g̃ = (g, 1).  So P(c) is below the softmax of logits with r_c for c and −r_i for the others.  For
    features of any backbone, near and far.  It is never above Kristiadi et al.'s ‖w̃‖ / √(π/8 λ_min(Σ)) (theorem 2.4,
    for two classes).  An `RGPRHead`'s further variance only makes logits smaller.

    Args:
        variables: the classifier's, with the posterior under "batch_stats".

    Returns:
        A `ConfidenceBound`, which need not be the supremum: `attained_log_odds` are the limits along `embeddings`,
        Σ_c⁻¹ w̃_c; those of 1/K for an `RGPRHead`.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import bayes, guarantees, make_classifier
        >>> model = make_classifier("mlp", "linear", num_classes=3, widths=(8,))
        >>> images = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 1), np.uint8)
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> _, variables = bayes.fit_laplace(model, variables, images)
        >>> bool((guarantees.laplace_bound(variables).confidence < 1.0).all())
        True
    """
    head = read_head(variables["params"]["head"])
    stats = variables["batch_stats"]["head"]
    weights = np.column_stack([head.weights, head.bias])
    k, size = weights.shape
    # v_c = ‖M_c g̃‖², so that w̃ᵀΣ⁻¹w̃ = ‖M_c⁻ᵀ w̃‖².
    maps = np.moveaxis(_rotated(stats, np.eye(size)), 0, 2)
    whitened = np.stack([np.linalg.solve(maps[c].T, weights[c]) for c in range(k)])
    largest = np.sqrt(np.square(whitened).sum(axis=1) / PROBIT) * (1.0 + 1e-12)
    others = np.where(np.eye(k, dtype=bool), -np.inf, -largest)
    log_odds = largest - scipy.special.logsumexp(others, axis=1)
    directions = np.stack([np.linalg.solve(maps[c], whitened[c])[:-1] for c in range(k)])
    limits = limiting_logits(variables, directions, np.zeros_like(directions))
    outgrown = "spline_center" in stats
    attained = np.diag(_log_odds(0.0 * limits if outgrown else limits))
    confidence = np.minimum(scipy.special.expit(log_odds) * (1.0 + 1e-15), 1.0)
    return ConfidenceBound(
        confidence=confidence,
        log_odds=log_odds,
        attained_log_odds=attained,
        closed_form=confidence,
        closed_form_log_odds=log_odds,
        kkt_residual=np.zeros(k),
        embeddings=directions,
        reason="each logit is divided by its standard deviation under the posterior, which grows"
        f" {'faster than' if outgrown else 'as fast as'} it does; over all embeddings, by Cauchy and Schwarz",
    )


def _rotated(stats: Mapping[str, Any], g: Float[np.ndarray, "n d1"]) -> Float[np.ndarray, "n k d1"]:
    """M_c g̃ with v_c = ‖M_c g̃‖², for each class."""
    if "factor" in stats:
        return np.einsum("nd,kde->nke", g, np.asarray(stats["factor"], np.float64))
    basis, variances = (np.asarray(stats[name], np.float64) for name in ("basis", "variances"))
    rotated = np.column_stack([g[:, :-1] @ basis, g[:, -1]])
    return rotated[:, None, :] * np.sqrt(variances.T)


def _log_odds(logits: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    others = [scipy.special.logsumexp(np.delete(logits, c, axis=1), axis=1) for c in range(logits.shape[1])]
    return logits - np.stack(others, axis=1)
