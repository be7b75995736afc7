"""How a stage of training is cut into compiled calls."""

import math
from dataclasses import dataclass

from preload_jax.errors import UserError
from preload_jax.integers import keep, require_integer


@dataclass(frozen=True)
class Plan:
    """How a stage of `epochs` epochs is cut into compiled calls.

    An epoch has ⌊num_images / batch_size⌋ steps (the rest is left out, another rest each epoch) and is divided into
    calls of at most `max_steps_per_call` steps: the whole epoch where that allows it.  No call crosses the end of the
    first `warmup_steps`, in which a method with a step of its own (DOE) takes the plain one.  The cut depends on
    nothing but these numbers, so that a resumed run repeats the same compiled calls.
    """

    num_images: int
    batch_size: int
    epochs: int
    max_steps_per_call: int = 10_000
    max_steps: int | None = None
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        keep(self, "num_images", require_integer("num_images", self.num_images, at_least=0))
        for name in ("batch_size", "epochs", "max_steps_per_call", "max_steps"):
            if getattr(self, name) is not None:
                keep(self, name, require_integer(name, getattr(self, name), at_least=1))
        keep(self, "warmup_steps", require_integer("warmup_steps", self.warmup_steps, at_least=0))
        if self.batch_size > self.num_images:
            raise UserError(
                f"batch_size {self.batch_size} is larger than the data ({self.num_images} training images);"
                " give a smaller batch_size"
            )

    @property
    def steps_per_epoch(self) -> int:
        return self.num_images // self.batch_size

    @property
    def total_steps(self) -> int:
        total = self.steps_per_epoch * self.epochs
        return total if self.max_steps is None else min(total, self.max_steps)

    def steps_from(self, step: int) -> int:
        """How many steps the call that starts at `step` takes; 0 at the end."""
        into_epoch = step % self.steps_per_epoch
        length = self._call_length()
        ends = [self.total_steps, self.warmup_steps] if step < self.warmup_steps else [self.total_steps]
        return min(length - into_epoch % length, self.steps_per_epoch - into_epoch, min(ends) - step)

    def _call_length(self) -> int:
        calls = math.ceil(self.steps_per_epoch / self.max_steps_per_call)
        # A division into equal calls compiles once; look for one that is not much finer.
        even = (n for n in range(calls, 2 * calls) if self.steps_per_epoch % n == 0)
        return math.ceil(self.steps_per_epoch / next(even, calls))
