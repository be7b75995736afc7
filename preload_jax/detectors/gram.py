"""Gram: how far feature maps' correlations leave the range that the predicted class has (Sastry and Oore, 2020)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from preload_jax.detectors.data import Outputs, Training
from preload_jax.detectors.moments import require_examples
from preload_jax.errors import UserError

Powers = tuple[int, ...]


def fit(training: Training, *, powers: Powers, held_out: int) -> dict[str, Any]:
    """The least and largest Gram values of each class, layer by layer [K, powers, c], and each layer's usual deviation.

    Raises:
        UserError: where a class has no examples.
    """
    if held_out < 0 or held_out == 1:
        raise UserError(f"held_out {held_out}; expected 0, or at least 2")
    k = training.num_classes
    least: list[np.ndarray] = []
    most: list[np.ndarray] = []
    seen = np.zeros(k, np.int64)
    for block, labels, kept in _halves(training, seen, held_out):
        values = [np.asarray(_values(jnp.asarray(x), powers)) for x in block.maps or ()]
        if not least:
            least = [np.full((k, *v.shape[1:]), np.inf, v.dtype) for v in values]
            most = [np.full((k, *v.shape[1:]), -np.inf, v.dtype) for v in values]
        for layer, v in enumerate(values):
            np.minimum.at(least[layer], labels[kept], v[kept])
            np.maximum.at(most[layer], labels[kept], v[kept])
    require_examples(seen)
    fitted = {f"least{i}": x for i, x in enumerate(least)} | {f"most{i}": x for i, x in enumerate(most)}
    return {**fitted, "usual": _usual(training, fitted, len(least), powers, held_out)}


def _halves(training: Training, seen: np.ndarray, held_out: int) -> Any:
    """(block, labels, whether each is kept for the ranges); every so many of a class are held out, or none for 0."""
    seen[:] = 0
    for block, labels in training.blocks():
        rank = np.empty(len(labels), np.int64)
        for c in np.unique(labels):
            chosen = labels == c
            rank[chosen] = seen[c] + np.arange(chosen.sum())
            seen[c] += chosen.sum()
        yield block, labels, (rank + 1) % held_out != 0 if held_out else np.ones(len(labels), bool)


def _usual(training: Training, fitted: dict[str, Any], layers: int, powers: Powers, held_out: int) -> np.ndarray:
    """The mean deviation of the held-out examples from their class's range, [layers]; 1 where it is 0."""
    total, count = np.zeros(layers), 0
    for block, labels, kept in _halves(training, np.zeros(training.num_classes, np.int64), held_out):
        held = ~kept
        if held.any():
            maps = tuple(x[held] for x in block.maps or ())
            total += np.stack([np.asarray(d) for d in _deviations(fitted, maps, labels[held], powers)]).sum(axis=1)
            count += int(held.sum())
    mean = total / max(count, 1)
    return np.where(mean > 0.0, mean, 1.0)


@partial(jax.jit, static_argnames="powers")
def _values(x: Float[Array, "n ..."], powers: Powers) -> Float[Array, "n p c"]:
    """(Σ_j Σ_q F_iq^p F_jq^p)^{1/p} of each power and channel, the root with its sign.

    The sum over j first: no channel × channel matrix.
    """
    f = x.reshape(len(x), -1, x.shape[-1])
    found = []
    for power in powers:
        raised = f**power
        sums = jnp.sum(raised * jnp.sum(raised, axis=-1, keepdims=True), axis=1)
        found.append(jnp.sign(sums) * jnp.abs(sums) ** (1.0 / power))
    return jnp.stack(found, axis=1)


def _deviations(fitted: dict[str, Any], maps: tuple[Any, ...], classes: Any, powers: Powers) -> list[Array]:
    """δ_ℓ of each layer, [n]."""
    out = []
    for i, x in enumerate(maps):
        values = _values(jnp.asarray(x), powers)
        least, most = (jnp.asarray(fitted[f"{name}{i}"])[classes] for name in ("least", "most"))
        below = jnp.maximum(least - values, 0.0) / jnp.abs(least + 1e-6)
        above = jnp.maximum(values - most, 0.0) / jnp.abs(most + 1e-6)
        out.append(jnp.sum(below + above, axis=(1, 2)))
    return out


def score(fitted: dict[str, Any], outputs: Outputs, *, powers: Powers, held_out: int) -> Float[Array, "n"]:
    """−Σ_ℓ δ_ℓ / usual δ_ℓ, [n], of the predicted class's ranges."""
    predicted = jnp.argmax(outputs.logits, axis=-1)
    deviations = jnp.stack(_deviations(fitted, outputs.maps or (), predicted, powers), axis=-1)
    return -jnp.sum(deviations / jnp.asarray(fitted["usual"])[None], axis=-1)
