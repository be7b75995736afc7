"""Walks a jaxpr with intervals in place of numbers (interval bound propagation; Gowal et al., 2018; Bitterwolf et al.,
2020).

All bounds are computed in float64, and widened by what roundings can make of a result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from preload_jax.devices import programs
from preload_jax.guarantees.germs import interpreter as germs
from preload_jax.guarantees.germs.rays import enable_x64
from preload_jax.guarantees.intervals.interval import Interval, Truth
from preload_jax.guarantees.intervals.rules import EXACT, RULES


@dataclass(frozen=True)
class Context(germs.Context):
    """What rules need beside their operands.

    Attributes:
        rounding: whether a result is rounded to its own type; else to float64, in which bounds are computed.
    """

    rounding: bool = True

    def type(self, eqn: Any) -> Any:
        """The type to which a result is rounded."""
        return eqn.outvars[0].aval.dtype if self.rounding else np.float64


def output_bounds(
    function: Callable[[Any, Any], Any],
    variables: Any,
    low: np.ndarray,
    high: np.ndarray,
    *,
    batch_size: int = 128,
    rounding: bool = True,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Bounds on every output of function(variables, images) over the boxes low ≤ images ≤ high.

    Each operation has a rule that gives bounds on its result from bounds on its operands alone.  So the bounds hold,
    and get wider from layer to layer; at low = high they are as wide as rounding.

    Args:
        function: of variables and a batch in float32; each row's outputs depend on that row alone.
        variables: exact, as they are stored.
        low, high: [n, …].
        batch_size: boxes computed at once.
        rounding: whether bounds hold for what the network computes in its own type, in whatever order it adds up.
            Without, for exact arithmetic: the worst case of rounding grows from layer to layer as boxes do.

    Returns:
        (lowest, highest) of each output, in the order of `jax.tree.leaves`, float64.

    Raises:
        UserError: for an operation without a rule, named.

    Example:
        >>> import numpy as np
        >>> from preload_jax.guarantees import intervals
        >>> low, high = np.array([[0.0, 1.0]]), np.array([[1.0, 2.0]])
        >>> ((least, most),) = intervals.output_bounds(lambda w, x: x @ w, np.array([[1.0], [-2.0]]), low, high)
        >>> least.round(4).tolist(), most.round(4).tolist()
        ([[-4.0]], [[-1.0]])
    """
    leaves, tree = jax.tree.flatten(variables)
    size = min(batch_size, len(low))
    shape = (size, *low.shape[1:])
    variables32 = jax.tree.unflatten(tree, [jnp.asarray(leaf) for leaf in leaves])
    closed = programs.traced(function, variables32, jax.ShapeDtypeStruct(shape, np.float32))

    def bounds(leaves: Any, low: Any, high: Any) -> Any:
        ctx = Context(jnp.float64, rounding=rounding)
        found = germs.walk(ctx, closed, [*leaves, Interval(low, high)], apply=_apply)
        return [(x.low, x.high) if isinstance(x, Interval) else (x, x) for x in found]

    parts = []
    with enable_x64(True):
        run = jax.jit(bounds)
        given = [jnp.asarray(np.asarray(leaf, _wide(leaf))) for leaf in leaves]
        for first in range(0, len(low), size):
            rows = np.minimum(np.arange(first, first + size), len(low) - 1)
            found = run(given, jnp.asarray(low[rows], jnp.float64), jnp.asarray(high[rows], jnp.float64))
            keep = min(size, len(low) - first)
            parts.append(
                [
                    tuple(np.broadcast_to(np.asarray(end), (size, *end.shape[1:]))[:keep] for end in pair)
                    for pair in found
                ]
            )
    return [tuple(np.concatenate([part[i][end] for part in parts]) for end in (0, 1)) for i in range(len(parts[0]))]  # type: ignore[misc]


def _wide(leaf: Any) -> Any:
    return np.float64 if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else None


def _apply(ctx: Context, eqn: Any, args: list[Any]) -> list[Any]:
    name = eqn.primitive.name
    if name in germs.CALLS:
        return germs.call(ctx, eqn, args, apply=_apply)
    if name == "cond" and eqn.params.get("branches_platforms"):
        # The form for any platform; the others differ from it by rounding.
        return germs.walk(ctx, eqn.params["branches"][-1], args[1:], apply=_apply)
    if name == "platform_index":
        return [np.int32(0)]
    if not any(isinstance(arg, Interval | Truth) for arg in args):
        rounds = name in RULES and name not in EXACT
        if not rounds or not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating):
            return germs.constant(ctx, eqn, args)
        # What the network makes of its parameters in its own type is rounded, too; so is a whole number that is cast.
        cast = name == "convert_element_type"
        args = [_point(arg) if cast or _is_float(arg) else arg for arg in args]
    if name not in RULES:
        raise ctx.refuse(eqn, "there is no rule for this primitive on a box, so nothing is known of its result")
    return RULES[name](ctx, eqn, args)


def _point(value: Any) -> Interval:
    return Interval(*[value if _is_float(value) else jnp.asarray(value, jnp.float64)] * 2)


def _is_float(value: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(value), jnp.floating)
