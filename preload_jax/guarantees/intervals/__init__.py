"""The network read on a box of inputs: bounds on every output (interval bound propagation)."""

from preload_jax.guarantees.intervals.interpreter import output_bounds

__all__ = ["output_bounds"]
