"""Per-example losses, and the combined objectives that are made of them.

Losses are `f(logits, labels)` or `f(logits)` and return one value an example, in float32.  Means and the OOD weight λ
appear once, in the objectives; an objective is `f(logits_in, labels, logits_ood, *, …)` → scalar, and takes the numbers
that it needs by name: `ood_weight`, Energy-FT's margins, the focal loss's γ.
"""

from preload_jax.losses.calibration import focal, label_smoothing, mixup, mmce, squared_mmce
from preload_jax.losses.noise import low_confidence
from preload_jax.losses.objectives import (
    Number,
    classification,
    cross_entropy,
    energy,
    energy_margins,
    extra_class,
    extra_class_whole,
    mean_cross_entropy,
    outlier_exposure,
    outlier_exposure_class_mean,
    squared_hinge,
    uniform_cross_entropy,
)

__all__ = [
    "Number",
    "classification",
    "cross_entropy",
    "energy",
    "energy_margins",
    "extra_class",
    "extra_class_whole",
    "focal",
    "label_smoothing",
    "low_confidence",
    "mean_cross_entropy",
    "mixup",
    "mmce",
    "outlier_exposure",
    "outlier_exposure_class_mean",
    "squared_hinge",
    "squared_mmce",
    "uniform_cross_entropy",
]
