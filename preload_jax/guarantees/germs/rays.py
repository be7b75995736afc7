"""Germs of any function of images along rays x(t) = origin + t·direction."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.devices import programs
from preload_jax.errors import UserError
from preload_jax.guarantees.germs import germ, interpreter
from preload_jax.guarantees.germs.germ import Eventually, Germ
from preload_jax.guarantees.germs.independence import require_independent_rows

# JAX 0.6 has it elsewhere.
enable_x64: Any = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64  # type: ignore[attr-defined]


def _has_x64() -> bool:
    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)


@dataclass(frozen=True)
class RayGerms:
    """One output of a function along n rays: Σ_p terms[p] t^p + O(t^order) for all large t.

    Attributes:
        terms: by power, [n, ...] in float64.
        order: of the remainder; −∞ where there is none.  Coefficients of powers up to it mean nothing.
        noise: by power the level of rounding errors in its coefficients, [n].

    Example: see `ray_germs`.
    """

    terms: dict[int, Float[np.ndarray, "n ..."]]
    order: Float[np.ndarray, "n"]
    noise: dict[int, Float[np.ndarray, "n"]]

    def at(self, t: float) -> Float[np.ndarray, "n ..."]:
        """The kept terms' sum."""
        return np.sum([term * float(t) ** power for power, term in self.terms.items()], axis=0)

    def coefficient(self, power: int) -> Float[np.ndarray, "n ..."]:
        """Of one power, zeros where it is not there."""
        return self.terms.get(power, np.zeros_like(next(iter(self.terms.values()))))

    def rows(self, index: Any) -> "RayGerms":
        """Of some of the rays."""
        return RayGerms(
            {p: term[index] for p, term in self.terms.items()},
            self.order[index],
            {p: level[index] for p, level in self.noise.items()},
        )


def ray_germs(
    function: Callable[[Any], Any],
    directions: Float[np.ndarray, "n ..."],
    *,
    origins: Float[np.ndarray, "n ..."] | None = None,
    batch_size: int = 256,
) -> list[RayGerms]:
    """What the outputs of a function are for all large t, read from its jaxpr in float64.

    Affine operations act on each coefficient; maxima and comparisons are decided by the highest coefficients that
    differ; bounded functions have their limit; quotients and roots are Laurent series.  Casts are read as exact.

    Args:
        function: of a batch of inputs in float32, in any framework: f(images [n, ...]) → one array or several, each
            with the batch first.
        directions: u.
        origins: u₀, 0 when None.
        batch_size: rays computed at once.

    Returns:
        One entry an output, in the order of `jax.tree.leaves`.

    Raises:
        UserError: for an operation without a rule, naming it and the line of the user's code; for rows that depend on
            one another; for a value that outgrows what is kept.

    Example:
        >>> import jax, numpy as np
        >>> from preload_jax.guarantees import germs
        >>> (found,) = germs.ray_germs(lambda x: jax.nn.silu(x + 1), np.array([[2.0], [-2.0]]))
        >>> found.terms[1].tolist(), found.terms[0].tolist()  # 2t + 1, and 0
        ([[2.0], [-0.0]], [[1.0], [0.0]])
    """
    require_independent_rows(function, np.shape(directions)[1:])
    call = partial(_apply, function)
    return evaluate(call, None, np.asarray(directions), origins=origins, batch_size=batch_size)


def _apply(function: Callable[[Any], Any], variables: None, images: Any) -> Any:
    return function(images)


def coefficients(
    function: Callable[[Any, Any], Any],
    variables: Any,
    directions: Float[Array, "n ..."],
    origins: Float[Array, "n ..."] | None,
    *,
    power: int,
    leading: bool,
) -> Float[Array, "n ..."]:
    """The first output's coefficients of one power, in float32; may be traced."""
    u = jnp.asarray(directions, jnp.float32)
    u0 = None if origins is None else jnp.asarray(origins, jnp.float32)
    now = programs.digest(function, *_shapes(variables, u))
    outputs, _ = _germs_of_rays(function, now, leading, True, _has_x64(), variables, u, u0)
    terms, _, _ = outputs[0]
    return terms[power] if power in terms else jnp.zeros_like(next(iter(terms.values())))


def evaluate(
    function: Callable[[Any, Any], Any],
    variables: Any,
    directions: np.ndarray,
    *,
    origins: np.ndarray | None = None,
    batch_size: int = 256,
    leading: bool = False,
) -> list[RayGerms]:
    """`ray_germs` of function(variables, images); with `leading` in float32, without what stays constant.

    What is divided by a norm is first taken to be bounded; rays along which it is not are computed again.

    The function is hashable, so that it is compiled once for equal functions that compute the same, and shapes.
    """
    found, notes = _in_chunks(function, variables, directions, origins, batch_size, leading=leading, normalised=True)
    if notes.pop(interpreter.NORMALISED, None) is not None and not leading:
        again = np.flatnonzero(np.any([output.order >= 0 for output in found], axis=0))
        if len(again):
            chosen = None if origins is None else origins[again]
            full, more = _in_chunks(
                function, variables, directions[again], chosen, batch_size, leading=False, normalised=False
            )
            found = [_with_rows(output, again, rows) for output, rows in zip(found, full, strict=True)]
            for message, flags in more.items():
                notes.setdefault(message, np.zeros(len(directions), bool))[again] = flags
    for message, flags in notes.items():
        hit = flags & ~np.all([_finite(output) for output in found], axis=0)
        if hit.any():
            raise UserError(
                f"{message} along {int(hit.sum())} of {len(hit)} rays, first along ray {int(np.argmax(hit))}"
            )
    return found


def _in_chunks(
    function: Callable[[Any, Any], Any],
    variables: Any,
    directions: np.ndarray,
    origins: np.ndarray | None,
    batch_size: int,
    *,
    leading: bool,
    normalised: bool,
) -> tuple[list[RayGerms], dict[str, np.ndarray]]:
    n = len(directions)
    dtype = np.float32 if leading else np.float64
    outer_x64 = _has_x64()
    parts, notes = [], []
    # Germs of float64 meet a network's float32; a strict setting of the user's is about the network, not about this.
    with enable_x64(not leading), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        with enable_x64(outer_x64):
            now = programs.digest(function, *_shapes(variables, directions))
        static = (function, now, leading, normalised, outer_x64)
        for first in range(0, n, batch_size):
            rows = np.minimum(np.arange(first, first + min(batch_size, n)), n - 1)
            u0 = None if origins is None else np.asarray(origins, dtype)[rows]
            outputs, flags = _germs_of_rays(*static, variables, np.asarray(directions, dtype)[rows], u0)
            parts.append(jax.tree.map(np.asarray, outputs))
            notes.append({message: np.asarray(flag) for message, flag in flags.items()})
    found = [_joined([part[i] for part in parts], n) for i in range(len(parts[0]))]
    return found, {message: np.concatenate([note[message] for note in notes])[:n] for message in notes[0]}


def _with_rows(output: RayGerms, rows: np.ndarray, by: RayGerms) -> RayGerms:
    """With some rays' germs replaced."""

    def replaced(old: dict[int, np.ndarray], new: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        like = next(iter({**old, **new}.values()))
        result = {}
        for power in sorted({*old, *new}):
            result[power] = np.zeros((len(output.order), *like.shape[1:]))
            if power in old:
                result[power][:] = old[power]
            result[power][rows] = new.get(power, 0.0)
        return result

    order = output.order.copy()
    order[rows] = by.order
    return RayGerms(replaced(output.terms, by.terms), order, replaced(output.noise, by.noise))


def _finite(output: RayGerms) -> np.ndarray:
    return np.all([np.isfinite(term).reshape(len(term), -1).all(axis=1) for term in output.terms.values()], axis=0)


def _joined(parts: list[tuple[Any, Any, Any]], n: int) -> RayGerms:
    def join(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays)[:n].astype(np.float64)

    terms, _, noise = parts[0]
    return RayGerms(
        {p: join([part[0][p] for part in parts]) for p in terms},
        join([part[1] for part in parts]),
        {p: join([part[2][p] for part in parts]) for p in noise},
    )


def _shapes(variables: Any, directions: Any) -> tuple[Any, Any]:
    """What a network is traced with: its variables, and one input."""
    structures = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), variables)
    return structures, jax.ShapeDtypeStruct((1, *directions.shape[1:]), jnp.float32)


# `now`, the digest of what the function computes, is read by the cache alone.
@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _germs_of_rays(
    function: Callable[[Any, Any], Any],
    now: str,
    leading: bool,
    normalised: bool,
    outer_x64: bool,
    variables: Any,
    u: Any,
    u0: Any,
) -> tuple[list[tuple[Any, Any, Any]], dict[str, Any]]:
    # The network is traced with the caller's types, and read in ours.
    with enable_x64(outer_x64):
        traced = programs.traced(function, *_shapes(variables, u))
    one = partial(_germs_of_ray, traced, leading, normalised, u.dtype, jax.tree.leaves(variables))
    return jax.vmap(one, in_axes=(0, None if u0 is None else 0))(u, u0)


def _germs_of_ray(
    traced: Any, leading: bool, normalised: bool, dtype: Any, leaves: list[Any], u: Any, u0: Any
) -> tuple[list[tuple[Any, Any, Any]], dict[str, Any]]:
    ctx = interpreter.Context(dtype, normalised)
    terms = {1: u[None]} if u0 is None or leading else {1: u[None], 0: u0[None]}
    noise = {p: jnp.finfo(dtype).eps * germ.largest(term) for p, term in terms.items()}
    floor = 0.0 if leading else germ.EXACT
    x = germ.make(terms, floor, noise, shape=(1, *u.shape), floor=floor)
    constants = [leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf for leaf in leaves]
    outputs = [_packed(output, dtype) for output in interpreter.interpret(ctx, traced, [*constants, x])]
    return outputs, {message: jnp.asarray(flag) for message, flag in ctx.notes.items()}


def _packed(output: Germ | Eventually | Any, dtype: Any) -> tuple[Any, Any, Any]:
    x = germ.of_constant(output)
    terms = dict(x.terms) if x.terms else {0: jnp.zeros(x.shape, dtype)}
    # Without the axis of the one input that was traced.
    return (
        {p: term[0] for p, term in terms.items()},
        jnp.max(x.order, initial=germ.EXACT),
        {p: jnp.asarray(germ.level(x.noise.get(p, germ.ZERO))) for p in terms},
    )
