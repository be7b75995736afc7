"""Which of two germs is larger for all large t: the highest coefficient that differs decides.

Where rounding errors may decide a coefficient, or the remainder hides the rest, a comparison is not known.  A maximum
needs none of that: its two candidates then agree in all that is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from preload_jax.guarantees.germs import arithmetic, crossings, germ
from preload_jax.guarantees.germs.germ import EXACT, UNKNOWN, Eventually, Germ

# A name for the power that infinite coefficients belong to.
_INFINITE = 100


def sign_of_difference(a: Germ, b: Germ) -> tuple[Any, Any, Any]:
    """The sign of a − b by the kept terms; the highest power that leaves it open (−∞ where none does); a guess."""
    shape, dtype = jnp.broadcast_shapes(a.shape, b.shape), germ.dtype_of(a, b)
    crossings.note(a, b)
    order = jnp.maximum(a.order, b.order)
    sign = jnp.zeros(shape, jnp.int8)
    guess = sign
    doubt = jnp.full(shape, EXACT, jnp.float32)
    for p, first, second in _levels(a, b, dtype):
        difference = jnp.where(first == second, 0.0, first - second)
        size = jnp.abs(difference)
        pending = (sign == 0) & (doubt == EXACT)
        clear = (size > crossings.tolerance(p, a, b)) | (difference == 0)
        visible = p > order
        level = jnp.where(jnp.isnan(difference), UNKNOWN, float(p))
        here = jnp.sign(difference).astype(jnp.int8)
        sign = jnp.where(pending & clear & visible, here, sign)
        guess = jnp.where((guess == 0) & visible, here, guess)
        unclear = pending & ~clear & visible
        doubt = jnp.where(unclear, level, doubt)
    doubt = jnp.where((sign == 0) & (doubt == EXACT) & (order > EXACT), order, doubt)
    return sign, doubt, guess


def _levels(a: Germ, b: Germ, dtype: Any) -> list[tuple[int, Any, Any]]:
    """(power, coefficients of a, of b), infinite ones first."""
    both = [[x, germ.coefficient(x, 0, dtype)] for x in (a, b)]
    levels: list[tuple[int, Any, Any]] = []
    if a.wild or b.wild:
        first, second = (jnp.where(jnp.isinf(c), c, 0.0) for _, c in both)
        levels.append((_INFINITE, first, second))
    for p in germ.powers_of(a, b):
        levels.append((p, _finite(a, p, dtype), _finite(b, p, dtype)))
    return levels


def _finite(x: Germ, power: int, dtype: Any) -> Any:
    values = germ.coefficient(x, power, dtype)
    return jnp.where(jnp.isinf(values), 0.0, values) if x.wild else values


def maximum(a: Germ, b: Germ) -> Germ:
    return _extremum(a, b, lax.max, 1)


def minimum(a: Germ, b: Germ) -> Germ:
    return _extremum(a, b, lax.min, -1)


def _extremum(a: Germ, b: Germ, plain: Callable[[Any, Any], Any], wanted: int) -> Germ:
    a, b = germ.without_hidden_infinities(a, b)
    shape, floor, dtype = jnp.broadcast_shapes(a.shape, b.shape), max(a.floor, b.floor), germ.dtype_of(a, b)
    powers = [p for p in germ.powers_of(a, b) if p > floor]
    wild = a.wild or b.wild
    order = jnp.maximum(a.order, b.order)
    noise = {p: jnp.maximum(a.noise.get(p, germ.ZERO), b.noise.get(p, germ.ZERO)) for p in powers}
    first, second = ({p: jnp.broadcast_to(germ.coefficient(x, p, dtype), shape) for p in powers} for x in (a, b))
    if not wild and len(powers) == 1 and floor > EXACT:
        # The remainder hides all that another comparison could decide.
        return germ.make({p: plain(first[p], second[p]) for p in powers}, order, noise, shape=shape, floor=floor)
    sign, doubt, guess = sign_of_difference(a, b)
    prefers_first = guess * wanted >= 0
    terms = {p: jnp.where(prefers_first, first[p], second[p]) for p in powers}
    uses = [sign * wanted >= 0, sign * wanted <= 0]
    order = germ.highest_order([jnp.where(used, x.order, EXACT) for used, x in zip(uses, (a, b), strict=True)])
    # An open power is the same in both up to rounding; what is below it is not.
    lost: Any = EXACT
    for p in powers:
        lower = [q for q in powers if q < p]
        differs = jnp.zeros(shape, bool)
        for q in lower:
            differs |= first[q] != second[q]
        lost = jnp.maximum(lost, jnp.where((doubt == p) & differs, p - 1.0, EXACT))
    lost = jnp.maximum(lost, jnp.where(doubt >= UNKNOWN, UNKNOWN, EXACT))
    return germ.make(terms, jnp.maximum(order, lost), noise, shape=shape, floor=floor, wild=wild)


def compare(name: str, a: Germ, b: Germ) -> Eventually:
    """a > b and the like, for large t."""
    if a is b:
        # A value compared with itself: how code asks for NaN.
        value = jnp.full(a.shape, name in ("eq", "ge", "le"))
        return Eventually(value, jnp.ones(a.shape, bool))
    sign, doubt, _ = sign_of_difference(a, b)
    value = {
        "gt": sign > 0,
        "ge": sign >= 0,
        "lt": sign < 0,
        "le": sign <= 0,
        "eq": sign == 0,
        "ne": sign != 0,
    }[name]
    return Eventually(value, doubt == EXACT)


def sign(x: Germ) -> Germ:
    crossings.note(x, germ.of_constant(jnp.zeros(x.shape, germ.dtype_of(x))))
    found = arithmetic.leading_sign(x)
    unknown = jnp.isnan(found)
    value = Eventually(jnp.where(unknown, 0.0, found), ~unknown)
    return germ.of_constant(value)


def absolute(x: Germ) -> Germ:
    if len(x.powers) == 1 and x.floor > EXACT and not x.wild:
        return replace(x, terms={p: jnp.abs(term) for p, term in x.terms.items()})
    return maximum(x, arithmetic.negative(x))


def select(which: Any, known: Any, cases: Sequence[Germ]) -> Germ:
    """The case that an integer or truth value names, element by element."""
    cases = germ.without_hidden_infinities(*cases)
    shape, dtype = cases[0].shape, germ.dtype_of(*cases)
    floor = max(case.floor for case in cases)
    powers = [p for p in germ.powers_of(*cases) if p > floor]
    terms = {p: lax.select_n(which, *(germ.coefficient(case, p, dtype) for case in cases)) for p in powers}
    noise = {p: reduce(jnp.maximum, [case.noise.get(p, germ.ZERO) for case in cases]) for p in powers}
    index = which.astype(jnp.int32)
    orders = [jnp.where(index == i, case.order, EXACT) for i, case in enumerate(cases)]
    if known is not None:
        for p in powers:
            values = [germ.coefficient(case, p, dtype) for case in cases]
            apart = jnp.max(jnp.stack(values), axis=0) - jnp.min(jnp.stack(values), axis=0)
            # Equal up to rounding, as in where(a >= b, a, b), they leave only lower powers open.
            level = jnp.where(apart <= crossings.tolerance(p, *cases), p - 1.0, float(p))
            level = jnp.where(jnp.isnan(apart), UNKNOWN, level)
            orders.append(jnp.where(~known & (apart != 0), level, EXACT))
        # Any of them may be meant: so may its remainder.
        orders += [jnp.where(known, EXACT, case.order) for case in cases]
    order = germ.highest_order(orders)
    return germ.make(terms, order, noise, shape=shape, floor=floor, wild=any(case.wild for case in cases))


def reduce_max(x: Germ, axes: Sequence[int]) -> Germ:
    axes = tuple(axes)
    if len(x.powers) == 1 and x.floor > EXACT and not x.wild:
        shape = _without(x.shape, axes)
        return arithmetic.each(lambda term: jnp.max(term, axis=axes), x, shape=shape)
    terms, _, order = _largest(x, axes)
    noise = {p: germ.level(x.noise[p]) for p in x.noise}
    return germ.make(terms, order, noise, shape=_without(x.shape, axes), floor=x.floor, wild=x.wild)


def reduce_min(x: Germ, axes: Sequence[int]) -> Germ:
    return arithmetic.negative(reduce_max(arithmetic.negative(x), axes))


def argmax(x: Germ, axis: int, dtype: Any) -> Eventually:
    _, alive, order = _largest(x, (axis,))
    alone = jnp.sum(alive, axis=axis) == 1
    known = alone | (order == EXACT)
    return Eventually(jnp.argmax(alive, axis=axis).astype(dtype), known)


def _largest(x: Germ, axes: tuple[int, ...]) -> tuple[dict[int, Any], Any, Any]:
    """The coefficients of the maximum, the elements that may attain it, and the order of its remainder."""
    alive = jnp.ones(x.shape, bool)
    order = jnp.full(_without(x.shape, axes), EXACT, jnp.float32)
    terms = {}

    def any_(mask: Any) -> Any:
        return jnp.any(mask, axis=axes)

    for p, values, _ in _levels(x, x, germ.dtype_of(x)):
        # What an element's remainder hides may be anything: it stays in the race, and its order is the maximum's.
        visible = alive & (p > x.order)
        best = jnp.max(jnp.where(visible, values, -jnp.inf), axis=axes, keepdims=True)
        near = visible & (values >= best - crossings.tolerance(p, x))
        order = jnp.maximum(order, jnp.where(any_(near & (values != best)), p - 1.0, EXACT))
        order = jnp.where(any_(visible & jnp.isnan(values)), UNKNOWN, order)
        best = jnp.where(jnp.any(visible, axis=axes, keepdims=True), best, 0.0)
        alive = near | (alive & ~visible)
        best = jnp.squeeze(best, axes)
        if p == _INFINITE:
            infinite = jnp.where(jnp.isinf(best), best, 0.0)
        else:
            terms[p] = best
    if crossings.recording():
        lead = Germ({p: jnp.expand_dims(terms[p], axes) for p in terms}, EXACT, x.noise, x.shape)
        crossings.note(lead, x)
    if x.wild:
        terms[0] = jnp.where(infinite != 0, infinite, terms.get(0, jnp.zeros_like(infinite)))
    order = jnp.maximum(order, jnp.max(jnp.where(alive, x.order, EXACT), axis=axes, initial=EXACT))
    return terms, alive, order


def _without(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def largest_of_windows(values: Any, params: dict[str, Any]) -> Any:
    """`reduce_window_max` of plain numbers, with the parameters of any pooling."""
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    return lax.reduce_window(values, -jnp.inf, lax.max, *(params[name] for name in names))


def windows_max(x: Germ, params: dict[str, Any]) -> Germ:
    """`reduce_window_max`, one axis after the other: the maximum of maxima."""
    if len(x.powers) == 1 and x.floor > EXACT and not x.wild:
        plain = partial(largest_of_windows, params=params)
        shape = jax.eval_shape(plain, x.terms[x.powers[0]]).shape
        return arithmetic.each(plain, x, shape=shape)
    for axis, window in enumerate(params["window_dimensions"]):
        low, high = params["padding"][axis]
        stride, dilation = params["window_strides"][axis], params["window_dilation"][axis]
        if (window, low, high, stride) != (1, 0, 0, 1):
            x = _windows_along(x, axis, window, (low, high), stride, dilation)
    return x


def _windows_along(x: Germ, axis: int, window: int, padding: tuple[int, int], stride: int, dilation: int) -> Germ:
    if any(padding):
        widths = [(*padding, 0) if i == axis else (0, 0, 0) for i in range(len(x.shape))]
        dtype = germ.dtype_of(x)
        padded = {p: lax.pad(x.terms[p], dtype.type(0), widths) for p in x.terms}
        padded[0] = lax.pad(germ.coefficient(x, 0, dtype), dtype.type(-jnp.inf), widths)

        def moved(levels: Any, padding: float) -> Any:
            return germ.move(lambda found: lax.pad(found, np.asarray(padding, found.dtype), widths), levels, x.shape)

        noise = {p: moved(x.noise.get(p, germ.ZERO), 0.0) for p in padded}
        x = Germ(padded, moved(x.order, EXACT), noise, padded[0].shape, EXACT, True)
    count = (x.shape[axis] - (window - 1) * dilation - 1) // stride + 1
    result: Germ | None = None
    for start in range(0, window * dilation, dilation):
        part = arithmetic.each(partial(_strided, start=start, count=count, stride=stride, axis=axis), x)
        result = part if result is None else maximum(result, part)
    return x if result is None else result


def _strided(term: Any, *, start: int, count: int, stride: int, axis: int) -> Any:
    return lax.slice_in_dim(term, start, start + (count - 1) * stride + 1, stride, axis)


def sort(x: Germ, dimension: int) -> Germ:
    """Ascending, by the highest coefficient first."""
    powers, dtype = x.powers, germ.dtype_of(x)
    # What is infinite has no other coefficients.
    infinite = (
        jnp.where(jnp.isinf(x.terms[0]), x.terms[0], 0.0) if x.wild and 0 in x.terms else jnp.zeros(x.shape, dtype)
    )
    keys = [infinite, *(jnp.where(infinite == 0, x.terms[p], 0.0) for p in powers)]
    infinite, *sorted_terms = lax.sort(keys, dimension=dimension, num_keys=len(keys))
    terms = dict(zip(powers, sorted_terms, strict=True))
    if crossings.recording():
        ordered = Germ(terms, EXACT, x.noise, x.shape)
        count = x.shape[dimension] - 1
        lower, upper = (
            arithmetic.each(partial(_strided, start=i, count=count, stride=1, axis=dimension), ordered) for i in (0, 1)
        )
        crossings.note(lower, upper)
    order = germ.largest_along(x.order, (dimension,), x.shape, keep=True)
    equal: Any = jnp.diff(infinite, axis=dimension) == 0
    for p in powers:
        step = jnp.diff(terms[p], axis=dimension)
        allowed = germ.ZERO if crossings.recording() else germ.SAFETY * germ.level(x.noise[p])
        close = (jnp.abs(step) <= allowed) & (step != 0) & equal
        order = jnp.maximum(order, jnp.where(jnp.any(close, axis=dimension, keepdims=True), p - 1.0, EXACT))
        equal = equal & (step == 0)
    noise = {p: germ.level(x.noise[p]) for p in powers}
    if x.wild and 0 in terms:
        terms[0] = jnp.where(infinite != 0, infinite, terms[0])
    return germ.make(terms, order, noise, shape=x.shape, floor=x.floor, wild=x.wild)
