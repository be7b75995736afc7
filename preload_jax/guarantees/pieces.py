"""The affine pieces of a network along a ray, one after the other, from the start to infinity."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int

from preload_jax.errors import UserError
from preload_jax.guarantees.germs import crossings, germ, interpreter
from preload_jax.guarantees.germs.rays import enable_x64
from preload_jax.guarantees.head_parameters import HeadParameters

# Steps that one compiled call takes.
_STEPS = 64
# How far beyond a crossing the next piece is read: rounding must not put it before.
_BEYOND = 2.0**-42


@dataclass(frozen=True)
class Pieces:
    """The logits along the affine pieces of n rays, each in ε = t − start.

    Attributes:
        starts: of the pieces, by ray then distance, [m].
        ends: of the pieces; inf for each ray's last.
        ray: which ray a piece belongs to.
        offsets, slopes: the classes' logits are offset + slope·ε.
        ood: coefficients of ε⁰, ε¹, … of the OOD class's logit; no columns where there is no such class.
    """

    starts: Float[np.ndarray, "m"]
    ends: Float[np.ndarray, "m"]
    ray: Int[np.ndarray, "m"]
    offsets: Float[np.ndarray, "m k"]
    slopes: Float[np.ndarray, "m k"]
    ood: Float[np.ndarray, "m e"]


@dataclass(frozen=True)
class Distance:
    """r(x)² = weight²·‖x − center‖² / scale², which a `WithDistance` hands the OOD class."""

    center: Float[np.ndarray, "..."]
    scale: float
    weight: float


def pieces(
    features: Callable[[Any, Any], Any],
    variables: Mapping[str, Any],
    head: HeadParameters,
    directions: Float[np.ndarray, "n ..."],
    starts: Float[np.ndarray, "n ..."],
    *,
    distance: Distance | None,
    max_pieces: int,
) -> Pieces:
    """All pieces of all rays.  Each reads the network just beyond the last crossing, in float64.

    Raises:
        UserError: for features that are not piecewise affine, or a ray of more than `max_pieces`.
    """
    n = len(directions)
    t, going = np.zeros(n), np.ones(n, bool)
    rows: list[dict[str, np.ndarray]] = []
    with enable_x64(True), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        u, u0 = np.asarray(directions, np.float64), np.asarray(starts, np.float64)
        exponent = head.exponent if head.square_weights is not None else 0
        walk = partial(_walk, features, exponent, variables, _weights(head, distance))
        count = np.zeros(n, int)
        while going.any():
            t, going, found = jax.tree.map(np.asarray, walk(u, u0, t, going))
            _require_affine(found)
            rows.append(found)
            count += found["going"].sum(axis=0)
            many = count > max_pieces
            if many.any():
                raise UserError(
                    f"{int(many.sum())} of {n} rays cross more than {max_pieces} pieces, first ray "
                    f"{int(np.argmax(many))}; raise max_pieces, or use confidence_profile"
                )
    return _in_order({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})


def _weights(head: HeadParameters, distance: Distance | None) -> dict[str, Any]:
    weights: dict[str, Any] = {"linear": head.weights, "bias": head.bias}
    if head.square_weights is not None:
        weights |= {"square": head.square_weights, "ood_bias": head.ood_bias}
    if distance is not None:
        share = (head.distance_weight or 0.0) * (distance.weight / distance.scale) ** head.exponent
        weights |= {"center": distance.center, "distance": share}
    return weights


@partial(jax.jit, static_argnums=(0, 1))
def _walk(
    features: Callable[[Any, Any], Any],
    exponent: int,
    variables: Any,
    weights: dict[str, Any],
    u: Any,
    u0: Any,
    t: Any,
    going: Any,
) -> Any:
    images = jax.ShapeDtypeStruct((1, *u.shape[1:]), jnp.float32)
    with enable_x64(False):
        closed = jax.make_jaxpr(features)(variables, images)
    leaves = jax.tree.leaves(variables)
    constants = [leaf.astype(u.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf for leaf in leaves]
    piece = jax.vmap(partial(_piece, closed, exponent, constants, weights))

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


def _piece(closed: Any, exponent: int, constants: list[Any], weights: dict[str, Any], u: Any, u0: Any, t: Any) -> Any:
    """One ray's: how far it goes, whether it is affine, and the logits along it."""
    here = u0 + t * u
    noise = {p: jnp.finfo(u.dtype).eps * germ.largest(x) for p, x in ((0, here), (-1, u))}
    x = germ.make({0: here[None], -1: u[None]}, germ.EXACT, noise, shape=(1, *u.shape))
    ctx = interpreter.Context(u.dtype)
    with crossings.recorded() as steps:
        (output,) = interpreter.interpret(ctx, closed, [*constants, x])
    g = germ.of_constant(output)
    offset, slope = (germ.coefficient(g, p, u.dtype)[0] for p in (0, -1))
    affine = jnp.all(g.order == germ.EXACT)
    for p in g.powers:
        if p not in (0, -1):
            affine &= jnp.all(g.terms[p] == 0)
    found = {"offsets": weights["linear"] @ offset + weights["bias"], "slopes": weights["linear"] @ slope}
    found["ood"] = _ood_logit(exponent, weights, offset, slope, here, u)
    return jnp.min(jnp.stack([*steps, jnp.asarray(jnp.inf, u.dtype)])), affine, found


def _ood_logit(exponent: int, weights: dict[str, Any], g: Any, slope: Any, here: Any, u: Any) -> Any:
    """Coefficients of Σ_j v_j (g_j + s_j ε)^e + v_r κ^e r^e + b."""
    if not exponent:
        return jnp.zeros(0, g.dtype)
    powers = range(exponent + 1)
    logit = jnp.stack(
        [math.comb(exponent, k) * jnp.sum(weights["square"] * g ** (exponent - k) * slope**k) for k in powers]
    )
    if "distance" in weights:
        away = here - weights["center"]
        square = jnp.stack([jnp.sum(away**2), 2.0 * jnp.sum(away * u), jnp.sum(u**2)])
        power = square
        for _ in range(exponent // 2 - 1):
            power = jnp.convolve(power, square)
        logit = logit + weights["distance"] * power
    return logit.at[0].add(weights["ood_bias"])


def _require_affine(found: dict[str, np.ndarray]) -> None:
    curved = (found["going"] & ~found["affine"]).any(axis=0)
    if curved.any():
        raise UserError(
            f"the embedding is not piecewise affine along {int(curved.sum())} of {len(curved)} rays, first ray "
            f"{int(np.argmax(curved))}; expected ReLU, leaky ReLU, max, mean or no pooling, and batch norm in "
            "evaluation mode between affine layers. For other networks there are confidence_profile and input_radius"
        )


def _in_order(rows: dict[str, np.ndarray]) -> Pieces:
    """[steps, n, …] as one row a piece, by ray."""
    live = rows["going"].T
    taken = {name: np.swapaxes(rows[name], 0, 1)[live] for name in ("starts", "ends", "offsets", "slopes", "ood")}
    return Pieces(ray=np.nonzero(live)[0], **taken)
