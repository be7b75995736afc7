"""What can be proved about one trained network, gathered: computed, and as a dictionary for JSON."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from preload_jax.checks import finite_or_none
from preload_jax.devices import forward
from preload_jax.devices.batches import regrouped
from preload_jax.errors import UserError
from preload_jax.guarantees import (
    ConfidenceBound,
    ConfidenceProfile,
    RayCertificate,
    SafeRadius,
    by_head,
    confidence_profile,
    far_away_limit,
    nonnegative_embeddings,
    ray_certificate,
    safe_radius,
)
from preload_jax.guarantees.by_head import AnyInputRadius
from preload_jax.models import Classifier, head_options
from preload_jax.training.fit import has_convolutions

# Rays of the profile: enough for a median and a 5 % quantile.
_PROFILE_RAYS = 200
# Of all directions together: 8 GiB of them.
_MOST_NUMBERS = 2**31
# Images of a forward pass.
_FORWARD = 500
# Followed from t = 0 to infinity.
_WHOLE_RAYS = 1000
# Close steps where confidence changes, wide ones beyond.
_PROFILE_DISTANCES = np.concatenate([np.logspace(0.0, 4.0, 33), np.logspace(5.0, 30.0, 26)])


@dataclass(frozen=True)
class NormSummary:
    """The norms ‖G(x)‖₂ of one set of images: quantiles, and the share of them at or beyond the safe radius.

    `beyond_input` is the share of the images at or beyond the input radius; None where there is no such radius.
    """

    size: int
    low: float
    median: float
    high: float
    beyond: float
    beyond_input: float | None = None


@dataclass(frozen=True)
class Certificate:
    """What is proved about one classifier.

    Attributes:
        num_classes: K.
        num_directions: random directions u, uniform on the sphere, whose limits were computed.
        certain: share of them along which the confidence in one of the K classes tends to 1.
        ood: share of them along which the probability of the extra class tends to 1.
        dead: how many have a constant embedding far away.
        undecided: how many have a limit that float64 does not tell.
        smallest_slope: the smallest ‖s‖₂ = lim ‖G(t·u)‖ / t among the others; None where all are dead.
        bound: the largest confidence of each class over all embeddings.
        radius: beyond which no class is more confident than `radius.confidence`.
        profile: confidence along some of the directions.
        norms: of the test images ("test") and of each OOD set.
        rays: some of the directions from t = 0 to infinity; None where `no_rays` says why not.
        input_radius: in input space, of a network with the distance feature, or with CCU's densities.
    """

    num_classes: int
    num_directions: int
    certain: float
    ood: float
    dead: int
    undecided: int
    smallest_slope: float | None
    bound: ConfidenceBound
    radius: SafeRadius
    profile: ConfidenceProfile
    norms: dict[str, NormSummary]
    rays: RayCertificate | None
    no_rays: str
    input_radius: AnyInputRadius | None

    @property
    def is_bounded(self) -> bool:
        """Whether the head has a square logit, and so every class a largest confidence below 1, and a safe radius."""
        return bool(np.isfinite(self.radius.radius))

    @property
    def has_bound(self) -> bool:
        """Whether every class has a largest confidence below 1, as with a Laplace approximation, too."""
        return bool(np.isfinite(self.bound.log_odds).all())


def certify(
    model: Classifier,
    variables: Mapping[str, Any],
    *,
    num_classes: int,
    test_images: np.ndarray,
    ood_images: Mapping[str, Any],
    key: jax.Array,
    num_directions: int = 10_000,
    num_rays: int | None = None,
    confidence: float = 0.5,
    progress: Callable[..., None] = lambda done, note="": None,
) -> Certificate:
    """Compute the certificate of a classifier.

    Args:
        model, variables: a `Classifier` with a piecewise-affine backbone, and its variables.
        num_classes: K; a logit beyond the first K is the OOD class's.
        test_images: in-domain, uint8 or float [n, h, w, c].
        ood_images: by the set's name; arrays, or functions that give them or an iterator of blocks of them.
        key: of the random directions.
        num_directions: how many.
        num_rays: how many of them are followed from t = 0 to infinity; None: 1,000, and none of a network with
            convolutions, where one takes seconds to minutes.
        confidence: for the radii and the last crossing.
        progress: is told how many of the 3 + len(ood_images) + 1 parts are done: directions, profile, rays, each set;
            and of the rays by its `note` how far they are.

    Raises:
        UserError: for no directions or too many, a confidence outside (0, 1), or a network that is not covered.
    """
    if num_directions < 1:
        raise UserError(f"num_directions must be at least 1, got {num_directions}")
    most = _MOST_NUMBERS // math.prod(test_images.shape[1:])
    if num_directions > most:
        raise UserError(f"num_directions must be at most {most:,} for such inputs, got {num_directions:,}")
    if num_rays is not None and not 0 <= num_rays <= num_directions:
        raise UserError(f"num_rays must be between 0 and num_directions, {num_directions}, got {num_rays}")
    head = variables["params"]["head"]
    options: dict[str, Any] = {
        **head_options(model.head),
        "nonnegative": nonnegative_embeddings(model, variables, test_images.shape[1:]),
    }
    radius = safe_radius(head, confidence, **options)
    directions = np.asarray(jax.random.normal(key, (num_directions, *test_images.shape[1:])))
    limit = far_away_limit(model, variables, directions)
    progress(1)
    profile = confidence_profile(
        model, variables, directions[:_PROFILE_RAYS], num_classes=num_classes, distances=_PROFILE_DISTANCES
    )
    progress(2)
    rays, no_rays = _whole_rays(model, variables, directions, num_rays, confidence, progress)
    progress(3)
    in_input = by_head.input_radius(model, variables, confidence)
    norms = {}
    for name, images in {"test": test_images, **ood_images}.items():
        given = images() if callable(images) else images
        norms[name] = _norms(model, variables, given, radius, in_input)
        progress(3 + len(norms))
    return Certificate(
        num_classes=num_classes,
        num_directions=num_directions,
        certain=float(np.mean((limit.winner >= 0) & (limit.winner < num_classes))),
        ood=float(np.mean(limit.winner >= num_classes)),
        dead=int(limit.dead.sum()),
        undecided=int(limit.undecided.sum()),
        smallest_slope=None if limit.dead.all() else float(limit.slope_norm[~limit.dead].min()),
        bound=by_head.bound(model, variables, options),
        radius=radius,
        profile=profile,
        norms=norms,
        rays=rays,
        no_rays=no_rays,
        input_radius=in_input,
    )


def _whole_rays(
    model: Classifier,
    variables: Mapping[str, Any],
    directions: np.ndarray,
    asked: int | None,
    confidence: float,
    progress: Callable[..., None],
) -> tuple[RayCertificate | None, str]:
    """The certificate of whole rays, or why there is none."""
    if asked is None and has_convolutions(model, directions.shape[1:]):
        return None, (
            "not computed: a ray through convolutions takes seconds, of colour photos minutes; --num-rays asks for some"
        )
    count = _WHOLE_RAYS if asked is None else asked
    if count == 0:
        return None, "not computed, as asked"
    followed = min(count, len(directions))

    def tell(ended: int, crossed: int) -> None:
        # They are the third part.
        progress(2, note=f"{ended:,} of {followed:,} rays to their end, {crossed:,} pieces")

    try:
        return ray_certificate(model, variables, directions[:count], confidence=confidence, progress=tell), ""
    except UserError as error:
        return None, f"not computed: {error}"


def _norms(
    model: Classifier, variables: Any, images: Any, radius: SafeRadius, in_input: AnyInputRadius | None
) -> NormSummary:
    found, beyond = [], 0
    # Batches of the forward pass, so that the bits are those of an array.
    for block in regrouped(images, _FORWARD) if isinstance(images, Iterator) else (images,):
        found.append(np.asarray(forward.predict(model, variables, block, features=True, batch_size=_FORWARD)[1]))
        if in_input is not None:
            beyond += round(in_input.share_beyond(block) * len(block))
    features = np.concatenate(found)
    # Without the distance, which comes last where there is one.
    norms = np.linalg.norm(np.asarray(features, np.float64)[:, : radius.width], axis=1)
    low, median, high = (float(np.quantile(norms, q)) for q in (0.05, 0.5, 0.95))
    beyond_input = None if in_input is None else beyond / len(norms)
    return NormSummary(len(norms), low, median, high, radius.share_beyond(features), beyond_input)


def as_dict(certificate: Certificate, *, class_names: tuple[str, ...]) -> dict[str, Any]:
    """For JSON: fractions; null for an infinite radius and for the infinite log-odds of confidence 1."""
    radius, profile = certificate.radius, certificate.profile
    return {
        "num_directions": certificate.num_directions,
        "share_with_limiting_confidence_1": certificate.certain,
        "share_ending_in_extra_class": certificate.ood,
        "dead_directions": certificate.dead,
        "undecided_directions": certificate.undecided,
        "smallest_slope": certificate.smallest_slope,
        "largest_confidence": by_head.largest_confidence(certificate.bound, radius, class_names=class_names),
        "safe_radius": {"confidence": radius.confidence, "radius": finite_or_none(radius.radius)},
        "input_radius": by_head.input_radius_as_dict(certificate.input_radius),
        "whole_rays": _rays(certificate),
        "embedding_norms": {
            name: {
                "size": n.size,
                "q05": n.low,
                "median": n.median,
                "q95": n.high,
                "share_beyond_radius": n.beyond,
                "share_beyond_input_radius": n.beyond_input,
            }
            for name, n in certificate.norms.items()
        },
        "profile": [
            {
                "distance": float(t),
                "confidence_median": float(np.median(confidence)),
                "confidence_max": float(confidence.max()),
                "extra_class_median": float(np.median(ood)),
            }
            for t, confidence, ood in zip(profile.distances, profile.confidence, profile.ood_probability, strict=True)
        ],
    }


def _rays(certificate: Certificate) -> dict[str, Any]:
    rays = certificate.rays
    if rays is None:
        return {"number": 0, "why": certificate.no_rays}
    top = int(np.argmax(rays.largest_log_odds))
    return {
        "number": len(rays.distance),
        "largest_confidence": float(rays.largest_confidence[top]),
        "largest_log_odds": finite_or_none(rays.largest_log_odds[top]),
        "at_distance": finite_or_none(rays.distance[top]),
        "largest_log_odds_median": finite_or_none(float(np.median(rays.largest_log_odds))),
        "last_crossing_of": rays.confidence,
        "last_crossing_median": finite_or_none(float(np.median(rays.last_crossing))),
        "last_crossing_max": finite_or_none(float(rays.last_crossing.max())),
        "pieces_median": float(np.median(rays.num_pieces)),
    }
