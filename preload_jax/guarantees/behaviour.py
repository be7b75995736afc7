"""What a backbone's embeddings do far away: whether they grow, and whether they can be negative."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Num

from preload_jax.devices.variables import inputs_of, require_own, require_rays
from preload_jax.guarantees import germs
from preload_jax.guarantees.limits import as_function
from preload_jax.guarantees.ray_inputs import unit_directions
from preload_jax.integers import require_integer
from preload_jax.models import Classifier
from preload_jax.short_repr import short_repr


@dataclass(frozen=True)
class EmbeddingBehaviour:
    """What the embeddings of one network do far away, along n sampled rays.

    Attributes:
        bounded: for each ray whether the embedding stays bounded, [n].  Theorem 2 says nothing about such a ray.
        undecided: for each ray whether the kept terms leave this open, [n].
        nonnegative: whether embeddings are proved to be ≥ 0 for every input.  False if no rule proves it.

    Example: see `embedding_behaviour`.
    """

    bounded: Bool[np.ndarray, "n"]
    undecided: Bool[np.ndarray, "n"]
    nonnegative: bool

    __repr__ = short_repr

    @property
    def always_bounded(self) -> bool:
        """Whether no sampled ray has a growing embedding, as in a network that ends in a layer norm."""
        return bool(self.bounded.all())


def embedding_behaviour(
    model: Classifier | Callable[..., Any],
    variables: Mapping[str, Any] | None,
    directions: Num[Array, "n ..."] | Num[np.ndarray, "n ..."],
    *,
    batch_size: int = 256,
) -> EmbeddingBehaviour:
    """Whether embeddings grow along rays t·u, and whether they can be negative.

    PreLoad's promise far away rests on embeddings that grow.  A layer norm at the end bounds them.

    Args:
        model: a `Classifier`, or a function that returns (logits, features) or features alone, called as in
            `far_away_limit`.
        variables: the model's.
        directions: u, [n, ...] with the images' shape.  A few random ones are enough, such as
            `numpy.random.default_rng(0).normal(size=(5, *shape))`.
        batch_size: directions computed at once.

    Raises:
        UserError: as `far_away_limit` does.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import guarantees, make_classifier
        >>> model = make_classifier("mlp", "square_logit", num_classes=3, widths=(64,))
        >>> variables = model.init(jax.random.key(0), jnp.zeros((1, 4, 4, 1)))
        >>> directions = jax.random.normal(jax.random.key(1), (5, 4, 4, 1))
        >>> found = guarantees.embedding_behaviour(model, variables, directions)
        >>> found.always_bounded, found.nonnegative
        (False, True)
    """
    outputs = as_function(model, variables, any_head=True)
    batch_size = require_integer("batch_size", batch_size, at_least=1)
    units = unit_directions(directions)
    if isinstance(model, Classifier):
        require_rays(model, variables, units.shape[1:])
    germs.require_independent_rows(partial(outputs, variables), units.shape[1:])
    growing = partial(_growing, _Last(outputs), variables, batch_size=batch_size)
    # Slopes in float32 are cheap, and show nearly all growth.
    grows, hidden = growing(units, leading=True)
    rest = np.flatnonzero(~grows)
    if len(rest):
        grows[rest], hidden[rest] = growing(units[rest], leading=False)
    nonnegative = nonnegative_embeddings(model, variables, units.shape[1:])
    return EmbeddingBehaviour(~grows & ~hidden, ~grows & hidden, nonnegative)


def _growing(
    function: Callable[[Any, Any], Any], variables: Any, units: np.ndarray, *, batch_size: int, leading: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Which embeddings have a coefficient of a positive power, and where the remainder may hide one."""
    features = germs.evaluate(function, variables, units, batch_size=batch_size, leading=leading)[-1]
    grows = np.zeros(len(units), bool)
    for power, term in features.terms.items():
        if power > 0:
            grows |= (np.abs(term).reshape(len(term), -1).max(axis=1) > 0) & (features.order < power)
    return grows, ~grows & (features.order > 0)


def nonnegative_embeddings(
    model: Classifier | Callable[..., Any], variables: Mapping[str, Any] | None, shape: tuple[int, ...]
) -> bool:
    """Whether embeddings are proved to be ≥ 0 for every input of a shape, by the operations that make them.

    False means that no rule proves it.  `confidence_bound` and `safe_radius` take the answer as `nonnegative`.

    Args:
        model: a `Classifier`, or a function that returns (logits, features) or features alone, called as in
            `far_away_limit`.
        variables: the model's; None for a function of images alone.
        shape: of one input, without the batch, such as (28, 28, 1).

    Example:
        >>> import jax
        >>> from preload_jax import guarantees
        >>> guarantees.nonnegative_embeddings(jax.nn.softplus, None, (3,))
        True
        >>> guarantees.nonnegative_embeddings(jax.nn.gelu, None, (3,))
        False
    """
    inputs = jax.ShapeDtypeStruct((1, *shape), np.float32)
    if isinstance(model, Classifier):
        require_own(model, variables, tuple(shape))
        inputs = inputs_of(model, tuple(shape))
    outputs = as_function(model, variables, any_head=True)
    return germs.nonnegative_outputs(partial(outputs, variables), inputs)[-1]


@dataclass(frozen=True)
class _Last:
    """The last output alone: what the head makes of it need not have a germ."""

    function: Callable[[Any, Any], Any]

    def __call__(self, variables: Any, images: Any) -> Any:
        outputs = self.function(variables, images)
        return outputs[-1] if isinstance(outputs, tuple) else outputs
