"""Means and standard errors, and when two of them differ or are equally good."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Numbers that differ by less are the same: sums of floats in another order.
_TINY = 1e-9

# (Data set, method) that are bold in the paper's Table 2, beside the best one's bar of 4.3 ± 1.6: 8.4 ± 2.4 misses it
# by 0.1 and 8.4 ± 2.5 touches it.  No rule on printed numbers has them: PreLoad's 6.6 ± 2.0 misses NC's 3.3 ± 1.2 by
# 0.1, too, and is not bold.
PAPERS_EXCEPTIONS = {("mnist", "energy_ft"), ("mnist", "preload_ft")}


@dataclass(frozen=True)
class Estimate:
    """A mean of `count` values and its standard error; None where it is unknown, as it is of a single value."""

    mean: float
    error: float | None = None
    count: int = 1


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error, s / √n with s² = Σ (x − x̄)² / (n − 1)."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return Estimate(mean, math.sqrt(variance / n), n)


def pool(estimates: Sequence[Estimate]) -> Estimate:
    """The estimate over all values of several groups, from each group's own.

    Within a group Σ (x − m_j)² = n_j (n_j − 1) e_j², to which n_j (m_j − m)² is added for the mean over all.
    """
    n = sum(group.count for group in estimates)
    mean = math.fsum(group.count * group.mean for group in estimates) / n
    squares = math.fsum(
        group.count * (group.count - 1) * (group.error or 0.0) ** 2 + group.count * (group.mean - mean) ** 2
        for group in estimates
    )
    return Estimate(mean, math.sqrt(squares / (n - 1) / n) if n > 1 else None, n)


def best(estimates: Mapping[str, Estimate], *, lower_is_better: bool, rounding: float = _TINY) -> set[str]:
    """The names of the best mean, of all within `rounding` of it, and of all whose error bars overlap its own.

    Bars that only touch do not overlap: 20 ± 20 is not as good as 0 ± 0, and the paper does not say it is.  Of the 45
    numbers of the paper's Table 2, as printed, this gives the paper's bold for all but two, `PAPERS_EXCEPTIONS`.
    """
    if not estimates:
        return set()
    sign = 1.0 if lower_is_better else -1.0
    top = min(estimates.values(), key=lambda e: (sign * e.mean, e.error or 0.0))
    reach = sign * top.mean + (top.error or 0.0)
    return {
        name
        for name, e in estimates.items()
        if abs(e.mean - top.mean) <= rounding or sign * e.mean - (e.error or 0.0) < reach - _TINY
    }


def differs(ours: Estimate, paper: Estimate, *, rounding: float = 0.0) -> bool | None:
    """Whether two means differ by more than √(e₁² + e₂²) and the rounding of a printed number.

    None where ours is of one value: it has no error, so nothing can be said.  An error of the paper's that it does not
    print counts as 0.
    """
    if ours.error is None:
        return None
    return abs(ours.mean - paper.mean) > math.hypot(ours.error, paper.error or 0.0) + rounding + _TINY
