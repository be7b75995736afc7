"""What the C library does with memory that XLA gives back."""

import ctypes
import os
import sys

# Of <malloc.h>: the parameters of `mallopt`, and what they are set to.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
# -1 becomes the largest size: a WideResNet's scratch memory is more than an int can say.
_SETTINGS = {_M_ARENA_MAX: 1, _M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1}


def keep_freed_memory() -> bool:
    """Lets freed memory stay with the process, for the next call; for whole processes, early: it is for all of one.

    On a CPU, XLA asks `malloc` for the scratch memory of each compiled call: 100 MB a step of LeNet.  GNU's C library
    returns that to the kernel at once, and a tenth of the step goes to getting the same pages back, one by one and
    cleared.  One arena that never shrinks keeps them.

    Returns:
        Whether it was set: not with another C library, nor where the environment says how `malloc` shall work
        (`MALLOC_…`, `GLIBC_TUNABLES`).
    """
    said = "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ)
    if said or sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(parameter, value) for parameter, value in _SETTINGS.items())
