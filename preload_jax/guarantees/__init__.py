"""What can be proved about a trained network's confidence: its limits far away, its largest value, and safe radii."""

from preload_jax.guarantees.affine_piece import ray_constants, ray_slopes
from preload_jax.guarantees.ball import BallCertificate, ball_certificate
from preload_jax.guarantees.behaviour import EmbeddingBehaviour, embedding_behaviour, nonnegative_embeddings
from preload_jax.guarantees.bounds import ConfidenceBound, confidence_bound
from preload_jax.guarantees.by_head import program_certificate
from preload_jax.guarantees.density_radius import DensityRadius, density_ball, density_radius
from preload_jax.guarantees.detector_limits import detector_limits
from preload_jax.guarantees.input_radius import InputRadius, input_radius
from preload_jax.guarantees.limits import FarAwayLimit, far_away_limit
from preload_jax.guarantees.mixtures import laplace_bound
from preload_jax.guarantees.profiles import ConfidenceProfile, confidence_profile
from preload_jax.guarantees.radius import SafeRadius, safe_radius
from preload_jax.guarantees.ray_certificate import RayCertificate, ray_certificate

__all__ = [
    "BallCertificate",
    "ConfidenceBound",
    "ConfidenceProfile",
    "DensityRadius",
    "EmbeddingBehaviour",
    "FarAwayLimit",
    "InputRadius",
    "RayCertificate",
    "SafeRadius",
    "ball_certificate",
    "confidence_bound",
    "confidence_profile",
    "density_ball",
    "density_radius",
    "detector_limits",
    "embedding_behaviour",
    "far_away_limit",
    "input_radius",
    "laplace_bound",
    "nonnegative_embeddings",
    "program_certificate",
    "ray_certificate",
    "ray_constants",
    "ray_slopes",
    "safe_radius",
]
