"""The largest confidence on whole rays, from the start to infinity, and where it ends: exact, not sampled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int, Num
from scipy.special import expit

from preload_jax.checks import require_share
from preload_jax.devices import companions
from preload_jax.devices.variables import require_rays
from preload_jax.errors import UserError
from preload_jax.guarantees import germs
from preload_jax.guarantees.affine_piece import Features
from preload_jax.guarantees.along_pieces import AlongPieces
from preload_jax.guarantees.head_parameters import read_head, require_one_head
from preload_jax.guarantees.input_radius import distance_constants
from preload_jax.guarantees.pieces import pieces
from preload_jax.guarantees.ray_inputs import ray_starts, unit_directions
from preload_jax.integers import require_integer
from preload_jax.models import Classifier, SquareLogitHead, WithDistance, head_options
from preload_jax.short_repr import short_repr


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

    __repr__ = short_repr

    @property
    def largest_confidence(self) -> Float[np.ndarray, "n"]:
        """The largest confidence as a probability, [n]."""
        return np.asarray(expit(self.largest_log_odds))


def ray_certificate(
    model: Classifier,
    variables: Mapping[str, Any],
    directions: Num[Array, "n ..."] | Num[np.ndarray, "n ..."],
    *,
    starts: Num[Array, "n ..."] | Num[np.ndarray, "n ..."] | None = None,
    confidence: float = 0.5,
    batch_size: int = 32,
    max_pieces: int = 200_000,
    progress: Callable[[int, int], None] | None = None,
) -> RayCertificate:
    """The largest confidence along x(t) = u₀ + t·u over all t ≥ 0, and the last t at which it exceeds p.

    A piecewise affine network has finitely many pieces along a ray.  On each of them z_c is affine in t and the OOD
    logit a convex polynomial, so that log P(c) − log(1 − P(c)) = z_c − log Σ_{i≠c} exp z_i is concave, and bisection on
    its slope finds the maximum.  The pieces are found one after the other: the network's jaxpr, read at a point, tells
    its value, its slope, and how far ahead the next comparison changes.  All of it in float64 with the stored
    parameters; what float32 rounds when the network is used is not part of it.  A network that jumps is read just
    beyond each jump, and just beyond t = 0.

    Args:
        model: a `Classifier` with a `LinearHead` or a `SquareLogitHead`, and a piecewise affine backbone, alone or in a
            `WithDistance`.
        variables: its variables.
        directions: u, images' shape, scaled to length 1, so that t is a distance; only where they point counts.
        starts: u₀, one for each direction, images as `predict` takes them (uint8 is divided by 255); 0 when None.
        confidence: p, between 0 and 1, both excluded.
        batch_size: rays computed at once.
        max_pieces: of one ray; more are an error.
        progress: is told now and then how many rays were followed to their end, and how many pieces were crossed.

    Raises:
        UserError: for another head, a backbone that is not piecewise affine (GELU, layer norm, attention, …), a
            direction of length 0, starts that `predict` would refuse, or too many pieces.

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
    confidence = require_share("confidence", confidence)
    require_one_head(model)
    batch_size = require_integer("batch_size", batch_size, at_least=1)
    max_pieces = require_integer("max_pieces", max_pieces, at_least=1)
    units = unit_directions(directions, np.float64)
    require_rays(model, variables, units.shape[1:])
    given = ray_starts(starts, units)
    origins = np.zeros_like(units) if given is None else given
    head = read_head(variables["params"]["head"], **head_options(model.head))
    backbone, center, factor = model.backbone, None, 0.0
    if isinstance(backbone, WithDistance) and type(backbone) is not WithDistance:
        raise UserError(
            f"the backbone is a {type(backbone).__name__}, which may have another distance; expected a WithDistance"
        )
    if (head.distance_weight is not None) != (type(backbone) is WithDistance and type(model.head) is SquareLogitHead):
        raise UserError("the variables and the model disagree on the distance feature; give the model's own variables")
    if type(backbone) is WithDistance:
        center, scale = distance_constants(backbone, variables)
        backbone, factor = backbone.backbone, backbone.weight / scale
    features = Features(backbone)
    own = {name: tree["backbone"] for name, tree in variables.items() if "backbone" in tree}
    germs.require_independent_rows(
        lambda images: features(own, images), units.shape[1:], known=companions.known(backbone)
    )
    level = float(np.log(confidence) - np.log1p(-confidence))
    parts: list[dict[str, np.ndarray]] = []

    def tell(ended: int, crossed: int) -> None:
        if progress is not None:
            before = sum(int(part["num_pieces"].sum()) for part in parts)
            progress(sum(len(part["num_pieces"]) for part in parts) + ended, before + crossed)

    for first in range(0, len(units), batch_size):
        rows = slice(first, first + batch_size)
        found = pieces(features, own, units[rows], origins[rows], center=center, max_pieces=max_pieces, progress=tell)
        parts.append(AlongPieces(found, head, factor).summary(len(units[rows]), level))
    names = ("largest_log_odds", "distance", "winner", "last_crossing", "num_pieces")
    return RayCertificate(confidence, **{name: np.concatenate([part[name] for part in parts]) for name in names})
