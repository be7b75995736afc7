"""Scores and confidence on an L∞ ball around inputs: what they are, what an attack finds, and what is guaranteed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import expit, logsumexp

from preload_jax import attacks, metrics, scores
from preload_jax.checks import as_points, require_number
from preload_jax.decisions.arguments import checked_scores
from preload_jax.devices import batches, companions, programs
from preload_jax.devices.variables import require_rays
from preload_jax.errors import UserError
from preload_jax.guarantees import germs, intervals
from preload_jax.guarantees.affine_piece import Features
from preload_jax.guarantees.head_box import largest_differences, largest_logits
from preload_jax.guarantees.head_parameters import HeadParameters, read_head, require_one_head
from preload_jax.integers import require_flag, require_integer, require_seed
from preload_jax.models import Classifier, head_options
from preload_jax.models.classifier import MAX_INPUT
from preload_jax.short_repr import short_repr

SCORES = ("in_domain_probability", "max_probability", "negative_energy")
# Of PGD, in radii: so that a few steps cross the ball.
_STEP = 2.5


@dataclass(frozen=True)
class BallCertificate:
    """Scores of n inputs (higher: more in-domain), and the largest within ε of each.

    Attributes:
        epsilon: ε, in the inputs' own scale: of images in [0, 1].
        score: its name in `scores`.
        scores: of the inputs themselves, [n].
        attacked: the largest that an attack found in the ball, [n]: at least `scores`.
        guaranteed: no point of the ball scores higher, [n]: at least `attacked`.
        largest_log_odds: no class of the K has larger log-odds of its probability in the ball, [n].

    Example: see `ball_certificate`.
    """

    epsilon: float
    score: str
    scores: Float[np.ndarray, "n"]
    attacked: Float[np.ndarray, "n"]
    guaranteed: Float[np.ndarray, "n"]
    largest_log_odds: Float[np.ndarray, "n"]

    __repr__ = short_repr

    @property
    def largest_confidence(self) -> Float[np.ndarray, "n"]:
        """No class of the K is more probable in the ball, [n]."""
        return np.asarray(expit(self.largest_log_odds))

    def auroc(self, scores_in: Float[np.ndarray, "m"]) -> dict[str, float]:
        """How well in-domain inputs are told from these: {"auroc", "attacked", "guaranteed"}, in falling order.

        Args:
            scores_in: of in-domain inputs, by the same score, [m].
        """
        named = {"auroc": self.scores, "attacked": self.attacked, "guaranteed": self.guaranteed}
        inside = checked_scores(scores_in, name="scores_in").astype(np.float32)
        # Bounds beyond float32 are as high as any.
        limit = float(np.finfo(np.float32).max)
        clipped = {name: np.clip(found, -limit, limit).astype(np.float32) for name, found in named.items()}
        return {name: float(metrics.auroc(jnp.asarray(inside), jnp.asarray(found))) for name, found in clipped.items()}


def ball_certificate(
    model: Classifier,
    variables: Mapping[str, Any],
    images: Float[Array, "n ..."] | np.ndarray,
    epsilon: float = 0.01,
    *,
    score: str | None = None,
    steps: int = 40,
    seed: int = 0,
    batch_size: int = 128,
    rounding: bool = True,
) -> BallCertificate:
    """The score's and the confidence's largest values within ε of inputs, attacked and guaranteed.

    The guarantee is interval bound propagation (Gowal et al., 2018) through the network's jaxpr up to the embedding, as
    GOOD has it (Bitterwolf et al., 2020).  Then comes the exact maximum of every z_c − z_k over the box of embeddings:
    with a square logit each is a sum of concave functions of one coordinate.  It holds for what the network computes
    in float32, in whatever order it adds up; LeNet's convolution by spectra on a CPU, tf32 and bfloat16 round by more.
    The attack is PGD (`attacks.pgd`) on the score.

    Args:
        model: a `Classifier` with a `LinearHead` or a `SquareLogitHead`.
        variables: its variables.
        images: uint8, or floating point as the network takes them.
        epsilon: ε ≥ 0; values stay in [0, 1] where they are, see `attacks.ball`.
        score: "in_domain_probability", "max_probability" or "negative_energy"; None: the first with an OOD class, the
            second without one.
        steps: of the attack; 0 for none.
        seed: of the attack's start.
        batch_size: inputs computed at once.
        rounding: False: for exact arithmetic, see `intervals.output_bounds`.

    Raises:
        UserError: for another head or score, an operation without a rule, integers, or a number that makes no sense.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(64,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> images = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 1), np.uint8)
        >>> found = guarantees.ball_certificate(model, variables, images, 0.01)
        >>> bool((found.scores <= found.attacked).all()), bool((found.attacked <= found.guaranteed).all())
        (True, True)
    """
    epsilon = require_number("epsilon", epsilon, at_least=0.0)
    rounding = require_flag("rounding", rounding)
    steps = require_integer("steps", steps, at_least=0)
    batch_size = require_integer("batch_size", batch_size, at_least=1)
    seed = require_seed(seed)
    require_one_head(model)
    has_ood_class = bool(model.head.has_ood_class)
    name = score or ("in_domain_probability" if has_ood_class else "max_probability")
    if name not in SCORES or (name == "in_domain_probability") != has_ood_class:
        usable = SCORES[:1] if has_ood_class else SCORES[1:]
        raise UserError(f"no bound on a ball for the score {name!r} of this head; expected one of {list(usable)}")
    given, batch_size = batches.admitted(as_points(images), batch_size)
    require_rays(model, variables, given.shape[1:])
    head = read_head(variables["params"]["head"], **head_options(model.head))
    pixels = np.asarray(batches.to_float(jnp.asarray(given)), np.float32)
    if np.abs(pixels).max() + epsilon >= MAX_INPUT:
        raise UserError(
            f"inputs of up to {np.abs(pixels).max():.3g} and epsilon {epsilon:.3g}; expected a sum below {MAX_INPUT:g}:"
            " beyond it the network limits what it sees"
        )
    clean, attacked = _attacked(model, variables, pixels, name, epsilon, steps, seed, batch_size)
    box = _embeddings(model, variables, pixels, epsilon, batch_size, rounding)
    guaranteed, log_odds = _bounds(head, box, name, num_classes=model.head.num_classes)
    return BallCertificate(epsilon, name, clean, attacked, guaranteed, log_odds)


# `now`, the digest of what the model computes, is read by the cache alone.
@partial(jax.jit, static_argnames=("model", "now", "name", "steps"))
def _best(
    variables: Any, images: Array, key: Array, epsilon: Array, *, model: Classifier, now: str, name: str, steps: int
) -> tuple[Array, Array]:
    def score(x: Array) -> Array:
        logits: Any = model.apply(variables, x)
        return getattr(scores, name)(logits)

    worst = attacks.pgd(score, images, key=key, epsilon=epsilon, steps=steps, step_size=_STEP * epsilon / max(steps, 1))
    clean = score(images)
    return clean, jnp.maximum(clean, score(worst))


def _attacked(
    model: Classifier,
    variables: Mapping[str, Any],
    images: np.ndarray,
    name: str,
    epsilon: float,
    steps: int,
    seed: int,
    batch_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The scores, and those after the attack, in float64."""
    parts = []
    inputs = jax.ShapeDtypeStruct((1, *images.shape[1:]), jnp.float32)
    now = "" if companions.known(model) else programs.digest(model.apply, dict(variables), inputs)
    for number, (padded, size) in enumerate(batches.padded(images, batch_size)):
        key = jax.random.fold_in(jax.random.key(seed), number)
        found = _best(
            dict(variables),
            jnp.asarray(padded),
            key,
            jnp.float32(epsilon),
            model=model,
            now=now,
            name=name,
            steps=steps,
        )
        parts.append([np.asarray(each, np.float64)[:size] for each in found])
    clean, attacked = (np.concatenate(each) for each in zip(*parts, strict=True))
    return clean, attacked


def _embeddings(
    model: Classifier, variables: Mapping[str, Any], images: np.ndarray, epsilon: float, batch_size: int, rounding: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The box that holds the embeddings of each input's ball."""
    own = {name: tree["backbone"] for name, tree in variables.items() if "backbone" in tree}
    features = Features(model.backbone)
    germs.require_independent_rows(lambda x: features(own, x), images.shape[1:], known=companions.known(model.backbone))
    centers = images.astype(np.float64)
    # What float32 makes of x ± ε is in it, too.
    reach = epsilon + 2.0 * np.finfo(np.float32).eps * (np.abs(centers) + epsilon) if epsilon else 0.0
    low = np.maximum(centers - reach, np.minimum(centers, 0.0))
    high = np.minimum(centers + reach, np.maximum(centers, 1.0))
    ((least, most),) = intervals.output_bounds(features, own, low, high, batch_size=batch_size, rounding=rounding)
    return least, most


def _bounds(
    head: HeadParameters, box: tuple[np.ndarray, np.ndarray], name: str, *, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """The largest score, and the largest log-odds of a class, of all embeddings in the box."""
    differences, slack = largest_differences(head, *box)
    _, k, total = differences.shape
    # log P(c) − log(1 − P(c)) = −log Σ_{i≠c} exp(z_i − z_c), each difference at its least.
    others = np.where(np.eye(k, total, dtype=bool)[None], np.inf, differences)
    of_classes = -np.asarray(logsumexp(-others, axis=2))
    log_odds = of_classes[:, :num_classes].max(axis=1) + slack
    if name == "max_probability":
        return log_odds, log_odds
    if name == "negative_energy":
        return logsumexp(largest_logits(head, *box), axis=1) + slack, log_odds
    return logsumexp(differences[:, :num_classes, -1], axis=1) + slack, log_odds
