"""Where a detector's score goes along rays: the limits that `preload_jax.detectors` derives, under one roof."""

from typing import Any

import numpy as np
from jaxtyping import Float

from preload_jax import detectors
from preload_jax.detectors import Detector


def detector_limits(detector: Detector, slopes: Any, constants: Any, *, head: Any = None) -> Float[np.ndarray, "n"]:
    """The limit of a detector's score along n rays as t → ∞, where features are t·s + a: −∞, a number or +∞.

    A ray is called OOD far away where the limit is below the threshold.  Each detector's file derives its limit.

    Args:
        detector: what `detectors.fit` returned.
        slopes, constants: s and a, [n, d], of `ray_slopes` and `ray_constants`.
        head: the network's (kernel [d, K], bias [K]), if the detector reads logits and was fitted without a head.

    Raises:
        UserError: for a detector whose limit is not derived, or a missing head.

    Example:
        >>> import numpy as np
        >>> from preload_jax import detectors, guarantees
        >>> features, labels = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
        >>> detector = detectors.fit("mahalanobis", detectors.Outputs(features), labels)
        >>> guarantees.detector_limits(detector, np.eye(4)[:2], np.zeros((2, 4))).tolist()
        [-inf, -inf]
    """
    return detectors.limit(detector, slopes, constants, head=head)
