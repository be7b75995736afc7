"""Recalibration: probabilities of the classes that are as often right as they say, and what becomes of the guarantees.

`fit` learns a map from held-out labelled logits.  A map takes logits and gives logits, so that scores, metrics and
detectors take what it gives.  `guarantee` says what is still proved of the recalibrated confidence.
"""

from preload_jax.recalibration.guarantee import Guarantee, at_temperature, guarantee
from preload_jax.recalibration.maps import TABLE, Recalibration, fit

__all__ = ["TABLE", "Guarantee", "Recalibration", "at_temperature", "fit", "guarantee"]
