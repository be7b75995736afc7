"""The network read along a ray: what each output is for all large t."""

from preload_jax.guarantees.germs.independence import require_independent_rows
from preload_jax.guarantees.germs.rays import RayGerms, coefficients, evaluate, ray_germs
from preload_jax.guarantees.germs.signs import nonnegative_outputs

__all__ = ["RayGerms", "coefficients", "evaluate", "nonnegative_outputs", "ray_germs", "require_independent_rows"]
