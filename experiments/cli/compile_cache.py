"""Compiled programs, kept on disk between runs."""

import os
from pathlib import Path

import jax


def use() -> None:
    """Keeps compiled programs in JAX_COMPILATION_CACHE_DIR or the user's cache folder."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "preload_jax" / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # JAX leaves out what compiled within a second: most of a short run's programs, and of its time.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
