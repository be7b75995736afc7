"""The numerical environment: what decides the numbers of a training beside its settings and data."""

import importlib.metadata
import os
from typing import Any

import jax

# Another value gives other numbers from the same seed.
_CONFIG = (
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_enable_x64",
    "jax_default_matmul_precision",
)
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
# These change rounding alone.
_VARIABLES = ("XLA_FLAGS",)


def current() -> dict[str, Any]:
    """JAX's settings that change numbers, the platform, flags of XLA, and versions; for JSON."""
    found: dict[str, Any] = {name: _plain(getattr(jax.config, name, None)) for name in _CONFIG}
    found |= {name: os.environ.get(name, "") for name in _VARIABLES}
    found["platform"] = jax.default_backend()
    found["versions"] = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return found


def differences(there: dict[str, Any], here: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What two environments differ in: (what draws or computes other numbers, what changes rounding alone).

    Each as one phrase, "NAME was A, is B".  Environments of which one lacks a name do not differ in it.
    """

    def phrases(names: Any, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        both = (name for name in names if name in old and name in new)
        return [f"{name} was {old[name]!r}, is {new[name]!r}" for name in both if old[name] != new[name]]

    rounding = phrases((*_VARIABLES, "platform"), there, here)
    versions = phrases(_PACKAGES, there.get("versions", {}), here.get("versions", {}))
    return phrases(_CONFIG, there, here), rounding + versions


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | str | None) else str(value)
