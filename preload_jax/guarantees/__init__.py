"""What can be proved about a trained network's confidence: its limits far away, its supremum, and how far is far."""

from preload_jax.guarantees.bounds import ConfidenceBound, confidence_bound
from preload_jax.guarantees.input_radius import InputRadius, input_radius
from preload_jax.guarantees.limits import FarAwayLimit, far_away_limit
from preload_jax.guarantees.profiles import ConfidenceProfile, confidence_profile
from preload_jax.guarantees.radius import SafeRadius, safe_radius
from preload_jax.guarantees.recession import ray_constants, ray_slopes

__all__ = [
    "ConfidenceBound",
    "ConfidenceProfile",
    "FarAwayLimit",
    "InputRadius",
    "SafeRadius",
    "confidence_bound",
    "confidence_profile",
    "far_away_limit",
    "input_radius",
    "ray_constants",
    "ray_slopes",
    "safe_radius",
]
