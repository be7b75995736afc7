"""The classifier, which joins a backbone and a head, and `make_classifier`, which makes one by name."""

import dataclasses
import inspect
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from preload_jax import backbones
from preload_jax.checks import require_number
from preload_jax.errors import UserError, unknown
from preload_jax.integers import require_flag, require_integer
from preload_jax.models.ccu_head import CCUHead
from preload_jax.models.distance import WithDistance
from preload_jax.models.guards import overflow_guard
from preload_jax.models.heads import LinearHead, SquareLogitHead
from preload_jax.models.laplace_head import LaplaceHead
from preload_jax.models.ood_logit import check_exponent
from preload_jax.models.rgpr_head import RGPRHead

# Beyond this magnitude an image is pulled back along its ray.  1e15 leaves float32 room for the layers' gains.
MAX_INPUT = 1e15

# Name → class.
BACKBONES: dict[str, Any] = {name: row.module for name, row in backbones.BACKBONES.items()}
HEADS = ("linear", "none_class", "square_logit", "laplace", "rgpr", "ccu")


class Classifier(nn.Module):
    """logits = head(G(x)) with G the backbone; `features=True` returns (logits, G(x)).

    Images whose largest absolute value exceeds `MAX_INPUT` (1e15) are scaled back to it along their ray, so that no
    layer overflows: a ray's confidences beyond there are those at 1e15.  Below it nothing changes, not by one bit.
    Integers, such as tokens, go to the backbone as they are.

    Attributes:
        backbone: a module `f(images, *, train)` → features [n, d].  Of other frameworks' networks `adapters` make one.
            With `WithDistance` the last feature is the distance; the head is told (`head.distance`).
        head: a module f(features) → logits [n, K] or [n, K+1], which says as `num_classes` what K is and as
            `has_ood_class` whether the last logit is the OOD class; f(features, images) if it has `sees_images`.

    Raises:
        TypeError: when the backbone or the head is no Linen module, the backbone takes no `train` or returns no array,
            or it is called on uint8, or its backbone is one of the library's and it is called on integers.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from preload_jax import Classifier, SquareLogitHead
        >>> from preload_jax.models import MLP
        >>> model, images = Classifier(MLP(widths=(6,)), SquareLogitHead(3)), jnp.ones((5, 4, 4, 1))
        >>> logits, features = model.apply(model.init(jax.random.key(0), images), images, features=True)
        >>> logits.shape, features.shape
        ((5, 4), (5, 6))
    """

    backbone: nn.Module
    head: nn.Module

    def __post_init__(self) -> None:
        for name, module in (("backbone", self.backbone), ("head", self.head)):
            if not isinstance(module, nn.Module):
                raise TypeError(
                    f"the {name} is a {type(module).__name__}; expected a Flax Linen module: of a network in NNX,"
                    " Equinox or plain JAX, adapters.from_nnx, from_equinox or from_function makes one"
                )
        taken = inspect.signature(type(self.backbone).__call__).parameters
        if "train" not in taken and not any(each.kind is each.VAR_KEYWORD for each in taken.values()):
            raise TypeError(
                f"the backbone's {type(self.backbone).__name__}.__call__ takes no `train`; expected"
                " __call__(self, inputs, *, train=False), where train switches dropout and the like on"
            )
        if isinstance(self.backbone, WithDistance) and getattr(self.head, "distance", None) is False:
            self.head = self.head.clone(distance=True)
        super().__post_init__()

    def __call__(self, images: Num[Array, "n ..."], *, train: bool = False, features: bool = False) -> Any:
        if jnp.issubdtype(images.dtype, jnp.floating):
            images = _limit_magnitude(images)
        elif images.dtype in (jnp.uint8, jnp.bool_) or is_builtin(self.backbone):
            raise TypeError(f"images of type {images.dtype}; expected floating point in [0, 1]: divide uint8 by 255")
        embedding = self.backbone(images, train=train)
        if not isinstance(embedding, jax.Array | np.ndarray):
            raise TypeError(f"the backbone returned a {type(embedding).__name__}; expected one array, features [n, d]")
        count, *others = embedding.shape or (None,)
        # A program for any number of images counts them by a symbol.
        if len(others) != 1 or (isinstance(count, int) and count != images.shape[0]):
            raise TypeError(
                f"the backbone makes features of shape {list(embedding.shape)} of {images.shape[0]} images; expected"
                " [n, d]: pool or flatten them"
            )
        logits = self.head(embedding, images) if getattr(self.head, "sees_images", False) else self.head(embedding)
        return (logits, embedding) if features else logits


class OnePixel(nn.Module):
    """The backbone of a classifier whose images are features already, one pixel with d channels."""

    def __call__(self, images: Float[Array, "n 1 1 d"], *, train: bool = False) -> Float[Array, "n d"]:
        return images[:, 0, 0]


@overflow_guard
def _limit_magnitude(images: Array) -> Array:
    largest = jnp.max(jnp.abs(images), axis=tuple(range(1, images.ndim)), keepdims=True)
    # In float32, for float16 has no 1e15: its images would be multiplied by inf / inf.
    return images * (MAX_INPUT / jnp.maximum(largest.astype(jnp.float32), MAX_INPUT)).astype(images.dtype)


def has_ood_class(model: Any, given: bool | None = None) -> bool:
    """Whether the last logit is the OOD class: as is said, or else as the head says.

    Raises:
        UserError: where what is said is no truth value.
    """
    return bool(getattr(model.head, "has_ood_class", False)) if given is None else require_flag("ood_class", given)


def require_classifier(model: Any, variables: Any = None) -> None:
    """Raises a UserError for what is no classifier, such as the variables in its place."""
    if not isinstance(model, Classifier):
        swapped = "; model and variables have changed places" if isinstance(variables, Classifier) else ""
        raise UserError(
            f"the model is a {type(model).__name__}; expected a Classifier, such as make_classifier makes{swapped}"
        )


def features_nonnegative(backbone: nn.Module) -> bool | None:
    """Whether a backbone's features are never negative, as after ReLU; None where that is not known.

    It is known for the backbones of `BACKBONES`, alone or in a `WithDistance`.  For other networks,
    `guarantees.nonnegative_embeddings` proves it from the operations.

    Args:
        backbone: any module.

    Example:
        >>> from preload_jax import models
        >>> models.features_nonnegative(models.MLP()), models.features_nonnegative(models.LinearHead(3))
        (True, None)
    """
    if type(backbone) is WithDistance:
        return features_nonnegative(backbone.backbone)
    return backbones.is_nonnegative(backbone)


def is_builtin(backbone: nn.Module) -> bool:
    """Whether it is one of `BACKBONES`, alone or in a `WithDistance`; one's own subclass may compute anything."""
    return type(backbone.backbone if type(backbone) is WithDistance else backbone) in BACKBONES.values()


def grows(backbone: nn.Module) -> bool:
    """Whether it is known that a backbone's embeddings do not stay bounded far away; `WithDistance` sees to it."""
    if type(backbone) is WithDistance:
        return True
    return any(type(backbone) is row.module and not row.bounded for row in backbones.BACKBONES.values())


def make_classifier(
    backbone: str,
    head: str,
    *,
    num_classes: int,
    initial_scale: str = "inverse_width",
    exponent: int = 2,
    min_weight: float = 0.0,
    min_distance_weight: float | None = None,
    distance: float | None = None,
    structure: str = "kron",
    components: int = 100,
    dtype: Any = jnp.float32,
    **backbone_options: Any,
) -> Classifier:
    """Makes a classifier from the names of a backbone and a head.

    Args:
        backbone: "lenet", "mlp", "wide_resnet", "conv_net", "resnet18", "resnet34", "resnet50" or "vit".
        head: "linear" (K logits), "none_class" (K + 1 linear logits), "square_logit" (K linear, one square logit),
            "laplace" (K logits over their standard deviations, see `LaplaceHead`), "rgpr" (`RGPRHead`) or "ccu"
            (K log-probabilities, `CCUHead`).
        num_classes: K, which never counts the OOD class.
        initial_scale, exponent, min_weight, min_distance_weight: only for "square_logit", see `SquareLogitHead`.
        distance: κ of a `WithDistance` around the backbone; None for none.  `fit` measures its center and scale.
        structure: only for "laplace" and "rgpr": "kron" or "full".
        components: only for "ccu", see `CCUHead`.
        dtype: of the backbone's computation; the head is always float32.
        backbone_options: passed to the backbone, such as `dropout=0.0`.

    Raises:
        UserError: for an unknown backbone or head, fewer than two classes, an exponent that is not even, a floor that
            is negative, or settings of the square logit for another head.

    Example:
        >>> from preload_jax import make_classifier
        >>> head = make_classifier("lenet", "none_class", num_classes=10).head
        >>> head.num_outputs, head.num_classes, head.has_ood_class
        (11, 10, True)
    """
    row = backbones.get(backbone)
    if head not in HEADS:
        raise UserError(unknown("head", head, HEADS))
    num_classes = require_integer("num_classes", num_classes, at_least=2)
    check_exponent(exponent)
    for name, value in (("min_weight", min_weight), ("min_distance_weight", min_distance_weight)):
        if value is not None:
            require_number(name, value, at_least=0.0)
    if head == "square_logit":
        head_module: nn.Module = SquareLogitHead(
            num_classes,
            initial_scale=initial_scale,
            exponent=exponent,
            zero_bias=row.zero_bias,
            min_weight=min_weight,
            min_distance_weight=min_distance_weight,
        )
    elif exponent != 2 or min_weight or min_distance_weight is not None or distance is not None:
        raise UserError(
            "exponent, min_weight, min_distance_weight and distance are of the square logit, which head"
            f" {head!r} has not; leave them out"
        )
    elif head in ("laplace", "rgpr"):
        head_module = (LaplaceHead if head == "laplace" else RGPRHead)(num_classes, structure, row.zero_bias)
    elif head == "ccu":
        components = require_integer("components", components, at_least=1)
        head_module = CCUHead(num_classes, components, zero_bias=row.zero_bias)
    else:
        none_class = head == "none_class"
        head_module = LinearHead(num_classes + none_class, zero_bias=row.zero_bias, none_class=none_class)
    options = [each.name for each in dataclasses.fields(row.module) if each.name not in ("dtype", "parent", "name")]
    others = sorted(set(backbone_options) - set(options))
    if others:
        raise UserError(unknown(f"option of {backbone}", others[0], options))
    body = row.module(dtype=dtype, **backbone_options)
    return Classifier(body if distance is None else WithDistance(body, weight=distance), head_module)
