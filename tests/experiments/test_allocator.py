import json
import os
import platform
import subprocess
import sys

import pytest

_COUNT = """
import json, resource, sys
from experiments import allocator
kept = allocator.keep_freed_memory()
import jax, jax.numpy as jnp
step = jax.jit(lambda x: ((x @ x) @ x).sum())
x = jnp.zeros((1024, 1024))
for _ in range(3):
    step(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step(x).block_until_ready()
print(json.dumps([kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before]))
"""


def _run(**environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", _COUNT], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_compiled_calls_get_their_memory_back_without_page_faults():
    kept, faults = _run()
    # The environment has the last word, and what it says here changes nothing.
    left_alone, usual_faults = _run(MALLOC_CHECK_="0")
    assert (kept, left_alone) == (True, False)
    assert faults < usual_faults / 10
