"""The numbers that only some methods have, and what each may be.  A row of `methods` has its own, and usual values."""

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from preload_jax.errors import UserError
from preload_jax.integers import as_float, shown


@dataclass(frozen=True)
class Range:
    """What a number may be: finite and within the bounds, of which `above` and `below` are excluded."""

    at_least: float = -math.inf
    above: float = -math.inf
    below: float = math.inf
    whole: bool = False

    @property
    def words(self) -> str:
        """Such as "finite and at least 0 and below 1"."""
        bounds = (("at least", self.at_least), ("above", self.above), ("below", self.below))
        said = [f"{words} {bound:g}" for words, bound in bounds if math.isfinite(bound)]
        return " and ".join(["an integer" if self.whole else "finite", *said])

    def holds(self, value: Any) -> bool:
        """Whether a value is such a number; truth values are none."""
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return False
        number = as_float(value)
        return math.isfinite(number) and self.at_least <= number < self.below and number > self.above


RANGES: dict[str, Range] = {
    "label_smoothing": Range(at_least=0.0, below=1.0),
    "mixup_alpha": Range(above=0.0),
    "focal_gamma": Range(at_least=0.0),
    "mmce_weight": Range(at_least=0.0),
    "adversarial_epsilon": Range(at_least=0.0),
    "adversarial_steps": Range(at_least=1.0, whole=True),
    "density_learning_rate": Range(at_least=0.0),
    # Within it float32 holds σ.
    "spline_variance": Range(at_least=1e-20, below=1e20),
}


def check(name: str, value: Any, *, spelled: str = "") -> float | int:
    """A method's own number as a float, or an int where it is a count; `spelled` is what the user calls it.

    Raises:
        UserError: unless it makes sense.
    """
    allowed = RANGES[name]
    if not allowed.holds(value):
        raise UserError(f"{spelled or name} must be {allowed.words}, got {shown(value)}")
    return int(value) if allowed.whole else float(value)
