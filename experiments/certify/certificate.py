"""What can be proved about one trained network, gathered: computed, and as a dictionary for JSON."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from preload_jax.devices import forward
from preload_jax.errors import UserError
from preload_jax.guarantees import (
    ConfidenceBound,
    ConfidenceProfile,
    SafeRadius,
    confidence_bound,
    confidence_profile,
    far_away_limit,
    nonnegative_embeddings,
    safe_radius,
)
from preload_jax.models import Classifier, SquareLogitHead

# Rays of the profile: enough for a median and a 5 % quantile.
_PROFILE_RAYS = 200
# Close steps where confidence changes, wide ones beyond.
_PROFILE_DISTANCES = np.concatenate([np.logspace(0.0, 4.0, 33), np.logspace(5.0, 30.0, 26)])


@dataclass(frozen=True)
class NormSummary:
    """The norms ‖G(x)‖₂ of one set of images: quantiles, and the share of them at or beyond the safe radius."""

    size: int
    low: float
    median: float
    high: float
    beyond: float


@dataclass(frozen=True)
class Certificate:
    """What is proved about one classifier.

    Attributes:
        num_classes: K.
        num_directions: random directions u, uniform on the sphere, whose limits were computed.
        certain: share of them along which the confidence in one of the K classes tends to 1.
        ood: share of them along which the probability of the extra class tends to 1.
        dead: how many have a constant embedding far away.
        smallest_slope: the smallest ‖s‖₂ = lim ‖G(t·u)‖ / t among the others; None where all are dead.
        bound: the largest confidence of each class over all embeddings.
        radius: beyond which no class is more confident than `radius.confidence`.
        profile: confidence along some of the directions.
        norms: of the test images ("test") and of each OOD set.
    """

    num_classes: int
    num_directions: int
    certain: float
    ood: float
    dead: int
    smallest_slope: float | None
    bound: ConfidenceBound
    radius: SafeRadius
    profile: ConfidenceProfile
    norms: dict[str, NormSummary]

    @property
    def is_bounded(self) -> bool:
        """Whether the head has a square logit, and so every class a largest confidence below 1."""
        return bool(np.isfinite(self.radius.radius))


def certify(
    model: Classifier,
    variables: Mapping[str, Any],
    *,
    num_classes: int,
    test_images: np.ndarray,
    ood_images: Mapping[str, np.ndarray],
    key: jax.Array,
    num_directions: int = 10_000,
    confidence: float = 0.5,
    progress: Callable[[int], None] = lambda done: None,
) -> Certificate:
    """Compute the certificate of a classifier.

    Args:
        model, variables: a `Classifier` with a piecewise-affine backbone, and its variables.
        num_classes: K; a logit beyond the first K is the OOD class's.
        test_images: in-domain, uint8 or float [n, h, w, c].
        ood_images: by the set's name.
        key: of the random directions.
        num_directions: how many.
        confidence: for the safe radius.
        progress: is told how many of the 2 + len(ood_images) + 1 parts are done: directions, rays, and each set.

    Raises:
        UserError: when there are no directions, for a confidence outside (0, 1), or a network that is not covered.
    """
    if num_directions < 1:
        raise UserError(f"num_directions must be at least 1, got {num_directions}")
    head = variables["params"]["head"]
    options: dict[str, Any] = {
        "exponent": model.head.exponent if isinstance(model.head, SquareLogitHead) else 2,
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
    norms = {}
    for name, images in {"test": test_images, **ood_images}.items():
        norms[name] = _norms(model, variables, images, radius)
        progress(2 + len(norms))
    return Certificate(
        num_classes=num_classes,
        num_directions=num_directions,
        certain=float(np.mean((limit.winner >= 0) & (limit.winner < num_classes))),
        ood=float(np.mean(limit.winner >= num_classes)),
        dead=int(limit.dead.sum()),
        smallest_slope=None if limit.dead.all() else float(limit.slope_norm[~limit.dead].min()),
        bound=confidence_bound(head, **options),
        radius=radius,
        profile=profile,
        norms=norms,
    )


def _norms(model: Classifier, variables: Any, images: np.ndarray, radius: SafeRadius) -> NormSummary:
    _, features = forward.predict(model, variables, images, features=True)
    norms = np.linalg.norm(np.asarray(features, np.float64), axis=1)
    low, median, high = (float(np.quantile(norms, q)) for q in (0.05, 0.5, 0.95))
    return NormSummary(len(norms), low, median, high, beyond=radius.share_beyond(np.asarray(features)))


def as_dict(certificate: Certificate, *, class_names: tuple[str, ...]) -> dict[str, Any]:
    """For JSON: fractions; null for an infinite radius and for the infinite log-odds of confidence 1."""
    bound, radius, profile = certificate.bound, certificate.radius, certificate.profile
    classes = [
        {
            "name": name,
            "largest_confidence": float(bound.confidence[c]),
            "largest_log_odds": _finite(bound.log_odds[c]),
            "attained_log_odds": _finite(bound.attained_log_odds[c]),
            "closed_form_confidence": float(bound.closed_form[c]),
            "closed_form_log_odds": _finite(bound.closed_form_log_odds[c]),
            "kkt_residual": float(bound.kkt_residual[c]),
            "safe_radius": _finite(radius.class_radii[c]),
        }
        for c, name in enumerate(class_names)
    ]
    return {
        "num_directions": certificate.num_directions,
        "share_with_limiting_confidence_1": certificate.certain,
        "share_ending_in_extra_class": certificate.ood,
        "dead_directions": certificate.dead,
        "smallest_slope": certificate.smallest_slope,
        "largest_confidence": {"reason": bound.reason, "classes": classes},
        "safe_radius": {"confidence": radius.confidence, "radius": _finite(radius.radius)},
        "embedding_norms": {
            name: {"size": n.size, "q05": n.low, "median": n.median, "q95": n.high, "share_beyond_radius": n.beyond}
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


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
