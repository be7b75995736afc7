"""The Linen module that a network of another framework becomes, whose parameters are the network's own."""

from collections.abc import Hashable
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from preload_jax.adapters.tracing import called, require_pure
from preload_jax.adapters.trees import Tree
from preload_jax.errors import UserError
from preload_jax.models import Classifier, WithDistance

# Under this name the variables hold the network's arrays: in "params", and what training updates in "batch_stats".
NAME = "network"


@runtime_checkable
class Calls(Protocol):
    """How a framework's network is called, and made again of other arrays."""

    def __call__(
        self, params: dict[str, Any], stats: dict[str, Any], images: Any, *, train: bool, key: Any
    ) -> tuple[Any, dict[str, Any]]:
        """(features, what `stats` are after it); both collections are nested dictionaries."""
        ...

    def restored(self, params: dict[str, Any], stats: dict[str, Any]) -> Any:
        """The framework's own network with these arrays."""
        ...


class Network:
    """A network of another framework: how it is called, and the arrays that it had when it was given.

    Two are equal where they compute the same function of arrays and images.  The arrays do not count, only their
    shapes: what was compiled for one network serves another of its kind.
    """

    def __init__(
        self, title: str, calls: Calls, static: Hashable, params: Tree, stats: Tree, *, draws: bool, hint: str = ""
    ):
        """Joins what an adapter found.

        Args:
            title: what messages call the network, such as "NNX module Net".
            calls: how to call it.
            static: equal for networks that compute the same function.
            params, stats: its arrays, trained ones and others.
            draws: whether it takes random numbers in training.
            hint: what a message says at its end where the features have the wrong shape.
        """
        self.title, self.calls, self.params, self.stats, self.draws = title, calls, params, stats, draws
        self.hint = hint
        # What somebody's function closes over may be another by the time that it is asked.
        self.may_change = bool(getattr(calls, "may_change", False))
        self._key = (type(calls), static, params.kind, stats.kind, draws)
        try:
            self._hash = hash(self._key)
        except TypeError as error:
            raise UserError(
                f"the {title} holds what JAX cannot tell from another ({error}); keep tuples, numbers, names and"
                " functions in it beside its arrays"
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _checksum(self) -> str:
        return f"{self.params.checksum:08x}{self.stats.checksum:08x}"

    def __repr__(self) -> str:
        # A stored training is told from another's by this.
        return f"{self.title} of arrays {self._checksum}"


class Adapted(nn.Module):
    """A network of another framework as a backbone; `from_function`, `from_nnx` and `from_equinox` make it.

    `init` gives the arrays that the network had when it was given, whatever the key: training starts there.

    Attributes:
        network: how it is called, and its arrays.

    Example: see `from_function`.
    """

    network: Network

    @nn.compact
    def __call__(self, images: Num[Array, "n ..."], *, train: bool = False) -> Float[Array, "n d"]:
        network = self.network
        require_pure(network, images.shape, jnp.dtype(images.dtype), train)
        params, stats, kept = {}, {}, None
        if network.params.leaves:
            params = self.param(NAME, lambda key: network.params.nested())
        if network.stats.leaves:
            kept = self.variable("batch_stats", NAME, network.stats.nested)
            stats = kept.value
        key = self.make_rng("dropout") if train and network.draws else None
        features, after = called(network, params, stats, images, train=train, key=key)
        if kept is not None and train and self.is_mutable_collection("batch_stats") and not self.is_initializing():
            kept.value = after
        return features


def adapter_of(model: Any) -> Adapted:
    """The adapter of a classifier, or of a backbone.

    Raises:
        UserError: where there is none.
    """
    body = model.backbone if isinstance(model, Classifier) else model
    body = body.backbone if isinstance(body, WithDistance) else body
    if not isinstance(body, Adapted):
        raise UserError(
            f"the backbone is a {type(body).__name__}; expected one that adapters.from_function, from_nnx or"
            " from_equinox made"
        )
    return body
