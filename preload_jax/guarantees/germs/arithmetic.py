"""Sums, products and powers of germs, and operations that act on each coefficient alike."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from preload_jax.guarantees.germs import crossings, germ
from preload_jax.guarantees.germs.germ import EXACT, LOWEST, UNKNOWN, Germ

# Of a normalised value these powers are kept, 0 and below: its remainder hides the rest nearly always.
_LOWEST_BOUNDED = -1


def negative(x: Germ) -> Germ:
    return Germ({p: -term for p, term in x.terms.items()}, x.order, x.noise, x.shape, x.floor, x.wild)


def each(function: Callable[[Any], Any], x: Germ, *, shape: tuple[int, ...] | None = None) -> Germ:
    """A function that moves elements, of each coefficient."""
    terms = {power: function(term) for power, term in x.terms.items()}
    shape = next((term.shape for term in terms.values()), x.shape) if shape is None else shape
    noise = {p: germ.move(function, x.noise[p], x.shape) for p in terms}
    return Germ(terms, germ.move(function, x.order, x.shape), noise, shape, x.floor, x.wild, x.divisor)


def summing(
    function: Callable[[Any], Any],
    x: Germ,
    *,
    gain: Any,
    shape: tuple[int, ...],
    largest: Callable[[Any], Any],
) -> Germ:
    """A linear function that adds up elements, and so rounds relative to the largest of them.

    `largest` is, of numbers one an element [x.shape], the largest that each sum holds.
    """
    epsilon = jnp.finfo(germ.dtype_of(x)).eps if x.terms else 0.0
    terms = {power: function(term) for power, term in x.terms.items()}
    order = germ.move(largest, x.order, x.shape)
    if x.wild and 0 in terms:  # ∞ − ∞, 0 · ∞
        order = jnp.where(jnp.isnan(terms[0]), UNKNOWN, order)

    def of_sums(levels: Any) -> Any:
        return germ.move(largest, levels, x.shape)

    noise = {p: gain * (of_sums(x.errors(p)) + epsilon * of_sums(germ.sizes(x.known(p)))) for p in terms}
    return Germ(terms, order, noise, shape, x.floor, x.wild)


def add(a: Germ, b: Germ) -> Germ:
    a, b = germ.without_hidden_infinities(a, b)
    shape = jnp.broadcast_shapes(a.shape, b.shape)
    terms, floor = {}, max(a.floor, b.floor)
    for p in germ.powers_of(a, b):
        if p > floor:
            found = [x.terms[p] for x in (a, b) if p in x.terms]
            terms[p] = found[0] + found[1] if len(found) == 2 else jnp.broadcast_to(found[0], shape)
    noise = {p: sum(x.noise[p] for x in (a, b) if p in x.noise) for p in terms}
    return germ.make(terms, jnp.maximum(a.order, b.order), noise, shape=shape, floor=floor, wild=a.wild or b.wild)


def times_constant(x: Germ, constant: Any) -> Germ:
    return _scaled(x, constant, jnp.multiply)


def divided_by_constant(x: Germ, constant: Any) -> Germ:
    return _scaled(x, constant, jnp.divide)


def _scaled(x: Germ, constant: Any, operation: Callable[[Any, Any], Any]) -> Germ:
    shape = jnp.broadcast_shapes(x.shape, jnp.shape(constant))
    terms = {p: operation(term, constant) for p, term in x.terms.items()}
    order = x.order
    for p, term in terms.items():
        # 0 · ∞ and a division by 0; and what is too small for the type, which is no 0.
        lost = (jnp.isnan(term) if x.wild else ~jnp.isfinite(term)) | (
            (term == 0) & (x.terms[p] != 0) & (constant != 0)
        )
        order = jnp.where(lost & (p > order), UNKNOWN, order)
    factor = operation(jnp.ones((), germ.dtype_of(x)), constant) if x.terms else 1.0
    scalar = germ.largest(jnp.asarray(factor))
    noise = {p: x.noise[p] * (jnp.abs(factor) if jnp.shape(x.noise[p]) else scalar) for p in terms}
    return Germ(terms, order, noise, shape, x.floor, x.wild, x.divisor)


def product(
    a: Germ,
    b: Germ,
    combine: Callable[[Any, Any], Any],
    *,
    shape: tuple[int, ...],
    gain: float | None = None,
    largest: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None,
) -> Germ:
    """Σ c_p d_q t^(p+q) for a bilinear operation.

    Of one that adds up products `gain` is the root of how many, and `largest` is, of numbers one an element of either
    operand, the largest that each sum holds.
    """
    dtype = germ.dtype_of(a, b)
    floor = a.floor + b.floor if min(a.floor, b.floor) > EXACT else EXACT
    of_a, of_b = (
        (lambda levels: levels, lambda levels: levels)
        if largest is None
        else (partial(germ.move, function, shape=x.shape) for function, x in zip(largest, (a, b), strict=True))
    )
    # The largest top beside the largest order, though they may belong to different products: never too small.
    order = germ.highest_order(
        [_order_of_product(of_a(germ.top(a)), of_b(b.order)), _order_of_product(of_a(a.order), of_b(germ.top(b)))]
    )
    epsilon = jnp.finfo(dtype).eps
    terms: dict[int, Any] = {}
    noise: dict[int, Any] = {}
    same = a is b
    bounded = gain is None and (a.divisor or b.divisor)
    for p in a.powers:
        for q in b.powers:
            if same and q > p:
                continue
            if bounded and p + q > 0:
                excess = (a.known(p) != 0) & (b.known(q) != 0)
                order = jnp.maximum(order, jnp.where(excess, UNKNOWN, EXACT))
            elif bounded and p + q < _LOWEST_BOUNDED:
                there = (a.terms[p] != 0) & (b.terms[q] != 0)
                order = jnp.maximum(order, jnp.where(there, float(p + q), EXACT))
            elif p + q > floor:
                twice = 2.0 if same and q < p else 1.0
                new = combine(a.terms[p], b.terms[q])
                if gain is None:
                    small = (new == 0) & (a.known(p) != 0) & (b.known(q) != 0)
                    order = jnp.maximum(order, jnp.where(small, UNKNOWN, EXACT))  # too small for the type
                new = twice * new if twice > 1.0 else new
                terms[p + q] = terms[p + q] + new if p + q in terms else new
                first, second = (of(germ.sizes(x.known(r))) for of, x, r in ((of_a, a, p), (of_b, b, q)))
                level = of_a(a.errors(p)) * second + first * of_b(b.errors(q)) + epsilon * first * second
                noise[p + q] = noise.get(p + q, germ.ZERO) + level * (gain or 1.0) * twice
    return germ.make(terms, order, noise, shape=shape, floor=floor, wild=a.wild or b.wild)


def _order_of_product(top: Any, order: Any) -> Any:
    """The order of a product of two values."""
    # A value that is exactly 0 times anything is exactly 0: -inf, where +inf never occurs.
    return jnp.maximum(jnp.minimum(top + order, UNKNOWN), EXACT)


def multiply(a: Germ, b: Germ) -> Germ:
    if not a.wild and not b.wild:
        return product(a, b, jnp.multiply, shape=jnp.broadcast_shapes(a.shape, b.shape))
    # An infinite coefficient would meet zeros and spread NaN over other powers: what is infinite is put in at the end.
    shape = jnp.broadcast_shapes(a.shape, b.shape)
    result = product(_without_infinities(a), _without_infinities(b), jnp.multiply, shape=shape)
    infinite = [jnp.isinf(germ.coefficient(x, 0, germ.dtype_of(x))) for x in (a, b)]
    sign = leading_sign(a) * leading_sign(b)
    dtype = germ.dtype_of(result)
    value = jnp.where(sign == 0, jnp.nan, sign * jnp.inf).astype(dtype)
    # 0 · ∞ is taken as 0 where the 0 fades: nothing grows faster than what is exponentially small falls.
    terms = dict(result.terms)
    terms[0] = jnp.where(infinite[0] | infinite[1], value, germ.coefficient(result, 0, dtype))
    return germ.make(terms, result.order, result.noise, shape=result.shape, wild=True)


def _without_infinities(x: Germ) -> Germ:
    terms = {p: jnp.where(jnp.isinf(term), 0.0, term) for p, term in x.terms.items()}
    return Germ(terms, x.order, x.noise, x.shape, x.floor)


def leading_sign(x: Germ) -> Any:
    """Of the highest coefficient that is not 0; NaN where rounding errors or the remainder may decide it."""
    sign = jnp.zeros(x.shape, germ.dtype_of(x))
    if x.wild and 0 in x.terms:
        sign = jnp.where(jnp.isinf(x.terms[0]), jnp.sign(x.terms[0]), sign)
    for p in x.powers:
        term = x.known(p)
        here = jnp.where((jnp.abs(term) <= crossings.tolerance(p, x)) & (term != 0), jnp.nan, jnp.sign(term))
        sign = jnp.where(sign == 0, jnp.where(p > x.order, here, jnp.nan), sign)
    return jnp.where((sign == 0) & (x.order > EXACT), jnp.nan, sign)


def integer_power(x: Germ, exponent: int) -> Germ:
    if exponent < 1:
        return power(x, exponent) if exponent else germ.of_constant(jnp.ones(x.shape, germ.dtype_of(x)))
    half = integer_power(x, exponent // 2) if exponent > 1 else None
    square = x if half is None else multiply(half, half)
    return multiply(square, x) if exponent > 1 and exponent % 2 else square


def power(x: Germ, exponent: Any, *, lowest: int = LOWEST) -> Germ:
    """x^y = (c_p t^p)^y (1 + δ)^y for the leading power p of each element; NaN where p·y is not an integer.

    (1 + δ)^y is the binomial series, by the recurrence for powers of series.  Elements whose leading power is below
    `lowest` are left unknown.
    """
    dtype = germ.dtype_of(x)
    shape, order = x.shape, jnp.asarray(EXACT, jnp.float32)
    pending = jnp.ones(shape, bool)
    terms: dict[int, Any] = {}
    noise: dict[int, Any] = {}
    if x.wild and 0 in x.terms:
        infinite = jnp.isinf(x.terms[0])
        outcome = jnp.where(x.terms[0] > 0, 0.0 if exponent < 0 else jnp.inf, jnp.nan if exponent > 0 else 0.0)
        terms[0] = jnp.where(infinite, outcome, 0.0).astype(dtype)
        pending &= ~infinite
    for p in (p for p in x.powers if p >= lowest):
        lead = x.known(p)
        here = pending & (lead != 0)
        unclear = here & (jnp.abs(lead) <= germ.tolerance(p, x))
        start = p * exponent
        if not float(start).is_integer():
            terms[0] = jnp.where(here, jnp.nan, terms.get(0, jnp.zeros(shape, dtype)))
            pending &= ~here
            continue
        safe = jnp.where(here, lead, 1.0)
        count = max(int(start) - LOWEST, 0)
        series, cut = _binomial(x, p, safe, exponent, count)
        for k, factor in enumerate(series):
            value = jnp.where(here, safe**exponent * factor, 0.0)
            target = int(start) - k
            # Lower coefficients have no part in this one.
            errors = sum((x.noise[q] for q in x.powers if p - k <= q <= p), germ.ZERO)
            relative = max(1.0, abs(exponent)) * errors / jnp.abs(safe)
            noise[target] = noise.get(target, germ.ZERO) + jnp.abs(value) * jnp.finfo(dtype).eps
            noise[target] += jnp.where(here, jnp.abs(safe**exponent) * (jnp.abs(factor) + 1.0) * relative, 0.0)
            terms[target] = terms[target] + value if target in terms else value
        remainder = germ.highest_order([x.order - p, jnp.where(here & cut, -(count + 1.0), EXACT)])
        order = jnp.maximum(order, jnp.where(here, start + remainder, EXACT))
        order = jnp.where(unclear, UNKNOWN, order)
        pending &= ~here
    # Where no term is left: 0 exactly, or nothing but the remainder.
    if exponent < 0:
        terms[0] = jnp.where(pending, jnp.nan, terms[0] if 0 in terms else jnp.zeros(shape, dtype))
    else:
        hidden = jnp.where(x.order >= UNKNOWN, UNKNOWN, x.order * exponent)
        order = jnp.maximum(order, jnp.where(pending, hidden, EXACT))
    return germ.make(terms, order, noise, shape=shape, wild=x.wild)


def _binomial(x: Germ, p: int, lead: Any, exponent: Any, count: int) -> tuple[list[Any], Any]:
    """Coefficients of t^-k in (1 + δ)^y for k ≤ count, and where the series does not end there."""
    ratios = {p - q: x.known(q) / lead for q in x.powers if q < p}
    one = jnp.ones(x.shape, lead.dtype)
    series: list[Any] = [one]
    for k in range(1, count + 1):
        parts = [(j * (exponent + 1) - k) / k * r * series[k - j] for j, r in ratios.items() if j <= k]
        if not parts and not any(j <= k for j in ratios):
            series.append(jnp.zeros(x.shape, lead.dtype))
        else:
            series.append(sum(parts[1:], parts[0]))
    while len(series) > 1 and not any(j < len(series) for j in ratios):
        series.pop()
    cut = jnp.zeros(x.shape, bool)
    for ratio in ratios.values():
        cut |= ratio != 0
    return series, cut
