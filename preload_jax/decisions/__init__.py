"""From a score to a decision: thresholds with a guaranteed false-alarm rate, p-values, and watching a stream."""

from preload_jax.decisions.discoveries import benjamini_hochberg
from preload_jax.decisions.monitor import Monitor, Status
from preload_jax.decisions.order_statistics import images_needed
from preload_jax.decisions.rule import Rule, calibrate

__all__ = ["Monitor", "Rule", "Status", "benjamini_hochberg", "calibrate", "images_needed"]
