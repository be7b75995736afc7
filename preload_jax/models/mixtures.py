"""Mixtures of networks, as one classifier: MC dropout and deep ensembles.  Their logits are log mean probabilities."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from preload_jax.errors import UserError
from preload_jax.integers import require_integer, require_seed
from preload_jax.log_sum_exp import log_softmax, log_sum_exp
from preload_jax.models.ccu_head import CCUHead
from preload_jax.models.classifier import Classifier
from preload_jax.models.distance import WithDistance
from preload_jax.models.heads import LinearHead, SquareLogitHead
from preload_jax.models.laplace_head import LaplaceHead
from preload_jax.models.layers import MC_DROPOUT


def log_mean_probabilities(logits: Float[Array, "t n k"]) -> Float[Array, "n k"]:
    """log (1/T) Σ_t softmax(z_t): [T, n, k] → [n, k], in nats, finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from preload_jax.models.mixtures import log_mean_probabilities
        >>> jnp.exp(log_mean_probabilities(jnp.log(jnp.array([[[0.9, 0.1]], [[0.5, 0.5]]])))).round(4).tolist()
        [[0.699999988079071, 0.30000001192092896]]
    """
    of_each = log_softmax(logits.astype(jnp.float32))
    return log_sum_exp(jnp.moveaxis(of_each, 0, -1)) - math.log(logits.shape[0])


class MCDropout(Classifier):
    """A network whose dropout stays on: mean probabilities of T draws of it (Gal and Ghahramani, 2016).

    p(y | x) = 1/T Σ_t softmax(z(x; m_t)) with masks m_t drawn from `seed` alone.  Each mask is drawn once for all
    inputs, so that an answer does not depend on the batch, and the same call gives the same answer.  The logits are
    log p(y | x), the features those without dropout.  Training mode is an ordinary classifier's, and so are the
    variables.

    Attributes:
        backbone: with a dropout rate above 0, as each of this library's networks may have.  One of your own needs
            layers of `models.layers.Dropout`; Flax's are never on in evaluation mode.
        head: as of any classifier.
        samples: T, how often the network is drawn.
        seed: of the draws.

    Raises:
        UserError: for a backbone without dropout or with rate 0, or fewer than one sample.  When it is first called:
            for one without a layer of `models.layers.Dropout`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import models
        >>> model = models.MCDropout(models.MLP(widths=(8,), dropout=0.2), models.LinearHead(3), samples=5)
        >>> variables = model.init(jax.random.key(0), jnp.ones((1, 4, 4, 1)))
        >>> logits = model.apply(variables, jnp.ones((2, 4, 4, 1)))
        >>> jnp.exp(logits).sum(axis=1).round(4).tolist()
        [1.0, 1.0]
    """

    samples: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        body = self.backbone.backbone if isinstance(self.backbone, WithDistance) else self.backbone
        rate = getattr(body, "dropout", None)
        if rate is None:
            raise UserError(
                f"MC dropout draws networks by their dropout, and a {type(body).__name__} has none;"
                " take a network of `models`, and give its dropout"
            )
        if rate == 0.0:
            raise UserError("MC dropout with a dropout of 0 draws the same network each time; give a rate above 0")
        self.samples = require_integer("samples", self.samples, at_least=1)
        self.seed = require_seed(self.seed)
        super().__post_init__()

    def __call__(self, images: Num[Array, "n ..."], *, train: bool = False, features: bool = False) -> Any:
        if not train and self.has_rng(MC_DROPOUT):
            raise UserError(
                f"rngs with {MC_DROPOUT!r} were given, but MC dropout draws from `seed`; `plain` is what takes a draw"
            )
        outputs = super().__call__(images, train=train, features=features)
        if train:
            return outputs
        if not self._is_drawn(images):
            raise UserError(
                "MC dropout draws networks by their dropout, and this one has no layer of models.layers.Dropout; take a"
                " network of `models`, or use that layer in place of Flax's"
            )
        if self.is_initializing():
            return outputs
        plain, variables = self.plain, self.variables
        logits: list[Any] = [plain.apply(variables, images, rngs=self.draw(t)) for t in range(self.samples)]
        mixed = log_mean_probabilities(jnp.stack(logits))
        return (mixed, outputs[1]) if features else mixed

    def _is_drawn(self, images: Num[Array, "n ..."]) -> bool:
        """Whether the network's program takes a draw's random numbers."""
        plain, variables = self.plain, self.variables
        traced = jax.make_jaxpr(lambda key: plain.apply(variables, images, rngs={MC_DROPOUT: key}))(jax.random.key(0))
        (given,) = traced.jaxpr.invars
        return any(given is each for equation in traced.jaxpr.eqns for each in equation.invars)

    @property
    def plain(self) -> Classifier:
        """The classifier whose dropout is on where random numbers for it are given, see `draw`."""
        return Classifier(self.backbone.clone(parent=None), self.head.clone(parent=None), parent=None)

    def draw(self, number: int) -> dict[str, Array]:
        """The random numbers of the t-th draw, t = 0 … T − 1, as `plain.apply` takes them."""
        return {MC_DROPOUT: jax.random.fold_in(jax.random.key(self.seed), number)}


class Backbones(nn.Module):
    """The features of several backbones, one after the other: the body of an ensemble."""

    members: tuple[nn.Module, ...]

    def __call__(self, images: Num[Array, "n ..."], *, train: bool = False) -> Float[Array, "n d"]:
        return jnp.concatenate([member(images, train=train).astype(jnp.float32) for member in self.members], axis=-1)


class EnsembleHead(nn.Module):
    """log mean probabilities of several heads, each of which sees its own backbone's features.

    Attributes:
        members: linear heads, or square logits, of one kind.
        widths: how many of the features each sees.
    """

    members: tuple[nn.Module, ...]
    widths: tuple[int, ...]

    @property
    def has_ood_class(self) -> bool:
        """Whether the last logit is the OOD class."""
        return bool(self.members[0].has_ood_class)

    @property
    def num_classes(self) -> int:
        """K, which never counts the OOD class."""
        return int(self.members[0].num_classes)

    def __call__(self, features: Float[Array, "n d"]) -> Float[Array, "n k"]:
        logits, start = [], 0
        for member, width in zip(self.members, self.widths, strict=True):
            logits.append(member(features[..., start : start + width]))
            start += width
        return log_mean_probabilities(jnp.stack(logits))


def ensemble(models: Sequence[Classifier], variables: Sequence[Mapping[str, Any]]) -> tuple[Classifier, dict[str, Any]]:
    """A deep ensemble as one classifier and its variables (Lakshminarayanan et al., 2017).

    p(y | x) = 1/M Σ_m p_m(y | x), of networks that were trained alike from different seeds.  The logits are
    log p(y | x), and the features those of all members, one after the other.

    Args:
        models: two classifiers at least, with heads of one kind and as many classes.
        variables: theirs.

    Raises:
        UserError: for fewer than two, as many variables as models, or heads that are not alike.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import make_classifier, models, predict
        >>> model, images = make_classifier("mlp", "linear", num_classes=3, widths=(8,)), jnp.ones((2, 4, 4, 1))
        >>> members = [model.init(jax.random.key(seed), images) for seed in range(3)]
        >>> predict(*models.ensemble([model] * 3, members), images).probabilities.shape
        (2, 3)
    """
    if len(models) < 2:
        raise UserError(f"an ensemble of {len(models)} networks; give two at least")
    if len(models) != len(variables):
        raise UserError(f"{len(models)} networks but {len(variables)} variables; expected each network's own")
    first = _kind(models[0])
    for number, model in enumerate(models[1:], start=1):
        if _kind(model) != first:
            raise UserError(
                f"network {number} of the ensemble has {_in_words(_kind(model))}, the first has {_in_words(first)}; an"
                " ensemble is of networks with the same classes and head"
            )
    for number, own in enumerate(variables):
        if not isinstance(own, Mapping) or "params" not in own:
            got = type(own).__name__
            raise UserError(
                f"the variables of network {number} of the ensemble are a {got}; expected a dictionary with 'params'"
            )
    widths = tuple(_width(model, own) for model, own in zip(models, variables, strict=True))
    bodies, heads = ([getattr(model, name).clone(parent=None) for model in models] for name in ("backbone", "head"))
    joined: dict[str, Any] = {
        collection: {
            part: {
                f"members_{i}": own[collection][part]
                for i, own in enumerate(variables)
                if part in own.get(collection, {})
            }
            for part in ("backbone", "head")
        }
        for collection in ("params", "batch_stats")
    }
    joined["batch_stats"] = {part: found for part, found in joined["batch_stats"].items() if found}
    return Classifier(Backbones(tuple(bodies)), EnsembleHead(tuple(heads), widths)), joined


def members(model: Classifier, variables: Mapping[str, Any]) -> list[tuple[Classifier, dict[str, Any]]]:
    """The networks of an ensemble, each with its variables; an empty list for another classifier."""
    if not isinstance(model.head, EnsembleHead) or not isinstance(model.backbone, Backbones):
        return []
    return [
        (
            Classifier(body.clone(parent=None), head.clone(parent=None)),
            {
                name: {part: tree[f"members_{i}"] for part, tree in collection.items() if f"members_{i}" in tree}
                for name, collection in variables.items()
            },
        )
        for i, (body, head) in enumerate(zip(model.backbone.members, model.head.members, strict=True))
    ]


def _kind(model: Any) -> tuple[str, int, bool]:
    if type(model) is not Classifier or not isinstance(model.head, LinearHead | SquareLogitHead):
        raise UserError(
            "an ensemble is of networks with a LinearHead or a SquareLogitHead, as they were trained; got a"
            f" {type(model).__name__} with a {type(getattr(model, 'head', None)).__name__}"
        )
    return type(model.head).__name__, model.head.num_classes, model.head.has_ood_class


def _in_words(kind: tuple[str, int, bool]) -> str:
    return f"a {kind[0]} for {kind[1]} classes" + (" and the OOD class" if kind[2] else "")


def _width(model: Classifier, variables: Mapping[str, Any]) -> int:
    """Of the features that the head is given."""
    return int(variables["params"]["head"]["linear"]["kernel"].shape[0]) + isinstance(model.backbone, WithDistance)


def without_posterior(model: Classifier, variables: Mapping[str, Any]) -> tuple[Classifier, dict[str, Any]]:
    """The linear classifier under a `LaplaceHead` or a `CCUHead`, at the trained weights, and its variables.

    Args:
        model: with such a head, or a linear classifier, which is returned as it is.
        variables: its variables, as nested dicts of arrays.
    """
    own = {
        name: {part: tree for part, tree in collection.items() if name == "params" or part == "backbone"}
        for name, collection in variables.items()
    }
    own["params"]["head"] = {"linear": own["params"]["head"]["linear"]}
    return Classifier(model.backbone.clone(parent=None), LinearHead(model.head.num_classes)), own


def is_mixture(model: Any) -> bool:
    """Whether its answers are mixed, of networks, weights or densities: not what one head makes of its features."""
    return isinstance(model, MCDropout) or isinstance(
        getattr(model, "head", None), EnsembleHead | LaplaceHead | CCUHead
    )
