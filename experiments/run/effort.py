"""What a run will take, roughly and before it begins, so that nobody waits for days or lacks the memory."""

import math
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cli.display import duration
from preload_jax.training import memory
from preload_jax.training.stage import Stage

# A step is a forward pass, and a backward pass of about twice its arithmetic.
_PASSES = 3
# Convolutions and the rest of a step reach some half of the speed of a matrix product on a CPU.
_EFFICIENCY = 0.5
_LONG = 12 * 3600.0
_SIZE = 1024
# Times what its forward pass keeps that a step took of memory where it was measured, on a CPU: the least, of a
# ResNet-18, and the most, of a `conv_net`.
_LEAST, _MOST = 0.7, 3.5
# Bytes of the host that compiling and evaluating took beside that: 540 MB in all of an MLP, where 290 MB were there
# before it was trained, and 730 MB of a `conv_net` in batches of 32 + 32 images of 32×32.
_BESIDE = 2.5e8
# Steps that a measurement takes, after the call that compiles.
_MEASURED = 3
# Seconds from which it is worth saying what takes less.
_WORTH_A_WORD = 1800.0
_FOR_LESS = "fewer --epochs, a smaller --image-size or --batch-size, another --backbone, or an accelerator"


@dataclass(frozen=True)
class Effort:
    """What training will take.

    Attributes:
        images: that a step takes, outliers counted.
        steps: of all stages.
        step_seconds: of one step, by its arithmetic alone, so that a step takes longer, and a short one many times so;
            None where the device is no CPU.
        step_bytes: that a forward pass keeps for the backward pass.
        process: bytes that this process has by now: libraries, and the images that are in memory; None where they do
            not share the device's memory.
        available: bytes; None where nobody says.
        problem: what is wrong with the memory, in words; None where a step fits.
    """

    images: int
    steps: int
    step_seconds: float | None
    step_bytes: float
    process: float | None
    available: float | None
    problem: str | None

    def lines(self, resting: int) -> list[str]:
        """Memory and time in words; `resting` are the bytes of all images in host memory.

        Nothing is said of the time before it is measured: of a short step the arithmetic is the least part.
        """
        held, by, beside = float(resting), "the data set", 0.0
        if self.process is not None:
            held, by, beside = self.process, "this process has already", _BESIDE
        least, most = (held + beside + times * self.step_bytes for times in (_LEAST, _MOST))
        free = "" if self.available is None else f"; {_bytes(self.available)} are free"
        room = (
            f"memory: about {_bytes(least)} to {_bytes(most)} ({_bytes(held)} {by}, the rest for steps of"
            f" {self.images} images), and the outliers{free}"
        )
        return [
            room,
            f"time: {self.steps:,} steps; how long one takes is measured in the first ones",
            f"for less: {_FOR_LESS}",
        ]

    def warnings(self, *, several_days: float = _LONG) -> list[str]:
        """One line for memory and one for time, where either will be a trouble; time is from so many seconds on."""
        found = []
        if self.problem is not None:
            found.append(f"{self.problem}: give a smaller --batch-size, smaller images or another --backbone")
        if self.step_seconds is not None and (whole := self.step_seconds * self.steps) > several_days:
            found.append(
                f"on this machine a step takes about {self.step_seconds:.2g} s, so the {self.steps:,} steps take about"
                f" {_long(whole)}: give fewer --epochs, --max-steps or another --backbone, or use an accelerator"
            )
        return found


def expected(stages: Sequence[Stage], image_shape: tuple[int, ...]) -> Effort:
    """What the stages of a run, at least one, will take with images of a shape; nothing is compiled but a product."""
    stage = stages[-1]
    images = stage.settings.batch_size * (1 + stage.method.sees_ood)
    seconds = None
    if jax.default_backend() == "cpu" and math.isfinite(flops := _forward(stage.model, (images, *image_shape))):
        seconds = _PASSES * flops / (_EFFICIENCY * _flops_per_second())
    return Effort(
        images,
        sum(each.plan.total_steps for each in stages),
        seconds,
        memory.kept(stage.model, image_shape, images),
        peak() if jax.default_backend() == "cpu" else None,
        memory.available(),
        memory.problem(stage.model, image_shape, images),
    )


class Measured:
    """The seconds a step that a stage really takes, said once: measuring before it would compile it twice.

    Args:
        title: of the stage.
        total: its steps.
        say: is given the line.
        clock: seconds, of any origin.
    """

    def __init__(
        self, title: str, total: int, say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ):
        self._title, self._total, self._say, self._clock = title, total, say, clock
        # The first call compiles; what follows it is measured.
        self._began: tuple[float, int] | None = None
        self._said = False

    def __call__(self, done: int) -> None:
        """After each compiled call, with the steps done so far."""
        now = self._clock()
        if self._began is None:
            self._began = now, done
            return
        steps = done - self._began[1]
        if self._said or steps < _MEASURED:
            return
        self._said = True
        step = (now - self._began[0]) / steps
        left = step * (self._total - done)
        less = f"; for less: {_FOR_LESS}" if left > _WORTH_A_WORD else ""
        self._say(
            f"{self._title}: a step takes {step:.2g} s here, measured on {steps}, so the {self._total - done:,} that"
            f" are left take about {duration(left)}; at most {_bytes(peak())} of memory so far{less}"
        )


def peak() -> float:
    """The most bytes that this process has had, or an accelerator's, where the arrays are on one."""
    if jax.default_backend() != "cpu":
        return float((jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", math.nan))
    # Kilobytes, but on macOS.
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def _forward(model: Any, shape: tuple[int, ...]) -> float:
    """Floating-point operations of a forward pass."""
    images = jax.ShapeDtypeStruct(shape, jnp.float32)
    variables = jax.eval_shape(model.init, jax.random.key(0), images)
    cost = jax.jit(model.apply).lower(variables, images).cost_analysis() or {}
    return float(cost.get("flops", math.nan))


def _flops_per_second() -> float:
    """Of a matrix product, measured in a tenth of a second."""
    matrix = jnp.asarray(np.ones((_SIZE, _SIZE), np.float32))
    multiply = jax.jit(jnp.matmul)
    multiply(matrix, matrix).block_until_ready()
    start = time.perf_counter()
    multiply(matrix, matrix).block_until_ready()
    return 2.0 * _SIZE**3 / (time.perf_counter() - start)


def _long(seconds: float) -> str:
    return f"{seconds / 86400:.1f} days" if seconds >= 2 * 86400 else f"{seconds / 3600:.0f} hours"


def _bytes(size: float) -> str:
    if math.isnan(size):
        return "an unknown number of bytes"
    return f"{size / 1e9:.2g} GB" if size >= 1e9 else f"{math.ceil(size / 1e6):,} MB"
