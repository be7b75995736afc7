"""Run before any test imports the library: check every annotated array shape, and promote nothing by accident."""

import os
import tempfile
from pathlib import Path

# Eight virtual devices, so that sharding is tested wherever the tests run; beside the flags that are already set.
DEVICES = "--xla_force_host_platform_device_count"
if DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}=8".strip()

# A program is compiled once for all processes of the tests: many train the same small networks.  The process that comes
# first makes the folder, and removes it.
CACHE = "JAX_COMPILATION_CACHE_DIR"
if CACHE not in os.environ:
    _programs = tempfile.TemporaryDirectory(prefix="preload_jax_tests_")
    os.environ[CACHE] = _programs.name

import jaxtyping  # noqa: E402

jaxtyping.install_import_hook(["preload_jax"], "beartype.beartype")

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

# JAX's own second would leave out most of what small networks compile to.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

# The same examples every time, so that a change fails only for what it changed.
# HYPOTHESIS_PROFILE=explore draws new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True)
hypothesis.settings.register_profile("explore")
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def _strict_promotion():
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(autouse=True, scope="module")
def _few_programs():
    yield
    # A compiled program holds memory maps of the process, and Linux allows 65,530 of them: all tests together pass
    # that, and the compiler then ends the process.
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()


@pytest.fixture
def unannotated():
    """As users have it: without the checks of annotated types, which only tests switch on."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
