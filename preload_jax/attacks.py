"""Inputs near given ones that a score likes best: projected gradient ascent in L∞ balls."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from preload_jax.errors import UserError

Number = float | Array
# Loops of so few steps are written out: XLA's CPU compiler runs convolutions inside a loop many times slower.
_WRITTEN_OUT = 10


def ball(images: Float[Array, "n ..."], epsilon: Number) -> tuple[Float[Array, "n ..."], Float[Array, "n ..."]]:
    """The lowest and highest values within ε of each: in [0, 1] where an image's value is, else no further outside.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax import attacks
        >>> low, high = attacks.ball(jnp.array([[0.25, 1.0, 3.0]]), 0.5)
        >>> low.tolist(), high.tolist()
        ([[0.0, 0.5, 2.5]], [[0.75, 1.0, 3.0]])
    """
    epsilon = jnp.asarray(epsilon, images.dtype)
    zero, one = jnp.zeros((), images.dtype), jnp.ones((), images.dtype)
    return (
        jnp.maximum(images - epsilon, jnp.minimum(images, zero)),
        jnp.minimum(images + epsilon, jnp.maximum(images, one)),
    )


def pgd(
    score: Callable[[Array], Array],
    images: Num[Array, "n ..."],
    *,
    key: Array,
    epsilon: Number,
    steps: int,
    step_size: Number | None = None,
) -> Num[Array, "n ..."]:
    """The images of the largest score that projected gradient ascent meets within an L∞ ball (Madry et al., 2018).

    x ← P(x + η sign ∇s(x)), from x + u·v with u ~ U[0, 1) and v ~ U(−ε, ε) (Hein et al., 2019: their code).  Of all
    points on the way, the given images among them, each image's best is returned, so no score falls.

    Args:
        score: of images [n, …], one number each; each image's depends on that image alone.
        images: floating point; values stay within `ball`.
        key: of the start.
        epsilon: ε ≥ 0.
        steps: how many.
        step_size: η; None: ε / steps, as Hein et al. have it.

    Raises:
        UserError: for integers, such as tokens.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import attacks
        >>> worse = attacks.pgd(lambda x: x[:, 0] - x[:, 1], jnp.array([[0.5, 0.5]]), key=jax.random.key(0),
        ...     epsilon=0.25, steps=10)
        >>> worse.tolist()
        [[0.75, 0.25]]
    """
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise UserError(
            "a ball has real numbers in it; inputs that are integers, such as tokens, have none around them"
        )
    if steps == 0:
        return images
    epsilon = jnp.asarray(epsilon, images.dtype)
    eta = epsilon / steps if step_size is None else jnp.asarray(step_size, images.dtype)
    low, high = ball(images, epsilon)
    share_key, start_key = jax.random.split(key)
    share = jax.random.uniform(share_key, (len(images), *[1] * (images.ndim - 1)), images.dtype)
    start = images + share * epsilon * jax.random.uniform(start_key, images.shape, images.dtype, minval=-1.0)

    def total(x: Array) -> tuple[Array, Array]:
        found = score(x)
        return found.sum(), found

    def step(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        x, best, best_score = carry
        (_, found), slope = jax.value_and_grad(total, has_aux=True)(x)
        best, best_score = _better(x, found, best, best_score)
        return (jnp.clip(x + eta * jnp.sign(slope), low, high), best, best_score), None

    carry = (jnp.clip(start, low, high), images, score(images))
    (x, best, best_score), _ = jax.lax.scan(step, carry, length=steps, unroll=steps if steps <= _WRITTEN_OUT else 1)
    return _better(x, score(x), best, best_score)[0]


def _better(x: Array, found: Array, best: Array, best_score: Array) -> tuple[Array, Array]:
    """Image by image the one of the larger score."""
    wins = found > best_score
    each = wins.reshape(-1, *[1] * (x.ndim - 1))
    return jnp.where(each, x, best), jnp.where(wins, found, best_score)
