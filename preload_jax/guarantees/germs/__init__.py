"""The network read along a ray: what each output is for all large t."""

from preload_jax.guarantees.germs.rays import RayGerms, evaluate, ray_germs

__all__ = ["RayGerms", "evaluate", "ray_germs"]
