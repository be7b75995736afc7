"""Files: networks in safetensors, exported programs, torch's files, checkpoints, writing whole or not at all."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preload_jax.formats.program import Program, load_program
    from preload_jax.formats.program_writer import save_program

# Where each is; `load_program` is for machines without the libraries that networks are made of.
_PLACES = {"Program": "program", "load_program": "program", "save_program": "program_writer"}

__all__ = ["Program", "load_program", "save_program"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"preload_jax.formats.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'preload_jax.formats' has no attribute {name!r}")
