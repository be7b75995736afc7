"""Devices and processes: sharding, compilation, batched forward passes."""
