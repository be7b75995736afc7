"""Run before any test imports the library: check every annotated array shape, and promote nothing by accident."""

import os

# Eight virtual devices, so that sharding is tested wherever the tests run.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jaxtyping

jaxtyping.install_import_hook(["preload_jax"], "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(autouse=True)
def _strict_promotion():
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("standard"):
        yield
