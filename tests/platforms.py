"""What another platform would run, run here: functions that have a form for each platform take that platform's."""

from contextlib import contextmanager

import pytest
from jax import lax


@contextmanager
def as_on(platform):
    """JAX chooses the form by the device that it compiles for; here it is chosen by name.

    Jit a new function inside, not one that was compiled before.
    """

    def choose(*arguments, default=None, **forms):
        return forms.get(platform, default)(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lax, "platform_dependent", choose)
        yield
