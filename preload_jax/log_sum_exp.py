"""Log-sum-exp and softmax that stay right where logits are scaled in the same compiled program, however large they are.

Both subtract the largest logit m first.  A CPU's compiler may compute βz − m with one rounding (a fused multiply-add),
where m = βz has been rounded before.  What should be 0 is then as large as m's rounding error: from z = 1e9 on the
exponential is noticeably wrong, and soon it overflows or vanishes.  Comparisons see the same rounded βz as m, so here
0 is what compares equal to m.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def log_sum_exp(logits: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    """log Σ_c exp z_c of each row, in the logits' type.  −∞ among them counts nothing; +∞ gives +∞.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.log_sum_exp import log_sum_exp
        >>> float(jax.jit(lambda z, beta: log_sum_exp(beta * z))(jnp.array([1e20, 0.0]), 0.1))
        1.0000000200408773e+19
    """
    largest = _largest(logits)
    return jnp.log(jnp.sum(jnp.exp(_below(logits, largest)), axis=-1)) + largest[..., 0]


def log_softmax(logits: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
    """z_c − log Σ_i exp z_i.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.log_sum_exp import log_softmax
        >>> float(jax.jit(lambda z, beta: log_softmax(beta * z))(jnp.array([1e20, 0.0]), 0.1)[0])
        0.0
    """
    below = _below(logits, _largest(logits))
    return below - jnp.log(jnp.sum(jnp.exp(below), axis=-1, keepdims=True))


def softmax(logits: Float[Array, "*n k"]) -> Float[Array, "*n k"]:
    """exp z_c / Σ_i exp z_i.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax.log_sum_exp import softmax
        >>> jax.jit(lambda z, beta: softmax(beta * z))(jnp.array([1e20, 0.0]), 0.1).tolist()
        [1.0, 0.0]
    """
    powers = jnp.exp(_below(logits, _largest(logits)))
    return powers / jnp.sum(powers, axis=-1, keepdims=True)


def _largest(logits: Array) -> Array:
    # It cancels: the gradient is that of what is below it.
    return jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))


@jax.custom_jvp
def _below(logits: Array, largest: Array) -> Array:
    """z − m, at most 0, and 0 where z = m.  Its gradient is that of z − m."""
    return jnp.where(logits == largest, jnp.zeros_like(logits), jnp.minimum(logits - largest, 0))


@_below.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return _below(*primals), tangents[0] - tangents[1]
