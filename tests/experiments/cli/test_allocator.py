import json
import os
import platform
import subprocess
import sys

import pytest

# Other threads than the first get memory from arenas of their own, as XLA's do.
_COUNT = """
import json, resource, threading
from experiments.cli import allocator
kept = allocator.keep_freed_memory()
def take_and_give_back():
    for _ in range(5):
        b"x" * 30_000_000
take_and_give_back()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=take_and_give_back)
thread.start()
thread.join()
print(json.dumps([kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before]))
"""


def _run(**environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", _COUNT], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_memory_comes_back_without_page_faults():
    kept, faults = _run()
    # The environment has the last word, and what it says here changes nothing.
    left_alone, usual_faults = _run(MALLOC_CHECK_="0")
    assert (kept, left_alone) == (True, False)
    assert usual_faults > 5 * 30_000_000 // 2**16
    assert faults < usual_faults / 10
