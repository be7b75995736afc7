"""The affine pieces of a network along a ray, one after the other, from the start to infinity."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int

from preload_jax.devices import programs, threads
from preload_jax.errors import UserError
from preload_jax.guarantees.germs import crossings, germ, interpreter
from preload_jax.guarantees.germs.rays import enable_x64

# Steps that one compiled call takes.
_STEPS = 64
# How far beyond a crossing the next piece is read: rounding must not put it before.
_BEYOND = 2.0**-42


@dataclass(frozen=True)
class Pieces:
    """The embedding along the affine pieces of n rays, each in ε = t − start.

    Attributes:
        starts: of the pieces, by ray then distance, [m].
        ends: of the pieces; inf for each ray's last.
        ray: which ray a piece belongs to.
        offsets, slopes: the embedding is offset + slope·ε.
        squares: ‖x − center‖² is squares · (1, ε, ε²); of the image itself where there is no center.
    """

    starts: Float[np.ndarray, "m"]
    ends: Float[np.ndarray, "m"]
    ray: Int[np.ndarray, "m"]
    offsets: Float[np.ndarray, "m d"]
    slopes: Float[np.ndarray, "m d"]
    squares: Float[np.ndarray, "m 3"]


def pieces(
    features: Callable[[Any, Any], Any],
    variables: Mapping[str, Any],
    directions: Float[np.ndarray, "n ..."],
    starts: Float[np.ndarray, "n ..."],
    *,
    center: Float[np.ndarray, "..."] | None,
    max_pieces: int,
    progress: Callable[[int, int], None],
) -> Pieces:
    """All pieces of all rays.  Each reads the network just beyond the last crossing, in float64.

    `progress` is told how many rays have ended, and how many pieces were crossed.

    Raises:
        UserError: for features that are not piecewise affine, or a ray of more than `max_pieces`.
    """
    n = len(directions)
    # XLA works on these programs with one thread: each core takes a part of the rays.
    num_parts = min(n, threads.cores())
    u, u0 = (_in_parts(np.asarray(each, np.float64), num_parts) for each in (directions, starts))
    t, going = np.zeros(u.shape[:2]), _in_parts(np.ones(n, bool), num_parts)
    rows: list[dict[str, np.ndarray]] = []
    count = np.zeros(n, int)
    now = programs.digest(features, variables, jax.ShapeDtypeStruct((1, *directions.shape[1:]), jnp.float32))
    walk = partial(_walk_a_part, features, now, variables, center)
    while going.any():
        parts = list(threads.in_order(walk, zip(u, u0, t, going, strict=True)))
        t, going = (np.stack([part[i] for part in parts]) for i in (0, 1))
        found = {name: np.concatenate([part[2][name] for part in parts], axis=1)[:, :n] for name in parts[0][2]}
        _require_affine(found)
        rows.append(found)
        count += found["going"].sum(axis=0)
        many = count > max_pieces
        if many.any():
            raise UserError(
                f"{int(many.sum())} of {n} rays cross more than {max_pieces} pieces, first ray "
                f"{int(np.argmax(many))}; raise max_pieces, or use confidence_profile"
            )
        progress(n - int(going.sum()), int(count.sum()))
    return _in_order({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})


def _in_parts(rows: np.ndarray, num_parts: int) -> np.ndarray:
    """[num_parts, m, …], the last filled up with zeros, so that all have one program."""
    missing = -len(rows) % num_parts
    filled = np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])
    return filled.reshape(num_parts, -1, *rows.shape[1:])


def _walk_a_part(features: Any, now: str, variables: Any, center: Any, rays: tuple[Any, ...]) -> Any:
    # JAX's settings are of one thread.
    with enable_x64(True), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return jax.tree.map(np.asarray, _walk(features, now, variables, center, *rays))


# `now`, the digest of what the features are, is read by the cache alone.
@partial(jax.jit, static_argnums=(0, 1))
def _walk(
    features: Callable[[Any, Any], Any],
    now: str,
    variables: Any,
    center: Any,
    u: Any,
    u0: Any,
    t: Any,
    going: Any,
) -> Any:
    images = jax.ShapeDtypeStruct((1, *u.shape[1:]), jnp.float32)
    with enable_x64(False):
        closed = programs.traced(features, variables, images)
    leaves = jax.tree.leaves(variables)
    constants = [leaf.astype(u.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf for leaf in leaves]
    piece = jax.vmap(partial(_piece, closed, constants, center))

    def step(carry: Any, _: None) -> Any:
        start, going = carry
        begin = jnp.where(start > 0, start * (1.0 + _BEYOND), 0.0)
        ahead, affine, found = piece(u, u0, begin)
        end = jnp.where(going, begin + ahead, jnp.inf)
        still = going & jnp.isfinite(end)
        row = {**found, "starts": begin, "ends": end, "affine": affine, "going": going}
        return (jnp.where(still, end, start), still), row

    (t, going), rows = lax.scan(step, (t, going), length=_STEPS)
    return t, going, rows


def _piece(closed: Any, constants: list[Any], center: Any, u: Any, u0: Any, t: Any) -> Any:
    """One ray's: how far it goes, whether it is affine, and the embedding along it."""
    here = u0 + t * u
    noise = {p: jnp.finfo(u.dtype).eps * germ.largest(x) for p, x in ((0, here), (-1, u))}
    x = germ.make({0: here[None], -1: u[None]}, germ.EXACT, noise, shape=(1, *u.shape))
    ctx = interpreter.Context(u.dtype)
    with crossings.recorded() as steps:
        (output,) = interpreter.interpret(ctx, closed, [*constants, x])
    g = germ.of_constant(output)
    offset, slope = (germ.coefficient(g, p, u.dtype)[0] for p in (0, -1))
    affine = jnp.all(g.order == germ.EXACT) & jnp.all(jnp.isfinite(offset)) & jnp.all(jnp.isfinite(slope))
    for p in g.powers:
        if p not in (0, -1):
            affine &= jnp.all(g.terms[p] == 0)
    away = here if center is None else here - center
    squares = jnp.stack([jnp.sum(away**2), 2.0 * jnp.sum(away * u), jnp.sum(u**2)])
    found = {"offsets": offset, "slopes": slope, "squares": squares}
    ahead = jnp.min(jnp.stack([*steps, jnp.asarray(jnp.inf, u.dtype)]))
    return ahead, affine & ~jnp.isnan(ahead), found


def _require_affine(found: dict[str, np.ndarray]) -> None:
    curved = (found["going"] & ~found["affine"]).any(axis=0)
    if curved.any():
        raise UserError(
            f"the network is not piecewise affine along {int(curved.sum())} of {len(curved)} rays, first ray "
            f"{int(np.argmax(curved))}; expected ReLU, leaky ReLU, max, mean or no pooling, and batch norm in "
            "evaluation mode between affine layers, and finite weights. For other networks there are "
            "confidence_profile and input_radius"
        )


def _in_order(rows: dict[str, np.ndarray]) -> Pieces:
    """[steps, n, …] as one row a piece, by ray."""
    live = rows["going"].T
    taken = {name: np.swapaxes(rows[name], 0, 1)[live] for name in ("starts", "ends", "offsets", "slopes", "squares")}
    return Pieces(ray=np.nonzero(live)[0], **taken)
