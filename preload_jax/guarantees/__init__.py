"""What can be proved about a trained network's confidence: its limits far away, its supremum, and how far is far."""

from preload_jax.guarantees.affine_piece import ray_constants, ray_slopes
from preload_jax.guarantees.bounds import ConfidenceBound, confidence_bound
from preload_jax.guarantees.limits import FarAwayLimit, far_away_limit
from preload_jax.guarantees.profiles import ConfidenceProfile, confidence_profile
from preload_jax.guarantees.radius import SafeRadius, safe_radius

__all__ = [
    "ConfidenceBound",
    "ConfidenceProfile",
    "FarAwayLimit",
    "SafeRadius",
    "confidence_bound",
    "confidence_profile",
    "far_away_limit",
    "ray_constants",
    "ray_slopes",
    "safe_radius",
]
